"""How a training job scales: its best layout on each size of a machine, the knee of the curve, and what causes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ridgeline.core import Note
from ridgeline.search.explain import Term, net_terms
from ridgeline.search.layouts import fastest_layouts
from ridgeline.search.ranking import until_stopped
from ridgeline.search.result import add_counts
from ridgeline.search.terms import Machine, Progress
from ridgeline.search.training import TrainingRequest, layout_request
from ridgeline.specs import TrainingPlan
from ridgeline.training import TrainingJob, estimate_step

# A knee: further devices bring less than this share of what they would at full rate.
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePoint:
    """One size: the fastest layout, its step and what it is made of; or why nothing runs (`plan` None)."""

    devices_count: int
    plan: TrainingPlan | None
    step_s: float = 0.0
    tokens_per_s: float = 0.0
    mfu_frac: float = 0.0
    terms: tuple[Term, ...] = ()
    reason: str = ""

    @property
    def tokens_per_s_per_device(self) -> float:
        """Rate of one device."""
        return self.tokens_per_s / self.devices_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """A scaling curve with a fixed global batch.

    `knee_devices_count` is the last size before further devices bring less than half of what they would at full
    rate (None where they do all along); `cause` is the kind of work whose device-time grew most in that step, by
    `grown_frac` of the whole device-time before it. `unsearched` names sizes that an interrupt left out.
    """

    system_id: str
    points: tuple[ScalePoint, ...]
    knee_devices_count: int | None
    cause: str
    grown_frac: float
    notes: tuple[Note, ...] = ()
    unsearched: tuple[str, ...] = ()

    def efficiency_frac(self, point: ScalePoint) -> float:
        """Rate per device over that of the smallest size that runs."""
        first = next(item for item in self.points if item.plan is not None)
        return point.tokens_per_s_per_device / first.tokens_per_s_per_device

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "system": self.system_id,
            "points": [
                {"devices": point.devices_count, "feasible": False, "reason": point.reason}
                if point.plan is None
                else {
                    "devices": point.devices_count,
                    "feasible": True,
                    "layout": point.plan.label(),
                    "step_s": point.step_s,
                    "tokens_per_s": point.tokens_per_s,
                    "mfu_frac": point.mfu_frac,
                    "efficiency_frac": self.efficiency_frac(point),
                    "terms": [{"name": term.name, "time_s": term.time_s} for term in point.terms],
                }
                for point in self.points
            ],
            "knee_devices": self.knee_devices_count,
            "cause": self.cause,
            "grown_frac": self.grown_frac,
            "unsearched": list(self.unsearched),
        }


def scaling_curve(request: TrainingRequest, machines: Sequence[Machine], progress: Progress | None = None) -> Scaling:
    """The best layout on each of `machines` (sizes of one system, in order), and where the curve bends.

    The global batch stays as it is. Layouts are those that `rank_training` tries on the whole machine.
    """
    points: list[ScalePoint] = []

    def search(machine: Machine) -> None:
        if progress is not None:
            progress(f"scaling {machine.system.id} to {machine.devices_count}")
        points.append(_point(request, machine))

    unsearched = until_stopped(machines, search)
    knee, cause, grown = knee_of([point for point in points if point.plan is not None])
    return Scaling(
        system_id=machines[0].system.id,
        points=tuple(points),
        knee_devices_count=knee,
        cause=cause,
        grown_frac=grown,
        unsearched=tuple(unsearched),
    )


def _point(request: TrainingRequest, machine: Machine) -> ScalePoint:
    wanted = layout_request(request, machine, machine.devices_count)
    found = fastest_layouts(wanted, machine.calibration)
    if not found.timed:
        counts = add_counts([found.rejected])
        reason = found.missing or ", ".join(f"{count} {code}" for code, count in counts.items()) or "no layout"
        return ScalePoint(devices_count=machine.devices_count, plan=None, reason=reason)
    estimate = estimate_step(
        TrainingJob(
            model=request.model,
            plan=found.timed[0].plan,
            system=machine.system,
            calibration=machine.calibration,
            software=wanted.software,
        )
    )
    return ScalePoint(
        devices_count=machine.devices_count,
        plan=estimate.plan,
        step_s=estimate.step_s.best,
        tokens_per_s=estimate.tokens_per_s,
        mfu_frac=estimate.mfu_frac,
        terms=net_terms(estimate.time),
    )


def knee_of(points: Sequence[ScalePoint]) -> tuple[int | None, str, float]:
    """The knee of a curve, the kind of work that causes it, and how much the device-time of that grew.

    Ideal scaling keeps the device-time (devices x time) of every kind of work as it is; what does not shrink with
    more devices, or comes anew, grows in it.

    >>> a = ScalePoint(devices_count=8, plan=None, tokens_per_s=8.0, step_s=2.0, terms=(Term("work", 2.0),))
    >>> b = ScalePoint(devices_count=16, plan=None, tokens_per_s=10.0, step_s=1.6,
    ...                terms=(Term("work", 1.0), Term("exchange", 0.6)))
    >>> knee_of([a, b])
    (8, 'exchange', 0.6)
    """
    for before, after in pairwise(points):
        gained = after.tokens_per_s / before.tokens_per_s - 1.0
        ideal = after.devices_count / before.devices_count - 1.0
        if gained < _HALF * ideal:
            grown = {term.name: after.devices_count * term.time_s for term in after.terms}
            for term in before.terms:
                grown[term.name] = grown.get(term.name, 0.0) - before.devices_count * term.time_s
            cause = max(grown, key=lambda name: grown[name])
            return before.devices_count, cause, grown[cause] / (before.devices_count * before.step_s)
    return None, "", 0.0
