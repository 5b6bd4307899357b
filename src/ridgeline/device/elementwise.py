"""How long work takes that is bound by memory: norms, residuals, activations, casts, embeddings, optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ridgeline.core import model
from ridgeline.device.rates import smooth_max
from ridgeline.specs import Law

Number = Any  # a float or an array of floats
_CACHE_EDGE = 4.0  # src: ridgeline-kernel-laws
_FAR = 1e3  # src: ridgeline-kernel-laws
_SMOOTH = 4.0  # src: ridgeline-kernel-laws
_FLOOR_SMOOTH = 1.5  # src: ridgeline-kernel-laws


class ElementwiseTime(NamedTuple):
    """Time, and the limits under it [s]: memory (or cache), instructions, launch floor."""

    time_s: Number
    memory_s: Number
    unit_s: Number
    launch_s: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseLaw:
    """Parameters of `elementwise_s` for one kind of operation.

    `memory_frac`: achieved share of memory bandwidth. `unit_bytes_per_cycle`: what the instructions of the kernel let
    through a compute unit, which bounds old scalar kernels on parts with much bandwidth. `cached_bytes_per_cycle`:
    rate of a unit on tensors that stay in the last-level cache. `launch_s`: floor of one kernel.
    """

    memory_frac: float
    unit_bytes_per_cycle: float
    cached_bytes_per_cycle: float
    launch_s: float


class Stream(NamedTuple):
    """What a chip offers to a streaming kernel: bandwidth, cache [bytes] and cycles of all units [1/s].

    0 for a cache or for cycles means that the figure is not known; its limit is then left out.
    """

    bandwidth_bytes_per_s: float
    cache_bytes: float = 0.0
    unit_cycles_per_s: float = 0.0


@cache
def elementwise_law(law: Law, kind: str, fused: bool) -> ElementwiseLaw:
    """The figures of `kind` in a `Law` of kind "elementwise".

    Parameters are named `<kind>.<field>`, `fused.<field>` for fused training kernels and `default.<field>` for what
    was not measured by itself.
    """
    found = {}
    for name in ElementwiseLaw.__slots__:
        order = ([f"fused-{kind}.{name}", f"fused.{name}"] if fused else [f"{kind}.{name}"]) + [f"default.{name}"]
        found[name] = next(law.parameters[key] for key in order if key in law.parameters)
    return ElementwiseLaw(**found)


@model(
    id="elementwise",
    sources=("ridgeline-kernel-laws", "vidur-mlp-ops", "aiconfigurator-core"),
    dimensional=False,  # parameters come in a record, which the rescaling test cannot see
)
def elementwise_s(moved_bytes: Number, launches: Number, law: ElementwiseLaw, stream: Stream) -> ElementwiseTime:
    """Time of `launches` kernels that move `moved_bytes` in all.

    Equation: smooth maximum of launches x floor, bytes / (e B) and bytes / (units x clock x bytes per cycle), where
    what fits the last-level cache (a tensor that the kernel before has just written) moves at the rate of the cache.
    Sources: form by Ridgeline, fitted to measured norm, rotary, activation, add, embedding and cast kernels.

    >>> law = ElementwiseLaw(memory_frac=0.5, unit_bytes_per_cycle=1e6, cached_bytes_per_cycle=1e6, launch_s=2e-6)
    >>> round(float(elementwise_s(1e9, 1.0, law, Stream(1e12)).time_s) * 1e3, 3)
    2.0
    """
    total = np.asarray(moved_bytes, dtype=np.float64)
    each = total / np.maximum(launches, 1.0)
    memory_s = total / (law.memory_frac * stream.bandwidth_bytes_per_s)
    unit_s: Number = 0.0
    if stream.unit_cycles_per_s > 0:
        unit_s = total / (law.unit_bytes_per_cycle * stream.unit_cycles_per_s)
        if stream.cache_bytes > 0:
            share = 1.0 / (1.0 + np.minimum(each / stream.cache_bytes, _FAR) ** _CACHE_EDGE)
            cached_s = total / (law.cached_bytes_per_cycle * stream.unit_cycles_per_s)
            memory_s = share * np.minimum(cached_s, memory_s) + (1.0 - share) * memory_s
    launch_s = launches * law.launch_s
    work_s = smooth_max(memory_s, unit_s, _SMOOTH)
    return ElementwiseTime(smooth_max(work_s, launch_s, _FLOOR_SMOOTH), memory_s, unit_s, launch_s)
