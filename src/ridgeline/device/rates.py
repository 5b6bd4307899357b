"""What a chip offers to a kernel, and how a law of parameters is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ridgeline.core import FrozenMap, model
from ridgeline.errors import MissingFact
from ridgeline.specs import Calibration, Chip, Law

Number = Any  # a float or an array of floats

# Shapes up to this count were measured.
LARGEST_COUNT = 2**20  # src: aiconfigurator-core


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Datasheet figures that a tile law scales: peak of the precision, memory rate, units, clock, cache."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    unit_count: float
    clock_hz: float
    cache_bytes: float

    @property
    def unit_flop_per_cycle(self) -> float:
        """Peak of one compute unit per clock cycle."""
        return self.peak_flop_per_s / (self.unit_count * self.clock_hz)


_FIELDS = {"unit_count": "unit_count", "clock_hz": "clock_hz", "l2_bytes": "cache_bytes"}
# Kinds of chips that are GPUs: "edge" modules with figures of units are (Jetson).
_GPU_KINDS = ("gpu", "edge")
_BANDWIDTH = "memory_bandwidth_bytes_per_s"


@cache
def rates_of(chip: Chip, precision: str, why: str, stand_ins: FrozenMap[str, float] | None = None) -> Rates:
    """Figures of `chip` for matrix work in `precision`; `MissingFact` names the first that no source gives.

    `stand_ins`: what a law assumed of a part whose units, clock or cache are not published, under the names of
    `Rates`; used only where the chip has no figure.
    """
    given: FrozenMap[str, float] = FrozenMap() if stand_ins is None else stand_ins
    found = {}
    for field, name in _FIELDS.items():
        lent = getattr(chip, field) is None and name in given
        found[name] = given[name] if lent else chip.need(field, why)
    return Rates(peak_flop_per_s=chip.peak(precision, why), bandwidth_bytes_per_s=chip.need(_BANDWIDTH, why), **found)


def is_gpu(chip: Chip) -> bool:
    """Whether its units are those that laws of tiles and streams were measured on (not cores, not whole arrays)."""
    return chip.kind in _GPU_KINDS


def has_units(chip: Chip, law: Law) -> bool:
    """Whether units, clock and cache of a GPU are known, of the chip or as assumed by the law."""
    return is_gpu(chip) and all(
        getattr(chip, field) is not None or name in law.parameters for field, name in _FIELDS.items()
    )


@cache
def rate_facts(chip: Chip, precision: str = "", *, tiled: bool = True) -> tuple[str, ...]:
    """Ids of the facts that `rates_of` reads (without units, clock and cache where the law is not tiled)."""
    names = (_BANDWIDTH, *_FIELDS) if tiled else (_BANDWIDTH,)
    ids = tuple(chip.fact_id(name) for name in names if getattr(chip, name) is not None)
    if not precision:
        return ids
    return (peak_fact(chip, precision), *ids)


def parameters_of(law: Law) -> dict[str, float]:
    """Parameters of a law without what it assumed of the chip."""
    return {name: value for name, value in law.parameters.items() if name not in _FIELDS.values()}


@cache
def peak_fact(chip: Chip, precision: str) -> str:
    """Id of the fact behind `chip.peak(precision)`."""
    return chip.fact_id(f"peak_dense_flop_per_s.{chip.peak_key(precision)}")


def find_law(calibration: Calibration, chip: Chip, keys: Iterable[str], why: str) -> tuple[str, Law]:
    """The first of `keys` that the calibration has and that the chip has the figures for, with its key.

    A law of tiles (it has `launch_cycles`) needs units, clock and cache. `MissingFact` names what is missing: the
    figure of the chip where only that stood in the way, else the first law.
    """
    wanted = tuple(keys)
    without_figures = False
    for key in wanted:
        law = calibration.laws.get(key)
        if law is None:
            continue
        if "launch_cycles" not in law.parameters or has_units(chip, law):
            return key, law
        without_figures = True
    if without_figures and is_gpu(chip):
        for field in _FIELDS:
            chip.need(field, why)
    raise MissingFact(f"{calibration.chip}.efficiency.{wanted[0]}", why)


# Bytes a clock that the last-level cache of NVIDIA's parts of 80 MB and less delivers, all slices together, and what
# of it micro-benchmarks reach (assumed).
_CACHE_BYTES_PER_CYCLE = 5120.0  # src: nvidia-a100-whitepaper
_CACHE_REACHED_FRAC = 0.65  # src: rl-derivation
_CACHED_FAMILIES = ("ampere", "ada", "hopper")


@model(id="cache-over-memory", sources=("nvidia-a100-whitepaper", "rl-derivation"), dimensional=False)
def cache_over_memory(chip: Chip) -> float:
    """How much faster the last-level cache delivers bytes that neighbours have just read than the memory does
    (1: not known to be faster)."""
    if chip.architecture not in _CACHED_FAMILIES or not chip.clock_hz or not chip.memory_bandwidth_bytes_per_s:
        return 1.0
    cache = _CACHE_REACHED_FRAC * _CACHE_BYTES_PER_CYCLE * chip.clock_hz
    return max(1.0, cache / chip.memory_bandwidth_bytes_per_s)


def smooth_max(one: Number, other: Number, power: float) -> Number:
    """(one^p + other^p)^(1/p): above both, close to the larger for large p.

    >>> round(float(smooth_max(3.0, 4.0, 2.0)), 6)
    5.0
    """
    return (np.asarray(one) ** power + np.asarray(other) ** power) ** (1.0 / power)
