"""Which of many points nothing else beats in everything."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def front(first: Floats, second: Floats) -> Ints:
    """Indices of the points that no other beats in both figures (less is better), in order of the first.

    Of equal points the one that comes first is kept.

    >>> front(np.array([3.0, 1.0, 2.0, 2.0]), np.array([1.0, 3.0, 2.0, 4.0])).tolist()
    [1, 2, 0]
    """
    order = np.lexsort((second, first))
    least = np.minimum.accumulate(second[order])
    better = np.ones(order.size, dtype=bool)
    better[1:] = second[order][1:] < least[:-1]
    return order[better]


def front_of_sizes(first: Floats, second: Floats, sizes: Ints) -> Ints:
    """As `front`, with a third figure of few different values (sizes of a machine): less is better too.

    A point of a larger size stays only where no smaller size has one that is as good in both others.

    >>> figures = np.array([4.0, 2.0, 2.0]), np.array([1.0, 1.0, 2.0]), np.array([8, 16, 16])
    >>> front_of_sizes(*figures).tolist()
    [0, 1]
    """
    kept = np.zeros(0, dtype=np.int64)
    for size in np.unique(sizes):
        here = np.flatnonzero(sizes == size)
        joined = np.concatenate([kept, here])
        best = joined[front(first[joined], second[joined])]
        kept = np.concatenate([kept, np.setdiff1d(best, kept)])
    return kept
