"""A question as a file, and its answer: the one-call Python API. Names are imported when they are first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.scenario.answer import AnswerRow, PlanAnswer
    from ridgeline.scenario.checking import read_scenario
    from ridgeline.scenario.cited import cite
    from ridgeline.scenario.load import Scenario, load_scenario, require_kind
    from ridgeline.scenario.operations import roofline
    from ridgeline.scenario.planning import plan

__all__ = [
    "AnswerRow",
    "PlanAnswer",
    "Scenario",
    "cite",
    "load_scenario",
    "plan",
    "read_scenario",
    "require_kind",
    "roofline",
]
_HOMES = {
    "AnswerRow": "answer",
    "PlanAnswer": "answer",
    "Scenario": "load",
    "cite": "cited",
    "load_scenario": "load",
    "plan": "planning",
    "read_scenario": "checking",
    "require_kind": "load",
    "roofline": "operations",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
