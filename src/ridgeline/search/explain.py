"""Why a layout won: which term binds, which assumption moves it most, and where the runner-up loses its time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ridgeline.core import Breakdown
from ridgeline.errors import MissingFact, UnknownName
from ridgeline.network import sliced
from ridgeline.search.exhaustive import Layout, SpaceResult
from ridgeline.search.operations import OpLine, step_operations
from ridgeline.search.space import Space
from ridgeline.specs import Calibration
from ridgeline.training import TrainingEstimate, TrainingJob, estimate_step
from ridgeline.training.clock import clock_for
from ridgeline.training.step import time_step
from ridgeline.units import show

Part = Literal["software", "chip", "host", "level"]
_TERMS_COUNT = 6  # src: rl-numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A fact that has a range: the record and field that it fills, and the ends of the range (SI).

    `part` is the record: the software, the chip, the host, or the level of the network called `level`.
    """

    fact_id: str
    part: Part
    field: str
    low: float
    high: float
    level: str = ""


@dataclass(frozen=True, slots=True)
class Swing:
    """How far one assumption moves a step: its time at either end [s]. `what` is a fact id, or a kind of kernel."""

    what: str
    low_s: float
    high_s: float

    @property
    def width_s(self) -> float:
        """Between the ends."""
        return abs(self.high_s - self.low_s)


@dataclass(frozen=True, slots=True)
class Term:
    """One kind of work in a step, hidden time taken off [s]."""

    name: str
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Another layout against the best: how much slower, and where (positive: it loses there), largest term first."""

    layout: Layout
    lost_s: float
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What stands behind the best layout of a space.

    `terms`: kinds of work, longest first: the first one binds. `operation`: the longest single operation and what
    limits it. `swings`: assumptions and kernel laws, the one that moves the step most first.
    """

    estimate: TrainingEstimate
    terms: tuple[Term, ...]
    operation: OpLine
    swings: tuple[Swing, ...]
    runner_up: Comparison | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        best_s = self.estimate.step_s.best
        longest = self.operation
        runner = None
        if self.runner_up is not None:
            runner = {
                "layout": self.runner_up.layout.plan.label(),
                "lost_s": self.runner_up.lost_s,
                "terms": [{"name": term.name, "lost_s": term.time_s} for term in self.runner_up.terms],
            }
        return {
            "layout": self.estimate.plan.label(),
            "step_s": self.estimate.step_s.to_dict(),
            "mfu_frac": self.estimate.mfu_frac,
            "binds": {"term": self.terms[0].name, "share_frac": self.terms[0].time_s / best_s},
            "terms": [{"name": term.name, "time_s": term.time_s} for term in self.terms],
            "operation": {"name": longest.name, "bound": longest.bound, "limiter": longest.limiter},
            "assumptions": [{"what": s.what, "low_s": s.low_s, "high_s": s.high_s} for s in self.swings],
            "runner_up": runner,
        }

    def lines(self) -> list[str]:
        """The same in sentences."""
        best_s = self.estimate.step_s.best
        first = self.terms[0]
        found = [
            f"best: {self.estimate.plan.label()}: {show(best_s, 'time')} a step",
            f"binds: {first.name}, {first.time_s / best_s:.0%} of the step; longest operation {self.operation.name},"
            f" {self.operation.bound} bound ({self.operation.limiter})",
        ]
        if self.swings:
            top = self.swings[0]
            found.append(f"moves it most: {top.what}: {show(top.low_s, 'time')} to {show(top.high_s, 'time')}")
        if self.runner_up is not None:
            other = self.runner_up
            where = ", ".join(f"{term.name} {term.time_s:+.3f} s" for term in other.terms[:3])  # src: rl-numerics
            found.append(f"runner-up: {other.layout.plan.label()}: {other.lost_s / best_s:.2%} slower: {where}")
        return found


