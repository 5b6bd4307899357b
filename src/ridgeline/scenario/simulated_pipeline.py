"""`simulate` for pipelines: where the time of a frame goes, what it is bound by, and what queues would buy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.catalog import Catalog, Fact
from ridgeline.core import Breakdown, Interval, Note, merge, quadrature
from ridgeline.errors import RidgelineError, ScenarioError
from ridgeline.scenario.answer import leaning_facts
from ridgeline.scenario.pipeline_models import ModelTimes
from ridgeline.scenario.pipelines import PipelineBuilder
from ridgeline.scenario.plain import SCHEMA_VERSION, finite
from ridgeline.scenario.problems import place
from ridgeline.scenario.schema import PipelineFile, ScenarioFile
from ridgeline.scenario.settings import Path as KeyPath
from ridgeline.scenario.simulating import lean_dict
from ridgeline.simulation.percentiles import Distribution, distribution
from ridgeline.simulation.pipeline import (
    Pipeline,
    bottleneck,
    demands_s,
    frame_tree,
    glue_frac,
    rate_bound_per_s,
    thread_alone_s,
)
from ridgeline.simulation.pipeline_run import PipelineRun, run_pipeline

DEFAULT_FRAMES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWay:
    """One way to run the pipeline: threads that wait for every call, or queues with workers."""

    run: PipelineRun
    latency: Distribution | None
    bound_per_s: float
    bottleneck: str
    demands_s: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        run = self.run
        return {
            "frames_per_s": run.frames_per_s,
            "bound_per_s": self.bound_per_s,
            "bottleneck": self.bottleneck,
            "dropped": run.dropped_count,
            "measured": len(run.arrived_s),
            "latency_s": None if self.latency is None else self.latency.to_dict(),
            "demands_s": dict(self.demands_s),
            "busy_frac": dict(run.busy_frac),
            "held_s": dict(run.held_s),
            "waited_s": dict(run.waited_s),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAnswer:
    """A pipeline alone (`frame` adds up), both ways of running it, and what its figures lean on.

    `alone_s` and `glue` carry ranges (80 %): each assumed fact at the ends of its range, the changes in quadrature.
    """

    pipeline: Pipeline
    system: str
    frame: Breakdown
    alone_s: Interval
    glue: Interval
    synchronous: PipelineWay
    asynchronous: PipelineWay
    leans: tuple[Fact, ...]
    notes: tuple[Note, ...]

    @property
    def gain(self) -> float:
        """Frames a second with queues over those with threads that wait."""
        slow = self.synchronous.run.frames_per_s
        return self.asynchronous.run.frames_per_s / slow if slow > 0 else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain data: JSON-ready."""
        kinds: dict[str, float] = {}
        for _, step in self.pipeline.steps():
            kinds[step.kind] = kinds.get(step.kind, 0.0) + step.time_s
        return dict(
            finite(
                {
                    "schema_version": SCHEMA_VERSION,
                    "kind": "pipeline",
                    "system": self.system,
                    "streams": self.pipeline.streams_count,
                    "units": dict(self.pipeline.units),
                    "memories_bytes_per_s": dict(self.pipeline.memories),
                    "frame": self.frame.to_dict(),
                    "alone_s": self.alone_s.to_dict(),
                    "by_kind_s": kinds,
                    "glue_frac": self.glue.to_dict(),
                    "synchronous": self.synchronous.to_dict(),
                    "asynchronous": self.asynchronous.to_dict(),
                    "queues_gain": self.gain,
                    "assumed": [lean_dict(fact) for fact in self.leans if fact.kind == "assumed"],
                    "secondary": [lean_dict(fact) for fact in self.leans if fact.kind != "assumed"],
                    "notes": [note.to_dict() for note in self.notes],
                    "uses": list(self.frame.facts()),
                }
            )
        )


