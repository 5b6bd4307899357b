"""Whole searches over a training scenario: every layout of its machines, and how the job scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.core import FrozenMap, Note
from ridgeline.errors import BadPlan, MissingFact, NoFeasiblePlan, ScenarioError
from ridgeline.scenario.assumptions import ranged_facts
from ridgeline.scenario.load import Candidate, Scenario
from ridgeline.scenario.planning import _machines, training_request
from ridgeline.scenario.quantities import sizes
from ridgeline.scenario.sizes import expand
from ridgeline.search import Machine, TrainingRequest
from ridgeline.search.exhaustive import SpaceProgress, SpaceResult, search_space
from ridgeline.search.explain import Explanation, explain
from ridgeline.search.result import add_counts, rejected_text
from ridgeline.search.scaling import Scaling, scaling_curve
from ridgeline.search.space import Axes, Space
from ridgeline.search.training import layout_request
from ridgeline.training.layouts import context_degrees, expert_degrees

_SHAPE = ("tensor_count", "pipeline_count", "data_count", "interleave_count", "micro_batch_count")
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class LayoutsAnswer:
    """Every layout on one system: what was found, and why the best one won."""

    system_id: str
    devices: tuple[int, ...]
    result: SpaceResult
    why: Explanation | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "system": self.system_id,
            "devices": list(self.devices),
            **self.result.to_dict(),
            "why": None if self.why is None else self.why.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Answers by system, for `--json` and report."""

    what: str
    model_id: str
    answers: tuple[LayoutsAnswer | Scaling, ...]
    notes: tuple[Note, ...]

    @property
    def unsearched(self) -> list[str]:
        """What an interrupt left out."""
        found: list[str] = []
        for item in self.answers:
            if isinstance(item, Scaling):
                found += item.unsearched
            elif not item.result.complete:
                found.append(f"{item.system_id}: {item.result.strategies_count - item.result.searched_count} layouts")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.what,
            "model": self.model_id,
            "systems": [item.to_dict() for item in self.answers],
            "notes": [note.to_dict() for note in self.notes],
            "unsearched": self.unsearched,
        }


def search_layouts(scenario: Scenario, progress: SpaceProgress | None = None) -> SearchAnswer:
    """Every layout of the job on each candidate, all its sizes together; parts that the scenario fixes stay fixed."""
    request = training_request(scenario)
    notes: list[Note] = []
    found: list[LayoutsAnswer] = []
    for candidate in scenario.candidates:
        machines = _machines(candidate, scenario, notes)
        space = layouts_space(request, machines)
        result = search_space(space, machines[0].calibration, progress)
        ranged = ranged_facts(scenario.catalog, candidate.system, space.software)
        why = explain(space, result, machines[0].calibration, ranged)
        found.append(LayoutsAnswer(candidate.system.id, candidate.devices, result, why))
        if not result.complete:
            break
    if all(item.result.best is None for item in found):
        rejected = dict(add_counts([item.result.rejected for item in found]))
        missing = next((item.result.missing for item in found if item.result.missing), "")
        tried = sum(item.result.searched_count for item in found)
        counts = rejected_text(rejected, tried)
        raise NoFeasiblePlan(f"no feasible layout for {scenario.model.id}: {missing or counts}", rejected)
    return SearchAnswer("layouts", scenario.model.id, tuple(found), tuple(notes))


def layouts_space(request: TrainingRequest, machines: list[Machine]) -> Space:
    """The space of a training job on the sizes of one system."""
    first = machines[0]
    for name in ("schedule", "node_samples_per_s", "storage_samples_per_s"):
        if name in request.pins and request.pins[name] not in ("1f1b", "interleaved", "gpipe"):
            raise BadPlan(
                f"--layouts does not know {name} {request.pins[name]}; leave it out, or ask without --layouts"
            )
    if first.software is None:
        raise MissingFact(f"training software for {first.system.id}")
    axes = Axes(contexts=tuple(context_degrees(request.sequence_tokens)), experts=tuple(expert_degrees(request.model)))
    pins: dict[str, int] = {name: int(request.pins[name]) for name in _SHAPE if name in request.pins}
    return Space(
        model=request.model,
        system=first.system,
        software=first.software,
        devices_counts=tuple(machine.devices_count for machine in machines),
        base=layout_request(request, first, first.devices_count).base,
        axes=axes.pinned(request.pins),
        pins=FrozenMap(pins),
    )


def scale(scenario: Scenario, wanted: str, progress: Callable[[str], None] | None = None) -> SearchAnswer:
    """How the job scales on each candidate system over `wanted` devices ("8..16384": doublings in whole nodes)."""
    request = training_request(scenario)
    notes: list[Note] = []
    try:
        counts = sizes(wanted)
    except ValueError as error:
        raise ScenarioError(f"--scale {wanted}: {error}") from None
    curves: list[LayoutsAnswer | Scaling] = []
    seen: set[str] = set()
    for candidate in scenario.candidates:
        if candidate.system.id in seen:
            continue
        seen.add(candidate.system.id)
        sized: Candidate = replace(candidate, devices=expand(counts, candidate.system, "--scale"))
        curve = scaling_curve(request, _machines(sized, scenario, notes), progress)
        curves.append(curve)
        if curve.unsearched:
            break
    if not any(point.plan for curve in curves if isinstance(curve, Scaling) for point in curve.points):
        raise NoFeasiblePlan(f"no size of {wanted} runs {scenario.model.id}", {})
    return SearchAnswer("scaling", scenario.model.id, tuple(curves), tuple(notes))
