"""Answers as text for screens and files. Every function takes plain answers and returns renderables for `rich`.

Names are imported when they are first asked for: `list` needs no plan.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.report.cited import cite_report
    from ridgeline.report.generic import data_report
    from ridgeline.report.plan import detail_report, plan_report
    from ridgeline.report.records import list_report, show_report
    from ridgeline.report.roofline import roofline_report

__all__ = [
    "cite_report",
    "data_report",
    "detail_report",
    "list_report",
    "plan_report",
    "roofline_report",
    "show_report",
]
_HOMES = {
    "cite_report": "cited",
    "data_report": "generic",
    "detail_report": "plan",
    "list_report": "records",
    "plan_report": "plan",
    "roofline_report": "roofline",
    "show_report": "records",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
