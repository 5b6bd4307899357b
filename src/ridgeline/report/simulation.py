"""The text of `simulate`: what arrived, latencies with confidence, what filled up, and a table of all candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from ridgeline.core import Interval, merge
from ridgeline.report.layout import plain, ranged, significant, table
from ridgeline.report.plan import leans_lines, note_text
from ridgeline.scenario.simulating import SimulatedRow, SimulationAnswer
from ridgeline.simulation.percentiles import Distribution, Sampled
from ridgeline.specs.requests import Floats
from ridgeline.units import show

_NOTES_SHOWN = 8
_BARS = " ▁▂▃▄▅▆▇█"
_NAMES = (
    ("wait", "wait for service"),
    ("ttft", "first token"),
    ("tpot", "further token (mean of a request)"),
    ("itl", "gap between tokens"),
    ("e2e", "whole request"),
)
_LEVELS = ("queue", "running", "batch", "cache_frac", "output_tokens_per_s", "requests_per_s", "machine_w")


def simulation_report(answer: SimulationAnswer) -> Sequence[RenderableType]:
    """Traffic, each candidate in detail, the table of all."""
    parts: list[RenderableType] = [plain(f"{answer.model['id']}: {answer.traffic.text}", "bold")]
    parts += leans_lines(answer.leans)
    parts.append(plain(""))
    for row in answer.rows:
        parts += _detail(row)
    parts += [plain(note_text(note)) for note in answer.notes if note.kind != "fill"]
    if answer.infeasible:
        lines = table("infeasible", "", left=(0, 1), flexible=(1,))
        for item in answer.infeasible:
            lines.add_row(f"{item.system_id} x {item.devices_count:,}", "; ".join(item.reasons))
        parts += [lines, plain("")]
    return [*parts, _ranking(answer)]


def _detail(row: SimulatedRow) -> list[RenderableType]:
    measured, part = row.part.measured, row.part
    title = f"{row.rank}. {row.system} x {row.devices:,}: {row.layout}, {part.mode}"
    cut = f"{measured.warm_up_s:.3g} s of warm-up left out" if measured.warm_up_s > 0 else "nothing left out"
    runs = f"{measured.runs_count} runs, " if measured.runs_count > 1 else ""
    come = f", {measured.offered_per_s:.4g} come" if not part.users_count else f" of {part.users_count:,} users"
    said = [
        f"{runs}{measured.measured_count:,} of {measured.requests_count:,} requests measured ({cut})",
        f"rate: {_sampled(measured.requests_per_s)} requests/s end{come}"
        + (f"; {_sampled(measured.output_tokens_per_s)} output tokens/s" if measured.tpot else ""),
        _goodput(row),
        _levels_text(row),
    ]
    if part.power is not None:
        energy = part.power.energy_j
        per = "" if energy is None else f"; {ranged(energy)} J a {part.power.per}"
        said.append(f"power: {show(part.power.meter_w.best, 'power')} at the meter{per}")
    lines: list[RenderableType] = [plain(title, "bold underline"), Padding(_latencies(row), (1, 0, 0, 2))]
    lines += [Padding(plain(text), (0, 0, 0, 2)) for text in said if text]
    lines.append(Padding(_over_time(row), (1, 0, 1, 2)))
    notes = merge(part.notes, row.notes)
    lines += [Padding(plain(note_text(note)), (0, 0, 0, 2)) for note in notes[:_NOTES_SHOWN]]
    if len(notes) > _NOTES_SHOWN:
        more = f"and {len(notes) - _NOTES_SHOWN} more notes (--json has all)"
        lines.append(Padding(plain(more), (0, 0, 0, 2)))
    return [*lines, plain("")]


def _latencies(row: SimulatedRow) -> Table:
    found = table("latency", "mean", "p50", "p90", "p95", "p99", "closed form", left=(0,))
    for name, words in _NAMES:
        spread: Distribution | None = getattr(row.part.measured, name)
        if spread is None or (name == "ttft" and row.part.measured.tpot is None):
            continue
        formula = row.closed_form.get(f"{name}_s")
        closed = "" if formula is None else f"{show(formula.best, 'time')} mean"
        cells = (spread.mean, spread.p50, spread.p90, spread.p95, spread.p99)
        found.add_row(words, *(_time(cell) for cell in cells), closed)
    return found


def _time(value: Sampled) -> str:
    """A time with half the width of its 95 % confidence range."""
    text = show(value.best, "time")
    if value.high is None or value.best <= 0:
        return f"{text} (?)"
    return f"{text} ±{(value.high - value.best) / value.best:.0%}"


def _sampled(value: Sampled) -> str:
    text = f"{value.best:.4g}"
    return text if value.high is None or value.best <= 0 else f"{text} ±{(value.high - value.best) / value.best:.1%}"


def _goodput(row: SimulatedRow) -> str:
    measured = row.part.measured
    limits = [f"{name.removesuffix('_s')} {share:.1%}" for name, share in measured.within_frac.items() if name != "all"]
    if not limits:
        return ""
    return f"goodput: {measured.goodput_per_s:.4g} requests/s within all limits ({', '.join(limits)} of the requests)"


def _levels_text(row: SimulatedRow) -> str:
    measured = row.part.measured
    said = [f"{measured.present_mean:.3g} requests in the system"]
    if measured.queue_mean is not None and measured.running_mean is not None:
        said = [f"{measured.queue_mean:.3g} wait and {measured.running_mean:.3g} are served"]
    batching = row.part.extra.get("batching")
    if batching:
        said.append(f"mean batch {batching['mean_batch']:.3g}, devices busy {batching['device_busy_frac']:.0%}")
        lost = [f"{batching[name]:,} {name}" for name in ("refused", "expired") if batching[name]]
        said += lost
    engine = row.part.extra.get("engine")
    if engine:
        said.append(
            f"key-value pools {engine['cache_mean_frac']:.0%} full (highest {engine['cache_highest_frac']:.0%})"
        )
        if engine["prefix_hit_frac"]:
            said.append(f"{engine['prefix_hit_frac']:.0%} of the input found in the prefix cache")
        if engine["refused"]:
            said.append(f"{engine['refused']:,} refused")
    if measured.preempted_count:
        said.append(f"{measured.preempted_count:,} preemptions")
    return f"levels: {'; '.join(said)}"


def _over_time(row: SimulatedRow) -> Table:
    """Each level over the run, as a line of bars from zero to its maximum."""
    time = row.part.timeline
    found = table("over time", f"{len(time.start_s)} slices of {show(time.slice_s, 'time')}", "highest", left=(0, 1))
    for name in _LEVELS:
        values = time.levels.get(name)
        if values is not None and len(values) and float(np.max(values)) > 0:
            found.add_row(name, spark(values, 60), significant(float(np.max(values))))
    return found


def spark(values: Floats, width: int) -> str:
    """Values as a line of bars of up to `width` signs, the largest full.

    >>> spark(np.array([0.0, 1.0, 2.0, 4.0]), 4)
    ' ▂▄█'
    """
    parts = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    top = float(parts.max())
    if top <= 0:
        return ""
    return "".join(_BARS[round(max(0.0, float(value)) / top * (len(_BARS) - 1))] for value in parts)


def _ranking(answer: SimulationAnswer) -> Table:
    generates = any(row.part.measured.tpot is not None for row in answer.rows)
    names = ("first token p95", "per token p95") if generates else ()
    found = table("", "machine", "request p95", *names, "within limits", "requests/s", left=(1,))
    for row in answer.rows:
        part, measured = row.part, row.part.measured
        spans = (("e2e_p95_s",), ("ttft_p95_s",), ("tpot_p95_s",)) if generates else (("e2e_p95_s",),)
        cells = [_spanned(part.ranges.get(name)) for (name,) in spans]
        within = f"{measured.within_frac['all']:.1%}" if len(measured.within_frac) > 1 else "-"
        machine = f"{row.system} x {row.devices:,}"
        found.add_row(f"{row.rank}", machine, *cells, within, f"{measured.requests_per_s.best:.4g}")
    return found


def _spanned(interval: object) -> str:
    if not isinstance(interval, Interval):
        return "-"
    best, low, high = (show(value, "time") for value in (interval.best, interval.low, interval.high))
    return best if low == high else f"{best} ({low}-{high})"