def simulate_pipeline(
    file: ScenarioFile, where: str, set_paths: tuple[KeyPath, ...], catalog: Catalog
) -> PipelineAnswer:
    """Build the pipeline of `file` and run it both ways."""
    asked = file.workload.pipeline
    if asked is None:
        raise ScenarioError(f"{place(where, ('workload',), set_paths)}: has no `pipeline`")

    def spot(index: int) -> str:
        return place(where, ("workload", "pipeline", "stages", index), set_paths)

    try:
        system = catalog.system(asked.system)
    except RidgelineError as error:
        raise ScenarioError(f"{place(where, ('workload', 'pipeline', 'system'), set_paths)}: {error}") from None
    models = ModelTimes(catalog)

    def built(changed: Mapping[str, float]) -> PipelineBuilder:
        return PipelineBuilder(file=asked, system=system, catalog=catalog, spot=spot, models=models, changed=changed)

    builder = built({})
    pipeline = builder.build()
    tree = frame_tree(pipeline)
    leans = leaning_facts(catalog, tree.facts())
    alone, glue = _ranges(built, pipeline, leans, models)
    frames = file.simulate.requests or DEFAULT_FRAMES
    warm_up = 0.1 if file.simulate.warm_up is None else file.simulate.warm_up
    generators = (np.random.default_rng(file.simulate.seed) for _ in range(2))
    ways = [
        _way(pipeline, run_pipeline(pipeline, frames, synchronous, generator, min(warm_up, 0.45)), synchronous)
        for synchronous, generator in zip((True, False), generators, strict=True)
    ]
    return PipelineAnswer(
        pipeline=pipeline,
        system=system.id,
        frame=tree,
        alone_s=alone,
        glue=glue,
        synchronous=ways[0],
        asynchronous=ways[1],
        leans=leans,
        notes=merge(builder.notes, _remarks(builder, asked)),
    )


def _way(pipeline: Pipeline, run: PipelineRun, synchronous: bool) -> PipelineWay:
    demands = demands_s(pipeline, not synchronous)
    under_way = pipeline.streams_count * (1 if synchronous else pipeline.buffers_count)
    bound = rate_bound_per_s(demands, thread_alone_s(pipeline.stages), under_way)
    if synchronous:
        demands = {**demands, "a thread of each stream": thread_alone_s(pipeline.stages) / pipeline.streams_count}
    return PipelineWay(
        run=run,
        latency=distribution([run.latency_s]),
        bound_per_s=bound,
        bottleneck=bottleneck(demands),
        demands_s={name: value for name, value in demands.items() if value > 0},
    )


def _ranges(built: Any, pipeline: Pipeline, leans: tuple[Fact, ...], models: ModelTimes) -> tuple[Interval, Interval]:
    """The time of a frame alone and the share of glue, with each assumed rate of glue at the ends of its range, and the
    times of models with theirs."""
    alone_s, glue = frame_tree(pipeline).value, glue_frac(pipeline)
    lows: list[float] = []
    share: list[float] = []
    for fact in leans:
        if not fact.id.startswith("pipelines.") or fact.low is None or fact.high is None:
            continue
        ends = [built({fact.id: end}).build() for end in (fact.low, fact.high)]
        times = sorted(frame_tree(end).value for end in ends)
        lows.append(Interval(times[0], alone_s, times[1]).sigma)
        shares = sorted(glue_frac(end) for end in ends)
        share.append((shares[1] - shares[0]) / 2)
    device_s = {
        step.name: step.time_s for _, step in pipeline.steps() if step.unit == "accelerator" and step.kind == "work"
    }
    doubt = [times.sigma for times in models.known.values()]
    if doubt and alone_s > 0:
        lows.append(max(doubt) * sum(device_s.values()) / alone_s)
    reach = quadrature(*share) if share else 0.0
    whole = Interval.from_sigma(alone_s, quadrature(*lows)) if lows else Interval.exact(alone_s)
    return whole, Interval(max(0.0, glue - reach), glue, min(1.0, glue + reach))


def _remarks(builder: PipelineBuilder, file: PipelineFile) -> list[Note]:
    notes = [Note("not-modelled", "threads that fight for a lock of an interpreter, caches, jitter of the system")]
    if file.shared_memory is None:
        memory = "one memory" if builder.shared else "memories of their own"
        text = (
            f"host and accelerator of {builder.system.id} are taken to have {memory} (workload.pipeline.shared_memory)"
        )
        notes.append(Note("fill", text))
    if file.cores is None:
        count = int(builder.fact("host_cores"))
        notes.append(
            Note("assumed", f"{count} cores for the pipeline (workload.pipeline.cores)", ("pipelines.host_cores",))
        )
    host = builder.system.host.memory_bandwidth_bytes_per_s
    if host is None and not builder.shared:
        fact = "pipelines.host_memory_bandwidth"
        notes.append(Note("assumed", "the bandwidth of the host's memory is not known, one is taken", (fact,)))
    return notes
