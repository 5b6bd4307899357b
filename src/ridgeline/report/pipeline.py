"""The text of a simulated pipeline: where the time of a frame goes, both ways of running it, what bounds each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from ridgeline.report.layout import bar, plain, ranged, significant, table
from ridgeline.report.plan import note_text
from ridgeline.scenario.simulated_pipeline import PipelineAnswer, PipelineWay
from ridgeline.simulation.pipeline import GLUE
from ridgeline.units import show


def pipeline_report(answer: PipelineAnswer) -> Sequence[RenderableType]:
    """The pipeline, a frame alone, the two ways side by side, notes."""
    made = answer.pipeline
    rate = "as fast as it goes" if made.rate_per_s is None else f"{made.rate_per_s:g} frames/s each"
    streams = f"{made.streams_count} stream{'s' if made.streams_count != 1 else ''}"
    title = f"pipeline of {len(made.stages)} stages on {answer.system}: {streams}, {rate}"
    parts: list[RenderableType] = [plain(title, "bold")]
    for kind, word in (("assumed", "assumed"), ("secondary", "secondary (not the maker's)")):
        ids = [fact.id for fact in answer.leans if (fact.kind == "assumed") == (kind == "assumed")]
        if ids:
            shown = ", ".join(ids[:6]) + (f" and {len(ids) - 6} more" if len(ids) > 6 else "")
            parts.append(plain(f"rests on {len(ids)} {word} figure{'s' if len(ids) != 1 else ''}: {shown}", "yellow"))
    parts += [Padding(_frame(answer), (1, 0, 1, 2)), *_said(answer), Padding(_ways(answer), (1, 0, 1, 2))]
    parts += [plain(note_text(note)) for note in answer.notes]
    return parts


def _frame(answer: PipelineAnswer) -> Table:
    whole = answer.alone_s.best
    found = table(
        "a frame alone", "on", "kind", "time", "share", "", "waits (threads)", "waits (queues)", left=(0, 1, 2, 5)
    )
    for stage, step in answer.pipeline.steps():
        key = f"{stage.name}: {step.name}"
        share = step.time_s / whole if whole > 0 else 0.0
        waits = [show(way.run.waited_s.get(key, 0.0), "time") for way in (answer.synchronous, answer.asynchronous)]
        name = stage.name if step.name == stage.name else f"{stage.name}: {step.name}"
        found.add_row(name, step.unit, step.kind, show(step.time_s, "time"), f"{share:.1%}", bar(share), *waits)
    return found


def _said(answer: PipelineAnswer) -> list[RenderableType]:
    kinds: dict[str, float] = {}
    for _, step in answer.pipeline.steps():
        kinds[step.kind] = kinds.get(step.kind, 0.0) + step.time_s
    glue = [f"{kind} {kinds[kind] / answer.alone_s.best:.0%}" for kind in GLUE if kinds.get(kind)]
    share = f"{answer.glue.best:.0%} ({answer.glue.low:.0%}-{answer.glue.high:.0%})"
    lines = [
        f"time of a frame alone: {ranged(answer.alone_s.scaled(1e3))} ms",
        f"glue: {share} of it" + (f" ({', '.join(glue)})" if glue else ""),
        _gain(answer),
    ]
    return [Padding(plain(text), (0, 0, 0, 2)) for text in lines]


def _gain(answer: PipelineAnswer) -> str:
    slow, fast = answer.synchronous, answer.asynchronous
    if answer.pipeline.rate_per_s is not None and not slow.run.dropped_count:
        return "queues between the stages: threads that wait keep up already, no frame is dropped"
    return (
        f"queues between the stages: {significant(answer.gain)} times the frames of threads that wait; then"
        f" {fast.bottleneck} is the bottleneck"
    )


def _ways(answer: PipelineAnswer) -> Table:
    found = table("", "threads that wait", "queues and workers", left=(0,))
    ways = (answer.synchronous, answer.asynchronous)
    rows = [
        ("frames/s", [f"{way.run.frames_per_s:.4g}" for way in ways]),
        ("most that it can (bound)", [ranged(way.bound_per_s) for way in ways]),
        ("bottleneck", [way.bottleneck for way in ways]),
        ("frames dropped", [f"{way.run.dropped_count:,}" for way in ways]),
        ("latency p50", [_level(way, "p50") for way in ways]),
        ("latency p95", [_level(way, "p95") for way in ways]),
        ("latency p99", [_level(way, "p99") for way in ways]),
    ]
    names = dict.fromkeys(name for way in ways for name in way.run.busy_frac if name != "frames under way")
    for name in names:
        if any(way.run.busy_frac.get(name, 0.0) > 0 for way in ways):
            rows.append((f"{name} busy", [f"{way.run.busy_frac.get(name, 0.0):.0%}" for way in ways]))
    for name, cells in rows:
        found.add_row(name, *cells)
    return found


def _level(way: PipelineWay, name: str) -> str:
    return "-" if way.latency is None else show(getattr(way.latency, name).best, "time")
