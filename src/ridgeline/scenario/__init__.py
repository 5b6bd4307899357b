"""A question as a file, and its answer: the one-call Python API."""

from ridgeline.scenario.answer import AnswerRow, PlanAnswer
from ridgeline.scenario.checking import read_scenario
from ridgeline.scenario.cited import cite
from ridgeline.scenario.load import Scenario, load_scenario, require_kind
from ridgeline.scenario.planning import plan
from ridgeline.scenario.roofline import roofline

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
