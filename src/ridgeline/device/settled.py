"""The laws of a chip that never rests."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ridgeline.core import FrozenMap
from ridgeline.core import model as formula
from ridgeline.device.optime import gemm_law
from ridgeline.specs import Calibration, Chip

_SETTLED_S = 1e-9  # src: rl-numerics (any kernel is long against it)


@lru_cache(maxsize=64)
def settled(calibration: Calibration) -> Calibration:
    """The laws of a chip that has been busy for long: its clock has come down to what its power allows.

    Product laws lower the clock with the length of a kernel, as in a benchmark that rests in between; a loaded server
    or a training step never rests, so the full reduction holds however short its kernels are. It grows with the square
    of the share of peak that a kernel reaches, so that kernels bound by memory keep their time.
    """
    laws = {
        key: replace(law, parameters=FrozenMap({**law.parameters, "sustained_s": _SETTLED_S}))
        if "sustained_s" in law.parameters
        else law
        for key, law in calibration.laws.items()
    }
    return replace(calibration, laws=FrozenMap(laws))


@lru_cache(maxsize=64)
def unthrottled(calibration: Calibration) -> Calibration:
    """The laws at the clock of a chip that rests: for work whose reduced clock is worked out as a whole."""
    laws = {
        key: replace(law, parameters=FrozenMap({**law.parameters, "sustained_frac": 1.0}))
        if "sustained_frac" in law.parameters
        else law
        for key, law in calibration.laws.items()
    }
    return replace(calibration, laws=FrozenMap(laws))


def sustained_clock_frac(calibration: Calibration, chip: Chip, precision: str) -> float:
    """The share of its clock that `chip` keeps under endless products in `precision` (1 where nothing is known).

    Where the law is that of other parts of the architecture, the power of a unit decides: see `clock_of_power_frac`.
    """
    law, _ = gemm_law(calibration, chip, precision)
    kept = law.parameters.get("sustained_frac", 1.0)
    other = MEASURED.get(chip.architecture)
    if law.level == "device" or other is None or not (chip.tdp_w and chip.unit_count and chip.clock_hz):
        return kept
    part = (chip.tdp_w, float(chip.unit_count), chip.clock_hz)
    if kept >= 1.0:  # it keeps its full clock at its limit: a unit of any part is taken to spend as much a cycle
        watts, units, clock_hz = other
        return clock_of_power_frac(kept, (watts, units * clock_hz / part[2], part[2]), part)
    return clock_of_power_frac(kept, other, part)


# Parts on which the laws of an architecture were measured: watts, units, full clock (their data sheets).
MEASURED: dict[str, tuple[float, float, float]] = {
    "hopper": (700.0, 132.0, 1.98e9),  # src: nvidia-superpod-h100
    "ampere": (400.0, 108.0, 1.41e9),  # src: aiconfigurator-core
    "ada": (350.0, 142.0, 2.52e9),  # src: mullet-l40s-datasheet
}
# Voltage against clock, as shares of the full ones: flat below the knee (one card whose clock was logged under caps).
_KNEE_FRAC, _FLOOR_VOLTAGE = 0.77, 0.72  # src: rl-derivation


@formula(id="clock-of-power", sources=("rl-derivation",), dimensional=False)
def clock_of_power_frac(
    kept_frac: float, measured: tuple[float, float, float], part: tuple[float, float, float]
) -> float:
    """Share of its clock that a part keeps when another of its architecture, (watts, units, clock), keeps `kept_frac`.

    At the limit each unit of the measured part spends e = watts / units on x V(x)^2, x the share of its full
    clock. This part has its own e for a unit, of which the same x V(x)^2 follows; V falls linearly to the knee and is
    flat below. Never more than its full clock.

    >>> one = (700.0, 132.0, 1.98e9)
    >>> round(clock_of_power_frac(0.84, one, one), 6), round(clock_of_power_frac(0.84, one, (350.0, 114.0, 1.755e9)), 2)
    (0.84, 0.69)
    """
    share = (part[0] / part[1]) / (measured[0] / measured[1])
    spent = share * kept_frac * _voltage(kept_frac) ** 2
    low, high = 0.0, 2.0
    for _ in range(50):  # src: rl-numerics
        middle = (low + high) / 2
        low, high = (middle, high) if middle * _voltage(middle) ** 2 < spent else (low, middle)
    return min(1.0, high * measured[2] / part[2])


def _voltage(clock_frac: float) -> float:
    if clock_frac <= _KNEE_FRAC:
        return _FLOOR_VOLTAGE
    return _FLOOR_VOLTAGE + (1.0 - _FLOOR_VOLTAGE) * (clock_frac - _KNEE_FRAC) / (1.0 - _KNEE_FRAC)
