"""What a chip offers to a kernel, and how a law of parameters is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

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


_FIELDS = ("memory_bandwidth_bytes_per_s", "unit_count", "clock_hz", "l2_bytes")


def rates_of(chip: Chip, precision: str, why: str) -> Rates:
    """Figures of `chip` for matrix work in `precision`; `MissingFact` names the first that no source gives."""
    return Rates(
        peak_flop_per_s=chip.peak(precision, why),
        bandwidth_bytes_per_s=chip.need("memory_bandwidth_bytes_per_s", why),
        unit_count=chip.need("unit_count", why),
        clock_hz=chip.need("clock_hz", why),
        cache_bytes=chip.need("l2_bytes", why),
    )


def rate_facts(chip: Chip, precision: str = "", *, tiled: bool = True) -> tuple[str, ...]:
    """Ids of the facts that `rates_of` reads (without units, clock and cache where the law is not tiled)."""
    names = _FIELDS if tiled else _FIELDS[:1]
    ids = tuple(chip.fact_id(name) for name in names)
    if not precision:
        return ids
    return (peak_fact(chip, precision), *ids)


def peak_fact(chip: Chip, precision: str) -> str:
    """Id of the fact behind `chip.peak(precision)`."""
    return chip.fact_id(f"peak_dense_flop_per_s.{chip.peak_key(precision)}")


def find_law(calibration: Calibration, keys: Iterable[str], why: str) -> tuple[str, Law]:
    """The first of `keys` that the calibration has, with its key; `MissingFact` where it has none."""
    wanted = tuple(keys)
    for key in wanted:
        if key in calibration.laws:
            return key, calibration.laws[key]
    raise MissingFact(f"{calibration.chip}.efficiency.{wanted[0]}", why)


def smooth_max(one: Number, other: Number, power: float) -> Number:
    """(one^p + other^p)^(1/p): above both, close to the larger for large p.

    >>> round(float(smooth_max(3.0, 4.0, 2.0)), 6)
    5.0
    """
    return (np.asarray(one) ** power + np.asarray(other) ** power) ** (1.0 / power)
