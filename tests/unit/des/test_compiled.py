"""Sequences for loops that are compiled or not."""

from __future__ import annotations

import numpy as np

from ridgeline.des.compiled import COMPILED, compiled, entry, filled, working


def test_loops_get_flat_sequences_of_their_own():
    given = np.array([[1, 2], [3, 4]])
    floats, wholes = working(given), working(given, "int")
    assert list(floats) == [1.0, 2.0, 3.0, 4.0]
    assert isinstance(floats, np.ndarray if COMPILED else list)
    wholes[0] = 9
    assert given[0, 0] == 1
    assert list(filled(2, 0.5)) == [0.5, 0.5]
    assert list(filled(2, 3, "int")) == [3, 3]


def test_a_function_works_either_way():
    @compiled
    def inner(values, at):
        return values[at] * 2.0

    @entry
    def outer(values):
        return inner(values, 1)

    if not COMPILED:
        assert outer([1.0, 4.0]) == 8.0
