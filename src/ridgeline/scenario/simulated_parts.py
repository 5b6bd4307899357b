"""What every simulated candidate says, whatever kind of engine it ran: figures, levels over time, power, doubt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ridgeline.core import FrozenMap, Interval, Note, quadrature
from ridgeline.errors import MissingFact
from ridgeline.power import PowerLaw, estimate_power
from ridgeline.scenario.schema import ServeFile
from ridgeline.search.serving import activity_of
from ridgeline.serving import ServingEstimate
from ridgeline.simulation.percentiles import Distribution
from ridgeline.simulation.results import Limits, Measured, Timeline
from ridgeline.specs import System
from ridgeline.specs.requests import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What the devices did: per second and device, over the run and in the slices of its timeline.

    `busy_frac`: share of the time in which a step or batch is under way, the host's part of it included: such gaps are
    shorter than a clock governor reacts in.
    """

    flop_per_s: float
    bytes_per_s: float
    busy_frac: float
    slice_flop_per_s: Floats
    slice_bytes_per_s: Floats
    slice_busy_frac: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPower:
    """Mean power of the whole machine and at the meter, and energy of a token (or request, where none are made)."""

    machine_w: Interval
    meter_w: Interval
    energy_j: Interval | None
    per: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "machine_w": self.machine_w.to_dict(),
            "meter_w": self.meter_w.to_dict(),
            f"j_per_{self.per}": None if self.energy_j is None else self.energy_j.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPart:
    """One candidate. `mode`: how its engine batches. `ranges`: central 80 % of headline figures, because the times of
    steps are that uncertain (confidence of sampling is in `measured`). `users_count` of a closed loop (0: open).
    `extra`: what only this mode has."""

    mode: str
    measured: Measured
    timeline: Timeline
    ranges: FrozenMap[str, Interval]
    power: SimulatedPower | None
    users_count: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "mode": self.mode,
            "users": self.users_count,
            "simulated": self.measured.to_dict(),
            "ranges": {name: interval.to_dict() for name, interval in self.ranges.items()},
            "power": None if self.power is None else self.power.to_dict(),
            **self.extra,
            "timeline": self.timeline.to_dict(),
        }


Z_80 = 1.2815515655446004  # 80 % of a normal distribution lies within this many deviations


def limits_of(serve: ServeFile) -> Limits:
    """The latency limits of the scenario, held against every single request."""
    return Limits(ttft_s=serve.ttft_p95, tpot_s=serve.tpot_p95, e2e_s=serve.latency_p95)


HEADLINES = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("tpot", "p95"), ("e2e", "p50"), ("e2e", "p95"))


def headline(measured: Measured) -> dict[str, float]:
    """The figures that get a range."""
    found = {}
    for name, level in HEADLINES:
        spread: Distribution | None = getattr(measured, name)
        if spread is not None:
            found[f"{name}_{level}_s"] = getattr(spread, level).best
    return {**found, "goodput_per_s": measured.goodput_per_s, "requests_per_s": measured.requests_per_s.best}


def ranges(best: Measured, quick: Measured, slow: Measured) -> FrozenMap[str, Interval]:
    """Central 80 % of the headline figures from runs with all step times at the ends of theirs."""
    middle, first, last = headline(best), headline(quick), headline(slow)
    found = {}
    for name, value in middle.items():
        ends = (first.get(name, value), value, last.get(name, value))
        found[name] = Interval(min(ends), value, max(ends))
    return FrozenMap(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawer:
    """What draws power: so many devices of a system, busy in this format; by what law, under what overhead.

    `waiting_frac`: share of a step in which a device waits for others; `serves`: see `power.Activity`.
    """

    system: System
    devices_count: int
    precision: str
    law: PowerLaw
    pue_frac: float
    waiting_frac: float = 0.0
    serves: bool = False


def waiting_frac(estimate: ServingEstimate) -> float:
    """Share of the mean step in which a device waits for others."""
    step = estimate.step
    return min(1.0, step.value_of("communication") / step.value) if step.value > 0 else 0.0


def power_of(
    drawer: Drawer, work: Work, per_s: tuple[str, float]
) -> tuple[SimulatedPower | None, dict[str, Floats], tuple[Note, ...]]:
    """Mean power, power in each slice, and energy of what is made `per_s` (its name and rate)."""

    def drawn(flop: float, moved: float, busy: float) -> Any:
        activity = replace(
            activity_of(drawer.system.chip, drawer.precision, flop, moved, busy),
            waiting_frac=drawer.waiting_frac,
            serves=drawer.serves,
        )
        return estimate_power(drawer.system, drawer.devices_count, activity, drawer.law)

    try:
        mean = drawn(work.flop_per_s, work.bytes_per_s, work.busy_frac)
    except MissingFact as error:
        return None, {}, (Note("missing", str(error)),)
    slices = zip(work.slice_flop_per_s, work.slice_bytes_per_s, work.slice_busy_frac, strict=True)
    over_time = np.array([drawn(float(f), float(b), float(u)).total_w.best for f, b, u in slices])
    meter = mean.total_w.scaled(drawer.pue_frac)
    name, rate = per_s
    energy = Interval.from_sigma(meter.best / rate, quadrature(meter.sigma)) if rate > 0 else None
    found = SimulatedPower(machine_w=mean.total_w, meter_w=meter, energy_j=energy, per=name)
    return found, {"machine_w": over_time}, mean.notes


def energy_each(drawer: Drawer, levels: Mapping[str, Floats], per_s: Floats) -> Floats:
    """Energy of what is made `per_s` in each slice [J]; NaN where nothing is made or power is not known."""
    watts = levels.get("machine_w", np.full(len(per_s), np.nan)) * drawer.pue_frac
    found: Floats = np.divide(watts, per_s, out=np.full(len(per_s), np.nan), where=per_s > 0)
    return found


def repeated(run: Callable[[int], Any], first_seed: int, replications: int, random: bool) -> list[Any]:
    """Runs with seeds one after another; a run that draws nothing is made once."""
    return [run(first_seed + index) for index in range(replications if random else 1)]
