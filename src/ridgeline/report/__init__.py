"""Answers as text for screens and files. Every function takes plain answers and returns renderables for `rich`."""

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
