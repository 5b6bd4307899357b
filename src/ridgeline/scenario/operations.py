"""Where the time of each row goes, operation by operation."""

from __future__ import annotations

from typing import Any

from ridgeline.scenario.answer import AnswerRow, PlanAnswer
from ridgeline.scenario.plain import SCHEMA_VERSION, finite
from ridgeline.search import ServingRow, TrainingRow
from ridgeline.search.operations import OpLine, serving_operations, training_operations


def roofline(answer: PlanAnswer) -> dict[str, Any]:
    """For each row its operations, longest first: count, time, share, bound, and the figure to improve."""
    return dict(finite({"schema_version": SCHEMA_VERSION, "rows": [_row(row, answer) for row in answer.rows]}))


def _row(row: AnswerRow, answer: PlanAnswer) -> dict[str, Any]:
    found = row.found
    lines: tuple[OpLine, ...]
    if isinstance(found, TrainingRow):
        lines = training_operations(answer.scenario.model, found)
        what = "device time of a step on the first pipeline stage, before overlap"
    elif isinstance(found, ServingRow):
        lines = serving_operations(found)
        what = "device time of an engine step"
    whole = sum(line.time_s for line in lines)
    return {
        "rank": row.rank,
        "system": row.system,
        "devices": row.devices,
        "layout": row.layout,
        "what": what,
        "time_s": whole,
        "ops": [
            {
                "name": line.name,
                "count": line.count,
                "time_s": line.time_s,
                "share_frac": line.time_s / whole if whole else 0.0,
                "bound": line.bound,
                "improve": line.limiter,
            }
            for line in lines
        ],
    }
