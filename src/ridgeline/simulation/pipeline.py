"""Pipelines of stages on different devices, and what they can do at most in closed form.

A stage is a row of steps, each on a unit that it holds alone (a core, an accelerator, a video engine, a link): first
the glue that brings its input (serialise, convert, copy), then its work. A step that moves bytes shares the bandwidth
of its memory with every other step on that memory and is no faster than it is alone.

    demand of a unit = time that one frame holds it / servers of the unit
    rate <= 1 / largest demand;  rate <= frames under way / time of a frame alone

The two bounds are those of operational analysis and hold for any order of service.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ridgeline.core import Breakdown, FrozenMap, leaf, total
from ridgeline.core import model as formula
from ridgeline.errors import BadPlan, UnknownName

Kind = Literal["work", "serialise", "convert", "copy", "call"]
GLUE: tuple[Kind, ...] = ("serialise", "convert", "copy", "call")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeStep:
    """One piece of time. `time_s` alone, for one frame, on one server of `unit`.

    `moved_bytes` cross the memory `memory` meanwhile ("" or 0: none that others feel). `batch_s`: times of 1, 2, 3 ...
    frames together, where that is not so many times one frame's. `uses`: facts behind it.
    """

    name: str
    unit: str
    time_s: float
    kind: Kind = "work"
    moved_bytes: float = 0.0
    memory: str = ""
    batch_s: tuple[float, ...] = ()
    uses: tuple[str, ...] = ()

    def of_batch(self, count: int) -> float:
        """Time of `count` frames together."""
        if count <= len(self.batch_s):
            return self.batch_s[count - 1]
        return count * self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeStage:
    """Steps one after another, started when all stages in `after` are done with the frame ("": the frame itself).

    Asynchronous pipelines have `workers_count` threads for the stage, which take up to `batch_count` frames at once.
    """

    name: str
    steps: tuple[PipeStep, ...]
    after: tuple[str, ...] = ()
    workers_count: int = 1
    batch_count: int = 1

    @property
    def alone_s(self) -> float:
        """Time of one frame with nobody else there."""
        return sum(step.time_s for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages in an order in which each comes after those that it waits for.

    `units`: servers of each unit. `memories`: bandwidth of each memory [bytes/s]. `streams_count` sources of frames,
    each at `rate_per_s` (None: the next frame as soon as there is a buffer). `buffers_count` frames of a stream may be
    under way; a frame that comes at its rate and finds none is dropped. `queue_count` frames wait in front of a stage
    of an asynchronous pipeline; a stage that finds the next queue full holds its frame and waits.
    """

    stages: tuple[PipeStage, ...]
    units: FrozenMap[str, int]
    memories: FrozenMap[str, float]
    streams_count: int = 1
    rate_per_s: float | None = None
    buffers_count: int = 4  # src: rl-definition
    queue_count: int = 4  # src: rl-definition

    def check(self) -> list[str]:
        """What contradicts itself; empty where nothing does."""
        found = []
        seen: list[str] = []
        for stage in self.stages:
            later = [name for name in stage.after if name not in seen]
            if later:
                found.append(f"stage {stage.name} comes after {later[0]}, which is not ahead of it")
            if stage.name in seen:
                found.append(f"stage {stage.name} is there twice")
            seen.append(stage.name)
            for step in stage.steps:
                if step.unit not in self.units:
                    raise UnknownName("unit", step.unit, self.units, f"stage {stage.name}")
                if step.memory and step.memory not in self.memories:
                    raise UnknownName("memory", step.memory, self.memories, f"stage {stage.name}")
                if not (step.time_s >= 0 and math.isfinite(step.time_s)):
                    found.append(f"step {step.name} of stage {stage.name} takes {step.time_s!r} s")
        if not self.stages or min(self.streams_count, self.buffers_count, self.queue_count) < 1:
            found.append("stages, streams, buffers and places in queues must be 1 or more")
        return found

    def require_sound(self) -> None:
        """`BadPlan` with everything that `check` finds."""
        problems = self.check()
        if problems:
            raise BadPlan(f"pipeline: {'; '.join(problems)}")

    def steps(self) -> Iterator[tuple[PipeStage, PipeStep]]:
        """All steps with their stages."""
        for stage in self.stages:
            for step in stage.steps:
                yield stage, step

    @property
    def ends(self) -> tuple[str, ...]:
        """Stages that no other waits for; a frame is done when all of them are."""
        waited = {name for stage in self.stages for name in stage.after}
        return tuple(stage.name for stage in self.stages if stage.name not in waited)


def frame_tree(pipeline: Pipeline) -> Breakdown:
    """Where the time of one frame goes with nobody else there [s]: stages, in each its steps."""
    parts = [
        total(
            stage.name,
            "s",
            [leaf(step.name, step.time_s, "s", model="pipeline-bounds", uses=step.uses) for step in stage.steps],
        )
        for stage in pipeline.stages
    ]
    return total("frame", "s", parts)


def glue_frac(pipeline: Pipeline) -> float:
    """Share of the time of a frame alone that is glue: serialisation, conversion, copies, calls."""
    whole = sum(step.time_s for _, step in pipeline.steps())
    glue = sum(step.time_s for _, step in pipeline.steps() if step.kind in GLUE)
    return glue / whole if whole > 0 else 0.0


def demands_s(pipeline: Pipeline, batched: bool) -> dict[str, float]:
    """Time that one frame takes of each unit and memory, over its servers: the largest one bounds the rate.

    `batched`: stages work in full batches, as an asynchronous pipeline does under load.
    """
    found = dict.fromkeys(pipeline.units, 0.0)
    found.update({f"{name} bandwidth": 0.0 for name in pipeline.memories})
    for stage, step in pipeline.steps():
        count = stage.batch_count if batched else 1
        found[step.unit] += step.of_batch(count) / count / pipeline.units[step.unit]
        if step.memory:
            found[f"{step.memory} bandwidth"] += step.moved_bytes / pipeline.memories[step.memory]
    for stage in pipeline.stages if batched else ():
        held = sum(step.of_batch(stage.batch_count) for step in stage.steps)
        found[f"workers of {stage.name}"] = held / stage.batch_count / stage.workers_count
    return found


@formula(
    id="pipeline-bounds",
    sources=("denning-buzen-1978",),
    dimensional=False,  # the mapping of demands is of one unit, which the rescaling test cannot see
)
def rate_bound_per_s(demands: Mapping[str, float], alone_s: float, under_way_count: float) -> float:
    """Most frames a second: 1 over the largest demand, and frames under way over the time of one alone.

    >>> rate_bound_per_s({"cpu": 0.01, "gpu": 0.004}, 0.02, 1), rate_bound_per_s({"cpu": 0.01}, 0.02, 8)
    (50.0, 100.0)
    """
    largest = max(demands.values(), default=0.0)
    bounds = [under_way_count / alone_s if alone_s > 0 else math.inf, 1.0 / largest if largest > 0 else math.inf]
    return min(bounds)


def bottleneck(demands: Mapping[str, float]) -> str:
    """The unit, memory or set of workers with the largest demand."""
    return max(demands, key=lambda name: demands[name])


def thread_alone_s(stages: Sequence[PipeStage]) -> float:
    """Time of a frame that one thread walks through all stages."""
    return sum(stage.alone_s for stage in stages)
