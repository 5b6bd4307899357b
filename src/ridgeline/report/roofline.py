"""The text of `roofline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from ridgeline.report.layout import bar, plain, table
from ridgeline.units import show


def roofline_report(data: Mapping[str, Any]) -> Sequence[RenderableType]:
    """For each machine its operations, longest first: time, share, bound, and the figure that would have to improve."""
    parts: list[RenderableType] = []
    for row in data["rows"]:
        title = f"{row['rank']}. {row['system']} x {row['devices']:,}: {row['layout']}"
        parts.append(plain(title, "bold underline"))
        parts.append(plain(f"{row['what']}: {show(row['time_s'], 'time')}"))
        lines = table("operation", "count", "time", "share", "", "bound", "improve", left=(0, 4, 5, 6))
        for op in row["ops"]:
            lines.add_row(
                plain(op["name"]),
                f"{op['count']:,.4g}",
                show(op["time_s"], "time"),
                f"{op['share_frac']:.1%}",
                bar(op["share_frac"], 12),
                op["bound"],
                plain(op["improve"]),
            )
        parts += [lines, plain("")]
    return parts
