"""Sizing the serving system of a scenario: its ranked machines, and the fewest devices that keep the load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.core import Note, merge
from ridgeline.errors import BadPlan, NoFeasiblePlan, ScenarioError
from ridgeline.scenario.answer import PlanAnswer
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.plain import finite
from ridgeline.scenario.planning import infeasible_error, machines_of, planned, serving_request, terms_of
from ridgeline.search import Machine
from ridgeline.search.result import rejected_text
from ridgeline.search.sizing_result import Sizing
from ridgeline.search.sizing_search import size_serving
from ridgeline.search.sizing_workers import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingAnswer:
    """The ranked machines of a scenario (`plan`; without rows where none keeps the limits as it stands) and the ways
    to serve it with the devices that there are (`sizing`)."""

    scenario: Scenario
    plan: PlanAnswer
    sizing: Sizing

    def to_dict(self) -> dict[str, Any]:
        """The answer of `plan` as plain data, with the key `sizing` beside."""
        return dict(finite({**self.plan.to_dict(), "sizing": self.sizing.to_dict()}))


def size(scenario: Scenario, *, progress: Callable[[str], None] | None = None) -> SizingAnswer:
    """Rank the machines of a serving scenario and size it: engines that do everything, and pools of two kinds.

    Of each system the largest size among its candidates is the most that there is. Raises `NoFeasiblePlan` where
    neither finds a way, with what binds and the counts, and `BadPlan` where fixed parts of the layout do not divide.
    """
    serve = scenario.file.workload.serve
    if serve is None:
        raise ScenarioError(f"{scenario.place('workload')}: has no `serve`")
    filled: list[Note] = []
    machines = machines_of(scenario, filled)
    plan = planned(scenario, progress, machines)
    plan = replace(plan, notes=merge(filled, plan.notes))
    refused = None if plan.rows else infeasible_error(scenario, plan)
    if isinstance(refused, BadPlan):
        raise refused
    asked = serve.sizing
    axes = Axes(
        precisions=tuple(dict.fromkeys(asked.precisions or ("",))),
        kv_precisions=tuple(dict.fromkeys(asked.kv or ("",))),
        modes=("aggregated", "disaggregated") if asked.pools == "both" else (asked.pools,),
        simulate=asked.simulate,
    )
    largest = () if plan.unsearched else _largest(machines)
    sizing = size_serving(serving_request(scenario), largest, terms_of(scenario), axes, progress)
    if refused is not None and not sizing.options:
        raise NoFeasiblePlan(f"{refused}\n{_none_text(sizing)}", dict(sizing.rejected))
    return SizingAnswer(scenario=scenario, plan=plan, sizing=sizing)


def _largest(machines: Sequence[Machine]) -> tuple[Machine, ...]:
    """Each system once, at its largest size."""
    found: dict[str, Machine] = {}
    for machine in machines:
        known = found.get(machine.system.id)
        if known is None or machine.devices_count > known.devices_count:
            found[machine.system.id] = machine
    return tuple(found.values())


def _none_text(sizing: Sizing) -> str:
    lines = [f"sized freely, with pools of prefill and decode engines too: {rejected_text(sizing.rejected)}"]
    lines += [f"  {item.system_id} up to {item.devices_count:,}: {item.reason}" for item in sizing.none]
    return "\n".join(lines)
