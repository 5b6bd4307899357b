"""How long work takes that is bound by memory: norms, residuals, activations, casts, embeddings, optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ridgeline.core import model
from ridgeline.specs import Law

Number = Any  # a float or an array of floats
_CACHE_EDGE = 4.0  # src: ridgeline-kernel-laws


class ElementwiseTime(NamedTuple):
    """Time, its part in memory, and its launch floor [s]."""

    time_s: Number
    memory_s: Number
    launch_s: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseLaw:
    """Parameters of `elementwise_s` for one kind of operation: achieved shares of bandwidth (memory and, for tensors
    that stay in the last-level cache, of the same bandwidth there) and the floor of one kernel."""

    memory_frac: float
    cached_frac: float
    launch_s: float


@cache
def elementwise_law(law: Law, kind: str, fused: bool) -> ElementwiseLaw:
    """The figures of `kind` in a `Law` of kind "elementwise".

    Parameters are named `<kind>.<field>`, `fused.<field>` for fused training kernels and `default.<field>` for what
    was not measured by itself.
    """
    found = {}
    for name in ("memory_frac", "cached_frac", "launch_s"):
        order = ([f"fused-{kind}.{name}", f"fused.{name}"] if fused else []) + [f"{kind}.{name}", f"default.{name}"]
        found[name] = next(law.parameters[key] for key in order if key in law.parameters)
    return ElementwiseLaw(**found)


@model(
    id="elementwise",
    sources=("ridgeline-kernel-laws", "vidur-2024"),
    dimensional=False,  # parameters come in a record, which the rescaling test cannot see
)
def elementwise_s(
    moved_bytes: Number, launches: Number, law: ElementwiseLaw, bandwidth_bytes_per_s: float, cache_bytes: float
) -> ElementwiseTime:
    """Time of `launches` kernels that move `moved_bytes` in all.

    Equation: bytes / (e B) + launches x floor, where e goes from the cached to the memory share as the bytes of one
    kernel outgrow the last-level cache. A tensor that the kernel before has just written is found in the cache, so
    small work can be faster than memory.
    `cache_bytes` 0: no cache is known, memory rate throughout.

    >>> law = ElementwiseLaw(memory_frac=0.5, cached_frac=1.0, launch_s=2e-6)
    >>> float(elementwise_s(1e9, 1.0, law, 1e12, 0.0).time_s)
    0.002002
    """
    total = np.asarray(moved_bytes, dtype=np.float64)
    each = total / np.maximum(launches, 1.0)
    share = 1.0 / (1.0 + (each / cache_bytes) ** _CACHE_EDGE) if cache_bytes > 0 else 0.0
    slowness = share / law.cached_frac + (1.0 - share) / law.memory_frac
    memory_s = total / bandwidth_bytes_per_s * slowness
    launch_s = launches * law.launch_s
    return ElementwiseTime(memory_s + launch_s, memory_s, launch_s)
