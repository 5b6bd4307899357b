"""How long the expert products of a mixture take: many small products in one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ridgeline.core import model
from ridgeline.device.rates import smooth_max
from ridgeline.specs import Law

Number = Any  # a float or an array of floats


class GroupedTime(NamedTuple):
    """Time and the roofs under it [s]."""

    time_s: Number
    compute_s: Number
    memory_s: Number
    launch_s: Number


class Experts(NamedTuple):
    """`rows` token-expert pairs over `touched` of the local experts, each a (k, n) product.

    `imbalance`: how far the fullest expert is above the mean. Bytes an element of rows, weights and result.
    """

    rows: Number
    touched: Number
    n: Number
    k: Number
    imbalance: Number = 0.0
    a_bytes: float = 2.0
    b_bytes: float = 2.0
    c_bytes: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedLaw:
    """Parameters of `grouped_gemm_s`.

    `launch_s`: floor of the kernel. `compute_frac`, `memory_frac`: achieved shares of peak and bandwidth.
    `tile_rows`: rows that the rows of an expert are padded to. `expert_s`: cost of each touched expert.
    `smooth_count`: exponent of the smooth maximum.
    """

    launch_s: float
    compute_frac: float
    memory_frac: float
    tile_rows: float
    expert_s: float
    smooth_count: float


@cache
def grouped_law(law: Law) -> GroupedLaw:
    """The record form of a `Law` of kind "moe..."."""
    return GroupedLaw(**dict(law.parameters))


@model(
    id="grouped-gemm",
    sources=("ridgeline-kernel-laws", "aiconfigurator-core"),
    dimensional=False,  # parameters come in a record, which the rescaling test cannot see
)
def grouped_gemm_s(
    experts: Experts, law: GroupedLaw, peak_flop_per_s: float, bandwidth_bytes_per_s: float
) -> GroupedTime:
    """Time of one grouped product.

    Equation: rows of an expert are padded to a tile; on average half a tile a touched expert is done in vain, at
    least one tile each. T = launch + touched x cost + smooth maximum(2 rows' n k / (e P), bytes / (e B)).
    Touched weights are read once. Imbalance lengthens nothing by itself on one device (all units share the tiles);
    between devices it does, and that is for the caller.

    >>> law = GroupedLaw(launch_s=0, compute_frac=1, memory_frac=1, tile_rows=64, expert_s=0, smooth_count=8)
    >>> t = grouped_gemm_s(Experts(8, 8, 1024, 1024), law, 1e15, 1e12)
    >>> bool(t.memory_s > t.compute_s)
    True
    """
    rows, touched, n, k = (
        np.asarray(x, dtype=np.float64) for x in (experts.rows, experts.touched, experts.n, experts.k)
    )
    padded = np.maximum(rows + touched * law.tile_rows / 2, touched * law.tile_rows)
    compute_s = 2.0 * padded * n * k / (law.compute_frac * peak_flop_per_s)
    traffic = rows * k * experts.a_bytes + touched * k * n * experts.b_bytes + rows * n * experts.c_bytes
    memory_s = traffic / (law.memory_frac * bandwidth_bytes_per_s)
    launch_s = law.launch_s + touched * law.expert_s
    return GroupedTime(launch_s + smooth_max(compute_s, memory_s, law.smooth_count), compute_s, memory_s, launch_s)