def explain(
    space: Space, result: SpaceResult, calibration: Calibration, assumptions: Iterable[Assumption] = ()
) -> Explanation | None:
    """The best layout of `result` explained by the scalar path; None where nothing fits.

    The runner-up is the best layout of other degrees, virtual stages or micro-batch. Each of `assumptions` is put at
    either end of its range with all else as it is (the layout is not chosen anew), and each kind of kernel one
    standard deviation of its law up and down.
    """
    if result.best is None:
        return None
    job = TrainingJob(
        model=space.model,
        plan=result.best.plan,
        system=space.system,
        calibration=calibration,
        software=space.software,
    )
    estimate = estimate_step(job)
    lines = step_operations(job)
    return Explanation(
        estimate=estimate,
        terms=net_terms(estimate.time),
        operation=lines[0],
        swings=swings(job, assumptions),
        runner_up=_compared(job, estimate, result.shapes[1]) if len(result.shapes) > 1 else None,
    )


def net_terms(tree: Breakdown) -> tuple[Term, ...]:
    """Kinds of work of a step over all its passes, hidden time taken off, longest first.

    >>> from ridgeline.core import leaf, total
    >>> parts = [leaf("exchange", 3.0, "s"), leaf("products", 2.0, "s"), leaf("exchange hidden", -2.5, "s")]
    >>> tree = total("step", "s", parts)
    >>> [(term.name, term.time_s) for term in net_terms(tree)]
    [('products', 2.0), ('exchange', 0.5)]
    """
    found: dict[str, float] = {}
    for node in tree.walk():
        if not node.parts:
            name = node.name.removesuffix(" hidden").removesuffix(" late")
            found[name] = found.get(name, 0.0) + node.value
    return tuple(sorted((Term(name, time_s) for name, time_s in found.items()), key=lambda term: -term.time_s))


def swings(job: TrainingJob, assumptions: Iterable[Assumption]) -> tuple[Swing, ...]:
    """How far each assumption, and each kind of kernel by the residuals of its law, moves the step; widest first."""
    clock = clock_for(sliced(job.system, job.plan.devices_count), job.calibration, job.software)
    timing = time_step(job.model, job.plan, clock)
    best_s = timing.tree.value
    found = [
        Swing(f"law of {name} (one sigma)", best_s - doubt_s, best_s + doubt_s)
        for name, doubt_s in timing.doubts_s.items()
    ]
    for assumption in assumptions:
        try:
            ends_s = [_step_s(_with(job, assumption, value)) for value in (assumption.low, assumption.high)]
        except MissingFact:
            continue
        found.append(Swing(assumption.fact_id, ends_s[0], ends_s[1]))
    return tuple(sorted(found, key=lambda swing: (-swing.width_s, swing.what)))


def _step_s(job: TrainingJob) -> float:
    clock = clock_for(sliced(job.system, job.plan.devices_count), job.calibration, job.software)
    return time_step(job.model, job.plan, clock).tree.value


def _with(job: TrainingJob, assumption: Assumption, value: float) -> TrainingJob:
    """The job with one fact at another value."""
    change: dict[str, Any] = {assumption.field: value}
    system = job.system
    if assumption.part == "software":
        return replace(job, software=replace(job.software, **change))
    if assumption.part == "chip":
        return replace(job, system=replace(system, chip=replace(system.chip, **change)))
    if assumption.part == "host":
        return replace(job, system=replace(system, host=replace(system.host, **change)))
    names = [level.name for level in system.levels]
    if assumption.level not in names:
        raise UnknownName("network level", assumption.level, names)
    levels = tuple(replace(level, **change) if level.name == assumption.level else level for level in system.levels)
    return replace(job, system=replace(system, levels=levels))


def _compared(job: TrainingJob, best: TrainingEstimate, other: Layout) -> Comparison:
    tree = estimate_step(replace(job, plan=other.plan)).time
    ours = {term.name: term.time_s for term in net_terms(best.time)}
    theirs = {term.name: term.time_s for term in net_terms(tree)}
    lost = [Term(name, theirs.get(name, 0.0) - ours.get(name, 0.0)) for name in dict.fromkeys((*ours, *theirs))]
    lost.sort(key=lambda term: -abs(term.time_s))
    return Comparison(layout=other, lost_s=tree.value - best.time.value, terms=tuple(lost[:_TERMS_COUNT]))
