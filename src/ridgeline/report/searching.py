"""The text of whole searches: every layout of a job, and its scaling curve."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ridgeline.report.layout import bar, plain, table
from ridgeline.scenario.searching import LayoutsAnswer, SearchAnswer
from ridgeline.search.exhaustive import Layout
from ridgeline.search.scaling import Scaling
from ridgeline.units import show

_SHAPES_COUNT = 5  # src: display
_FRONT_COUNT = 12  # src: display


def search_report(answer: SearchAnswer) -> Sequence[RenderableType]:
    """For each system the best layouts with the reasons, or the scaling curve with its knee."""
    parts: list[RenderableType] = []
    for item in answer.answers:
        parts += _curve(item) if isinstance(item, Scaling) else _layouts(item)
        parts.append(plain(""))
    return parts


def _layouts(item: LayoutsAnswer) -> list[RenderableType]:
    result = item.result
    sizes = ", ".join(f"{count:,}" for count in item.devices)
    parts: list[RenderableType] = [plain(f"{item.system_id} x {sizes}", "bold underline")]
    reached = "" if result.complete else f" ({result.searched_count:,} before the interrupt)"
    parts.append(plain(f"{result.strategies_count:,} layouts{reached}: {result.feasible_count:,} fit"))
    counts = ", ".join(f"{count:,} {code}" for code, count in result.rejected.items())
    parts.append(plain(f"rejected: {counts}"))
    if item.why is not None:
        parts += [plain(line) for line in item.why.lines()]
    parts += [plain("best of other degrees:"), _table(result.shapes[:_SHAPES_COUNT])]
    front = result.front
    shown = [front[index * (len(front) - 1) // max(1, _FRONT_COUNT - 1)] for index in range(_FRONT_COUNT)]
    chosen = list(dict.fromkeys(shown)) if len(front) > _FRONT_COUNT else list(front)
    parts += [plain(f"front of time, memory and devices ({len(chosen)} of {len(front)}):"), _table(chosen)]
    return parts


def _table(layouts: Sequence[Layout]) -> RenderableType:
    lines = table("devices", "step", "memory", "layout", left=(3,), flexible=(3,))
    for layout in layouts:
        step, size = show(layout.step_s, "time"), show(layout.memory_bytes, "bytes")
        lines.add_row(f"{layout.plan.devices_count:,}", step, size, plain(layout.plan.label()))
    return lines


def _curve(curve: Scaling) -> list[RenderableType]:
    parts: list[RenderableType] = [plain(f"{curve.system_id}: scaling", "bold underline")]
    lines = table("devices", "step", "tokens/s", "efficiency", "", "MFU", "layout", left=(4, 6), flexible=(6,))
    for point in curve.points:
        if point.plan is None:
            lines.add_row(f"{point.devices_count:,}", "-", "-", "-", "", "-", plain(point.reason))
            continue
        share = curve.efficiency_frac(point)
        lines.add_row(
            f"{point.devices_count:,}",
            show(point.step_s, "time"),
            f"{point.tokens_per_s:,.4g}",
            f"{share:.0%}",
            bar(min(1.0, share), 20),  # src: display
            f"{point.mfu_frac:.1%}",
            plain(point.plan.label()),
        )
    parts.append(lines)
    if curve.knee_devices_count is None:
        parts.append(plain("no knee: every doubling brings more than half of what it would at full rate"))
    else:
        parts.append(
            plain(
                f"knee at {curve.knee_devices_count:,} devices: {curve.cause}"
                f" (its device-time grows by {curve.grown_frac:.0%} of the whole with the next size)"
            )
        )
    return parts
