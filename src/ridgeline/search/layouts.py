"""The fastest layouts of one training job on one machine, without timing those that cannot be among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ridgeline.core import Breakdown
from ridgeline.errors import MissingFact
from ridgeline.network import sliced
from ridgeline.specs import Calibration, TrainingPlan
from ridgeline.training import LayoutRequest, candidates, check_plan, least_recompute
from ridgeline.training.clock import clock_for
from ridgeline.training.step import time_step

MEMORY, MISSING, SLOW = "memory", "missing fact", "not better by a lower bound"
# Layouts whose bound is above this share of the best time so far are not timed: near ones stay, for energy's sake.
_NEAR_FRAC = 0.95  # src: rl-numerics


@dataclass(frozen=True, slots=True)
class TimedLayout:
    """A layout that fits, and how long its step takes."""

    plan: TrainingPlan
    step_s: float


@dataclass(frozen=True, slots=True)
class Layouts:
    """What became of all combinations: those that were timed, fastest first, and the others counted by reason.

    Reasons are codes of broken rules, "memory", "missing fact", or "not better by a lower bound". `divided_count`
    combinations kept every rule.
    """

    timed: tuple[TimedLayout, ...]
    rejected: dict[str, int]
    divided_count: int
    missing: str = ""

    @property
    def tried_count(self) -> int:
        """All combinations."""
        return len(self.timed) + sum(self.rejected.values())


def fastest_layouts(request: LayoutRequest, calibration: Calibration) -> Layouts:
    """Times the layouts of `request` that keep every rule and fit memory, each with the least recompute that fits.

    Layouts with the same tensor, context and expert degrees, micro-batch and sharding do the same work in all; one
    with p stages, v virtual ones and m micro-batches takes (p - 1)/(v m) longer than that. So once one of a group is
    timed, another whose bubble alone makes it slower than the best layout so far is not timed (nor is its memory
    asked); what is done again counts nothing. Layouts within a twentieth of the best are timed all the same.
    """
    rejected: dict[str, int] = {}
    dividing: list[TrainingPlan] = []
    for plan in candidates(request):
        problems = check_plan(request.model, request.system, plan)
        if problems:
            rejected[problems[0].code] = rejected.get(problems[0].code, 0) + 1
        else:
            dividing.append(plan)
    clock = clock_for(sliced(request.system, request.devices_count), calibration, request.software)
    timed: list[TimedLayout] = []
    work_s: dict[TrainingPlan, float] = {}
    best_s = float("inf")
    missing = ""
    for plan in _least_bubble_first(dividing):
        group = _group(plan)
        if group in work_s and _NEAR_FRAC * work_s[group] * (1.0 + bubble_ratio(plan)) > best_s:
            rejected[SLOW] = rejected.get(SLOW, 0) + 1
            continue
        fitted = least_recompute(request.model, request.system, request.software, plan, request.pins)
        if fitted is None:
            rejected[MEMORY] = rejected.get(MEMORY, 0) + 1
            continue
        try:
            tree = time_step(request.model, fitted, clock).tree
        except MissingFact as error:
            rejected[MISSING] = rejected.get(MISSING, 0) + 1
            missing = str(error)
            continue
        timed.append(TimedLayout(fitted, tree.value))
        best_s = min(best_s, tree.value)
        even_s = _even_work_s(fitted, tree)
        work_s[group] = min(even_s, work_s.get(group, even_s))
    timed.sort(key=lambda item: (item.step_s, item.plan.label()))
    return Layouts(tuple(timed), rejected, len(dividing), missing)


def _even_work_s(plan: TrainingPlan, tree: Breakdown) -> float:
    """Work of a step on one device if all stages were even and nothing was done again.

    The tree has the work of the slowest stage, and in its bubble that of all others for one micro-batch.
    """
    once_s = tree.value_of("forward") + tree.value_of("backward")
    slowest_s = once_s + tree.value_of("recompute")
    others_s = plan.interleave_count * plan.micro_batches_count * tree.value_of("pipeline bubble")
    return once_s / slowest_s * (slowest_s + others_s) / plan.pipeline_count


def bubble_ratio(plan: TrainingPlan) -> float:
    """Waiting of a pipeline with even stages over its work: (p - 1) / (v m).

    >>> plan = TrainingPlan(pipeline_count=8, interleave_count=2, global_batch_count=64, sequence_tokens=2048)
    >>> bubble_ratio(plan)
    0.0546875
    """
    if plan.splits_backward:  # may wait for nothing
        return 0.0
    return (plan.pipeline_count - 1) / (plan.interleave_count * plan.micro_batches_count)


def _group(plan: TrainingPlan) -> TrainingPlan:
    """What layouts of the same work have in common."""
    return replace(plan, pipeline_count=1, interleave_count=1, data_count=1)


def _least_bubble_first(plans: Iterable[TrainingPlan]) -> list[TrainingPlan]:
    return sorted(plans, key=lambda plan: (bubble_ratio(plan), plan.label()))
