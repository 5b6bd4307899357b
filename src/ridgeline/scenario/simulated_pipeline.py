"""`simulate` for pipelines: where the time of a frame goes, what it is bound by, and what queues would buy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.catalog import Catalog, Fact
from ridgeline.core import Breakdown, Interval, Note, merge, quadrature
from ridgeline.errors import RidgelineError, ScenarioError
from ridgeline.scenario.answer import leaning_facts
from ridgeline.scenario.pipeline_models import ModelTimes
from ridgeline.scenario.pipelines import MODELS, PipelineBuilder
from ridgeline.scenario.plain import SCHEMA_VERSION, finite
from ridgeline.scenario.problems import place
from ridgeline.scenario.schema import PipelineFile, ScenarioFile
from ridgeline.scenario.settings import Path as KeyPath
from ridgeline.scenario.simulated_parts import Z_80
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
from ridgeline.specs import System

DEFAULT_FRAMES, LEAST_FRAMES, MOST_FRAMES = 1000, 100, 20_000  # of a stream, and of all streams


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineWay:
    """One way to run the pipeline: threads that wait for every call, or queues with workers."""

    run: PipelineRun
    latency: Distribution | None
    bound_per_s: Interval
    bottleneck: str
    demands_s: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        run = self.run
        return {
            "frames_per_s": run.frames_per_s,
            "bound_per_s": self.bound_per_s.to_dict(),
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
    others = _others(asked, where, set_paths, catalog)
    models = ModelTimes(catalog)

    def built(changed: Mapping[str, float]) -> PipelineBuilder:
        return PipelineBuilder(
            file=asked, system=system, others=others, catalog=catalog, spot=spot, models=models, changed=changed
        )

    builder = built({})
    pipeline = builder.build()
    tree = frame_tree(pipeline)
    leans = leaning_facts(catalog, tree.facts())
    found = _ranges(built, leans)
    frames = file.simulate.requests or max(LEAST_FRAMES, min(DEFAULT_FRAMES, MOST_FRAMES // asked.streams))
    warm_up = 0.1 if file.simulate.warm_up is None else file.simulate.warm_up
    generators = (np.random.default_rng(file.simulate.seed) for _ in range(2))
    ways = [
        _way(
            pipeline,
            run_pipeline(pipeline, frames, synchronous, generator, min(warm_up, 0.45)),
            found.synchronous_per_s if synchronous else found.asynchronous_per_s,
            synchronous,
        )
        for synchronous, generator in zip((True, False), generators, strict=True)
    ]
    return PipelineAnswer(
        pipeline=pipeline,
        system=system.id,
        frame=tree,
        alone_s=found.alone_s,
        glue=found.glue,
        synchronous=ways[0],
        asynchronous=ways[1],
        leans=leans,
        notes=merge(builder.notes, _remarks(builder, asked)),
    )


def _others(file: PipelineFile, where: str, set_paths: tuple[KeyPath, ...], catalog: Catalog) -> dict[str, System]:
    """Systems that stages name themselves."""
    found = {}
    for index, stage in enumerate(file.stages):
        if stage.system is not None:
            spot = place(where, ("workload", "pipeline", "stages", index, "system"), set_paths)
            try:
                found[stage.system] = catalog.system(stage.system)
            except RidgelineError as error:
                raise ScenarioError(f"{spot}: {error}") from None
    return found


def _way(pipeline: Pipeline, run: PipelineRun, bound: Interval, synchronous: bool) -> PipelineWay:
    demands = demands_s(pipeline, not synchronous)
    if synchronous:
        demands = {**demands, "a thread of each stream": thread_alone_s(pipeline.stages) / pipeline.streams_count}
    return PipelineWay(
        run=run,
        latency=distribution([run.latency_s]),
        bound_per_s=bound,
        bottleneck=bottleneck(demands),
        demands_s={name: value for name, value in demands.items() if value > 0},
    )


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Central 80 % of the time of a frame alone, of the share of glue, and of the most frames a second both ways."""

    alone_s: Interval
    glue: Interval
    synchronous_per_s: Interval
    asynchronous_per_s: Interval


def _figures(pipeline: Pipeline) -> tuple[float, float, float]:
    """Time of a frame alone, and the bounds with threads and with queues."""
    alone_s = frame_tree(pipeline).value
    return alone_s, bound_per_s(pipeline, True), bound_per_s(pipeline, False)


def bound_per_s(pipeline: Pipeline, synchronous: bool) -> float:
    """Most frames a second that the pipeline can do, and that are brought."""
    under_way = pipeline.streams_count * (1 if synchronous else pipeline.buffers_count)
    return rate_bound_per_s(demands_s(pipeline, not synchronous), thread_alone_s(pipeline.stages), under_way)


def _ranges(built: Callable[[Mapping[str, float]], PipelineBuilder], leans: tuple[Fact, ...]) -> _Ranges:
    """Each assumed rate of glue, and the times of the models, at the ends of their ranges; changes in quadrature."""
    first = built({})
    best = first.build()
    middle, glue = _figures(best), glue_frac(best)
    ends = [
        (fact.id, fact.low, fact.high)
        for fact in leans
        if fact.id.startswith("pipelines.") and fact.low is not None and fact.high is not None
    ]
    doubt = max((times.sigma for times in first.models.known.values()), default=0.0)
    if doubt > 0:
        factor = math.exp(Z_80 * doubt)
        ends.append((MODELS, 1.0 / factor, factor))
    sigmas: list[list[float]] = [[], [], []]
    shares = []
    for name, low, high in ends:
        both = [built({name: end}).build() for end in (low, high)]
        for index, values in enumerate(zip(*(_figures(item) for item in both), strict=True)):
            sigmas[index].append(Interval(min(values), middle[index], max(values)).sigma)
        found = [glue_frac(item) for item in both]
        shares.append((max(found) - min(found)) / 2)
    reach = quadrature(*shares) if shares else 0.0
    alone, slow, fast = (
        Interval.from_sigma(value, quadrature(*group) if group else 0.0)
        for value, group in zip(middle, sigmas, strict=True)
    )
    return _Ranges(alone, Interval(max(0.0, glue - reach), glue, min(1.0, glue + reach)), slow, fast)


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
