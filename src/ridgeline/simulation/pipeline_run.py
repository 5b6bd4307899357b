"""Frames through a pipeline on the event clock: a thread a stream that waits for every call, or queues and workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ridgeline.core import FrozenMap
from ridgeline.des import Clock, Pool, SharedRate, Store
from ridgeline.simulation.pipeline import Pipeline, PipeStage, PipeStep
from ridgeline.simulation.results import occupied
from ridgeline.specs.requests import Counts, Floats

Then = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineRun:
    """What happened to the frames that were taken, in order of arrival, after the warm-up; and what units did.

    `held_s`: time that a frame held the unit of each step; `waited_s`: time that it waited for it (mean over frames).
    `queued_s`: time between stages (queues of asynchronous pipelines, joins). `busy_frac` of units and memories.
    """

    arrived_s: Floats
    finished_s: Floats
    stream: Counts
    dropped_count: int
    frames_per_s: float
    held_s: FrozenMap[str, float]
    waited_s: FrozenMap[str, float]
    busy_frac: FrozenMap[str, float]

    @property
    def latency_s(self) -> Floats:
        """Arrival of a frame to its end."""
        return self.finished_s - self.arrived_s


@dataclass(slots=True)
class _Frame:
    stream: int
    arrived_s: float
    finished_s: float = -1.0
    missing: dict[str, int] | None = None
    ends: int = 0
    then: Then | None = None


def run_pipeline(
    pipeline: Pipeline, frames_count: int, synchronous: bool, generator: np.random.Generator, warm_up_frac: float = 0.1
) -> PipelineRun:
    """Let each stream bring `frames_count` frames through the pipeline; the first `warm_up_frac` are not measured.

    `synchronous`: a thread a stream, which calls stage after stage and waits for each answer. Else every stage has its
    workers, between stages are bounded queues. Streams start at random points of their period. Raises `BadPlan` for a
    pipeline that contradicts itself.
    """
    pipeline.require_sound()
    return _Run(pipeline, synchronous, Clock(generator)).go(frames_count, warm_up_frac)


class _Run:
    """The state of one run."""

    def __init__(self, pipeline: Pipeline, synchronous: bool, clock: Clock) -> None:
        self.pipeline, self.synchronous, self.clock = pipeline, synchronous, clock
        self.units = {name: Pool(clock, count) for name, count in pipeline.units.items()}
        self.memories = {name: SharedRate(clock, rate) for name, rate in pipeline.memories.items()}
        self.queues = {stage.name: Store[_Frame](clock, pipeline.queue_count) for stage in pipeline.stages}
        self.next = {stage.name: [s for s in pipeline.stages if stage.name in s.after] for stage in pipeline.stages}
        self.ends = len(pipeline.ends)
        self.frames: list[_Frame] = []
        self.dropped = 0
        self.held: dict[str, float] = {}
        self.waited: dict[str, float] = {}

    def go(self, frames_count: int, warm_up_frac: float) -> PipelineRun:
        """Start sources (and workers), run to the end, gather."""
        if not self.synchronous:
            for stage in self.pipeline.stages:
                for _ in range(stage.workers_count):
                    self._work(stage)
        for stream in range(self.pipeline.streams_count):
            _Source(self, stream, frames_count).start()
        self.clock.run()
        return self._result(warm_up_frac)

    def step(self, stage: PipeStage, step: PipeStep, count: int, then: Then) -> None:
        """Take the unit, spend the time, give the unit back."""
        key, asked_s, time_s = f"{stage.name}: {step.name}", self.clock.now_s, step.of_batch(count)

        def begin() -> None:
            started_s = self.clock.now_s
            self.waited[key] = self.waited.get(key, 0.0) + count * (started_s - asked_s)

            def end() -> None:
                self.held[key] = self.held.get(key, 0.0) + self.clock.now_s - started_s
                self.units[step.unit].give(1)
                then()

            if step.memory and step.moved_bytes > 0 and time_s > 0:
                moved = step.moved_bytes * count
                self.memories[step.memory].start(moved, end, most_per_s=moved / time_s)
            else:
                self.clock.after(time_s, end)

        self.units[step.unit].take(1, begin)

    def steps(self, stage: PipeStage, count: int, then: Then, index: int = 0) -> None:
        """All steps of a stage one after another."""
        if index == len(stage.steps):
            then()
            return
        self.step(stage, stage.steps[index], count, partial(self.steps, stage, count, then, index + 1))

    def walk(self, frame: _Frame, index: int = 0) -> None:
        """A thread takes its frame through all stages."""
        if index == len(self.pipeline.stages):
            self.finish(frame)
            return
        self.steps(self.pipeline.stages[index], 1, partial(self.walk, frame, index + 1))

    def enter(self, frame: _Frame, accepted: Then) -> None:
        """Put a new frame in front of all stages that wait for nothing."""
        frame.missing = {stage.name: len(stage.after) for stage in self.pipeline.stages}
        self._put([stage for stage in self.pipeline.stages if not stage.after], frame, accepted)

    def _put(self, stages: list[PipeStage], frame: _Frame, then: Then) -> None:
        if not stages:
            then()
            return
        self.queues[stages[0].name].put(frame, partial(self._put, stages[1:], frame, then))

    def _work(self, stage: PipeStage) -> None:
        """A worker of a stage: take what is there, up to a batch, then pass it on, then start again."""

        def got(first: _Frame) -> None:
            frames, queue = [first], self.queues[stage.name]
            while len(frames) < stage.batch_count and queue.held.level > 0:
                queue.get(frames.append)
            self.steps(stage, len(frames), partial(self._pass_on, stage, deque(frames)))

        self.queues[stage.name].get(got)

    def _pass_on(self, stage: PipeStage, frames: deque[_Frame]) -> None:
        """Hand the frames to the next stages; the worker waits while their queues are full."""
        if not frames:
            self._work(stage)
            return
        frame = frames.popleft()
        ready = []
        for following in self.next[stage.name]:
            if frame.missing is not None:
                frame.missing[following.name] -= 1
                if not frame.missing[following.name]:
                    ready.append(following)
        if not self.next[stage.name]:
            frame.ends += 1
            if frame.ends == self.ends:
                self.finish(frame)
        self._put(ready, frame, partial(self._pass_on, stage, frames))

    def finish(self, frame: _Frame) -> None:
        """The frame is done; its buffer is free."""
        frame.finished_s = self.clock.now_s
        if frame.then is not None:
            frame.then()

    def _result(self, warm_up_frac: float) -> PipelineRun:
        frames = sorted(self.frames, key=lambda frame: frame.arrived_s)
        arrived, finished = (np.array([getattr(f, n) for f in frames]) for n in ("arrived_s", "finished_s"))
        start_s, last_s = (float(np.quantile(finished, share)) for share in (warm_up_frac, 1.0 - warm_up_frac))
        measured = arrived >= np.quantile(arrived, warm_up_frac)
        ended = ((finished > start_s) & (finished <= last_s)).sum()
        count = max(1, len(frames))
        edges = np.array([start_s, last_s])
        busy = {name: pool.used.mean() / pool.units_count for name, pool in self.units.items()}
        busy |= {f"{name} bandwidth": self._moved(name) for name in self.memories}
        waited = {name: value / count for name, value in self.waited.items()}
        there = float(occupied(arrived, finished, edges)[0]) if last_s > start_s else 0.0
        rate = float(ended) / (last_s - start_s) if last_s > start_s else 0.0
        busy["frames under way"] = there
        return PipelineRun(
            arrived_s=arrived[measured],
            finished_s=finished[measured],
            stream=np.array([frame.stream for frame in frames], dtype=np.int64)[measured],
            dropped_count=self.dropped,
            frames_per_s=rate,
            held_s=FrozenMap({name: value / count for name, value in self.held.items()}),
            waited_s=FrozenMap(waited),
            busy_frac=FrozenMap(busy),
        )

    def _moved(self, memory: str) -> float:
        """Share of the bandwidth of a memory that was used over the run."""
        moved = sum(step.moved_bytes for _, step in self.pipeline.steps() if step.memory == memory)
        span_s = self.clock.now_s
        return len(self.frames) * moved / span_s / self.pipeline.memories[memory] if span_s > 0 else 0.0


class _Source:
    """One stream: frames at its rate (dropped without a free buffer), or one as soon as a buffer is free."""

    def __init__(self, run: _Run, stream: int, frames_count: int) -> None:
        self.run, self.stream, self.left = run, stream, frames_count
        self.free = run.pipeline.buffers_count
        self.waiting: deque[_Frame] = deque()
        self.walking = False

    def start(self) -> None:
        """The first frame comes at a random point of the period."""
        rate = self.run.pipeline.rate_per_s
        if rate is not None:
            self.run.clock.after(float(self.run.clock.generator.uniform(0.0, 1.0 / rate)), self.tick)
        else:
            for _ in range(1 if self.run.synchronous else self.free):
                self.bring()

    def tick(self) -> None:
        """A frame comes by the clock."""
        rate = self.run.pipeline.rate_per_s or 1.0
        self.left -= 1
        if self.left > 0:
            self.run.clock.after(1.0 / rate, self.tick)
        if self.free == 0:
            self.run.dropped += 1
            return
        self.take()

    def bring(self) -> None:
        """A frame comes because there is a buffer for it."""
        if self.left > 0:
            self.left -= 1
            self.take()

    def take(self) -> None:
        """A frame takes a buffer and goes in."""
        self.free -= 1
        frame = _Frame(self.stream, self.run.clock.now_s, then=self.given_back)
        self.run.frames.append(frame)
        if self.run.synchronous:
            self.waiting.append(frame)
            self.walk()
        else:
            self.run.enter(frame, lambda: None)

    def walk(self) -> None:
        """The thread of the stream takes the oldest frame when it has nothing else to do."""
        if self.waiting and not self.walking:
            self.walking = True
            self.run.walk(self.waiting.popleft())

    def given_back(self) -> None:
        """A frame of this stream is done."""
        self.free += 1
        self.walking = False
        if self.run.pipeline.rate_per_s is None:
            self.run.clock.after(0.0, self.bring)
        if self.run.synchronous:
            self.run.clock.after(0.0, self.walk)
