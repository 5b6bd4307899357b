"""`simulate`: the best layout of each candidate, run request by request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ridgeline.core import Interval, Note, merge
from ridgeline.errors import ScenarioError
from ridgeline.scenario.answer import AnswerRow, PlanAnswer
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.plain import SCHEMA_VERSION, finite
from ridgeline.scenario.planning import _machines, plan, serving_request
from ridgeline.scenario.simulated_batching import batching_run
from ridgeline.scenario.simulated_engine import engine_run
from ridgeline.scenario.simulated_parts import SimulatedPart
from ridgeline.scenario.simulated_traffic import Drawn, traffic_of
from ridgeline.search import Machine, ServingRow
from ridgeline.serving import ServingJob

Progress = Callable[[str], None]


_CLOSED_FORM = (
    "ttft_s",
    "ttft_p95_s",
    "tpot_s",
    "tpot_p95_s",
    "e2e_s",
    "e2e_p95_s",
    "requests_per_s",
    "running_count",
    "utilisation_frac",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRow:
    """A candidate with the layout that the closed form chose, and what its simulation says."""

    row: AnswerRow
    part: SimulatedPart

    @property
    def notes(self) -> tuple[Note, ...]:
        """Remarks of the simulation before those of the closed form."""
        return merge(self.part.notes, self.row.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        row, estimate = self.row, self.row.found.estimate
        return {
            "rank": row.rank,
            "system": row.system,
            "devices": row.devices,
            "layout": row.layout,
            **self.part.to_dict(),
            "closed_form": {name: _plain(getattr(estimate, name)) for name in _CLOSED_FORM},
            "notes": [note.to_dict() for note in self.notes],
            "uses": list(row.uses),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationAnswer:
    """All candidates that have a feasible layout, in the order of the plan."""

    plan: PlanAnswer
    traffic: Drawn
    rows: tuple[SimulatedRow, ...]
    notes: tuple[Note, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: JSON-ready, never NaN."""
        whole = self.plan.to_dict()
        kept = ("model", "assumed", "secondary", "infeasible")
        return dict(
            finite(
                {
                    "schema_version": SCHEMA_VERSION,
                    "kind": "simulate",
                    **{name: whole[name] for name in kept},
                    "traffic": self.traffic.to_dict(),
                    "rows": [row.to_dict() for row in self.rows],
                    "unsearched": list(self.plan.unsearched),
                    "notes": [note.to_dict() for note in self.notes],
                }
            )
        )


def simulate(scenario: Scenario, *, progress: Progress | None = None) -> SimulationAnswer:
    """Plan, then run the traffic through the best layout of each candidate.

    Raises what `plan` raises, and `ScenarioError` where the scenario does not say what arrives.
    """
    if scenario.file.workload.serve is None:
        raise ScenarioError(f"{scenario.place('workload')}: has no `serve`; training steps are not simulated")
    answer = plan(scenario, progress=progress)
    drawn = traffic_of(scenario)
    rows = []
    for row in answer.rows:
        if progress is not None:
            progress(f"simulating {row.system} x {row.devices}")
        rows.append(SimulatedRow(row=row, part=_part(scenario, row, drawn)))
    return SimulationAnswer(plan=answer, traffic=drawn, rows=tuple(rows), notes=merge(answer.notes, drawn.notes))


def _part(scenario: Scenario, row: AnswerRow, drawn: Drawn) -> SimulatedPart:
    job = serving_job(scenario, row)
    return (engine_run if job.generates else batching_run)(scenario, row, job, drawn)


def serving_job(scenario: Scenario, row: AnswerRow) -> ServingJob:
    """The job behind a row of the plan."""
    found = row.found
    candidates = [item for item in scenario.candidates if item.system.id == row.system]
    machines: list[Machine] = [machine for item in candidates for machine in _machines(item, scenario, [])]
    machine = next(item for item in machines if item.devices_count == row.devices)
    request = serving_request(scenario)
    if not isinstance(found, ServingRow) or machine.engine is None:
        raise ScenarioError(f"{scenario.place('workload')}: has no `serve`")
    return ServingJob(
        model=request.model,
        plan=found.plan,
        system=machine.system,
        calibration=machine.calibration,
        engine=machine.engine,
        load=request.load,
    )


def _plain(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Interval) else value
