"""`simulate`: each candidate of a serving scenario, run request by request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog import Fact
from ridgeline.core import Interval, Note, merge
from ridgeline.errors import ScenarioError
from ridgeline.scenario.answer import AnswerRow
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.plain import SCHEMA_VERSION, finite
from ridgeline.scenario.planning import _machines, plan, serving_request
from ridgeline.scenario.simulated_batching import encoder_run
from ridgeline.scenario.simulated_engine import engine_run
from ridgeline.scenario.simulated_parts import SimulatedPart
from ridgeline.scenario.simulated_traffic import Drawn, require_serve, traffic_of
from ridgeline.search import Infeasible, Machine, ServingRow
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
    """A candidate with its layout, what its simulation says, and what the closed form said of it."""

    rank: int
    system: str
    devices: int
    layout: str
    part: SimulatedPart
    closed_form: Mapping[str, Any]
    notes: tuple[Note, ...]
    uses: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rank": self.rank,
            "system": self.system,
            "devices": self.devices,
            "layout": self.layout,
            **self.part.to_dict(),
            "closed_form": {name: _plain(value) for name, value in self.closed_form.items()},
            "notes": [note.to_dict() for note in merge(self.part.notes, self.notes)],
            "uses": list(self.uses),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationAnswer:
    """All candidates that can run the load, in the order of the plan, and what their figures lean on."""

    model: Mapping[str, Any]
    traffic: Drawn
    rows: tuple[SimulatedRow, ...]
    infeasible: tuple[Infeasible, ...]
    leans: tuple[Fact, ...]
    notes: tuple[Note, ...]
    unsearched: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data: JSON-ready, never NaN."""
        return dict(
            finite(
                {
                    "schema_version": SCHEMA_VERSION,
                    "kind": "simulate",
                    "model": dict(self.model),
                    "assumed": [lean_dict(fact) for fact in self.leans if fact.kind == "assumed"],
                    "secondary": [lean_dict(fact) for fact in self.leans if fact.kind != "assumed"],
                    "infeasible": [
                        {"system": item.system_id, "devices": item.devices_count, "reasons": list(item.reasons)}
                        for item in self.infeasible
                    ],
                    "traffic": self.traffic.to_dict(),
                    "rows": [row.to_dict() for row in self.rows],
                    "unsearched": list(self.unsearched),
                    "notes": [note.to_dict() for note in self.notes],
                }
            )
        )


def simulate(scenario: Scenario, *, progress: Progress | None = None) -> SimulationAnswer:
    """Plan, then run the traffic through the best layout of each candidate.

    Raises what `plan` raises, and `ScenarioError` for a scenario without `workload.serve`.
    """
    require_serve(scenario)
    answer = plan(scenario, progress=progress)
    drawn = traffic_of(scenario.file, scenario.trace, scenario.model.max_context_tokens)
    rows = []
    for row in answer.rows:
        if progress is not None:
            progress(f"simulating {row.system} x {row.devices}")
        rows.append(_row(scenario, row, drawn))
    model = scenario.model
    return SimulationAnswer(
        model={"id": model.id, "family": model.family, "parameters_count": model.parameters_count},
        traffic=drawn,
        rows=tuple(rows),
        infeasible=answer.infeasible,
        leans=answer.leans,
        notes=merge(answer.notes, drawn.notes),
        unsearched=answer.unsearched,
    )


def _row(scenario: Scenario, row: AnswerRow, drawn: Drawn) -> SimulatedRow:
    found, job = row.found, serving_job(scenario, row)
    if not isinstance(found, ServingRow):
        raise ScenarioError(f"{scenario.place('workload')}: has no `serve`")
    part = (engine_run if job.generates else encoder_run)(scenario, found, job, drawn)
    return SimulatedRow(
        rank=row.rank,
        system=row.system,
        devices=row.devices,
        layout=row.layout,
        part=part,
        closed_form={name: getattr(found.estimate, name) for name in _CLOSED_FORM},
        notes=row.notes,
        uses=row.uses,
    )


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


def lean_dict(fact: Fact) -> dict[str, Any]:
    """An assumed or secondary fact as plain data."""
    return {
        "id": fact.id,
        "kind": fact.kind,
        "value": fact.value,
        "unit": fact.unit,
        "low": fact.low,
        "high": fact.high,
        "why": fact.why or fact.note,
        "source": fact.source,
    }


def _plain(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Interval) else value
