"""Dynamic batching in front of models that answer in one pass: encoders, vision, speech, ranking.

The rules are those of Triton's dynamic batcher. When an instance of the model is free, the requests that wait are
batched in order of arrival: the largest preferred size that they fill is sent at once; fewer than the smallest one wait
for more, but none longer than the queue delay; then whatever waits is sent. Without preferred sizes the largest batch
takes that place; without a delay nothing waits while an instance is free.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ridgeline.des import Clock, Event, SharedRate, Tally
from ridgeline.errors import BadPlan
from ridgeline.simulation.traffic import ClosedLoop, Traffic
from ridgeline.specs.requests import Counts, Floats

# How a request ended.
SERVED, REFUSED, EXPIRED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBatching:
    """What the batcher is told. `max_batch_count`: largest batch of the model. `preferred_counts`: sizes to form.

    `delay_s`: longest that a request may wait for others while an instance is free. `instances_count`: copies of the
    model on each of `devices_count` devices (one queue feeds all of them). `queue_count`: requests that may wait, later
    ones are refused (None: any number). `timeout_s`: requests that waited longer are dropped when they would be batched
    (None: never).
    """

    max_batch_count: int
    preferred_counts: tuple[int, ...] = ()
    delay_s: float = 0.0
    instances_count: int = 1
    devices_count: int = 1
    queue_count: int | None = None
    timeout_s: float | None = None

    def check(self) -> list[str]:
        """What contradicts itself; empty where nothing does."""
        found = []
        if self.max_batch_count < 1 or self.instances_count < 1 or self.devices_count < 1:
            found.append("batch, instances and devices must be 1 or more")
        wrong = [size for size in self.preferred_counts if not 1 <= size <= self.max_batch_count]
        if wrong:
            found.append(f"preferred size {wrong[0]} is not between 1 and the largest batch {self.max_batch_count}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchTimes:
    """How long a batch takes, for sizes 1, 2, 3 ...: what the host does first, then what the device does [s].

    Instances on one device work side by side on the host and share the device. `cv_frac`: coefficient of variation of
    both times from batch to batch (0: always the same; 1: exponential). `flop` and `moved_bytes` of a batch are for
    power (None: not known).
    """

    host_s: Floats
    device_s: Floats
    cv_frac: float = 0.0
    flop: Floats | None = None
    moved_bytes: Floats | None = None

    @property
    def whole_s(self) -> Floats:
        """Latency of a batch alone on its device."""
        return self.host_s + self.device_s

    def scaled(self, factor: float) -> BatchTimes:
        """All times multiplied."""
        return replace(self, host_s=self.host_s * factor, device_s=self.device_s * factor)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchingRun:
    """What happened, a value a request in order of arrival; batches in order of their start.

    `state`: 0 served, 1 refused (queue full), 2 expired (waited too long). `started_s` and `finished_s` are NaN for
    requests that were not served. `queue_mean`: mean number that waits; `device_busy_frac`: share of the time that a
    device works; `span_s`: from the first arrival to the last end.
    """

    arrived_s: Floats
    started_s: Floats
    finished_s: Floats
    state: Counts
    batch_started_s: Floats
    batch_finished_s: Floats
    batch_count: Counts
    batch_queue: Counts
    queue_mean: float
    device_busy_frac: float
    span_s: float

    @property
    def served(self) -> Any:
        """Which requests were answered."""
        return self.state == SERVED


def simulate_batching(
    traffic: Traffic, times: BatchTimes, options: DynamicBatching, generator: np.random.Generator
) -> BatchingRun:
    """Run `traffic` through the batcher until every request has ended; lengths of requests do not matter here.

    Raises `BadPlan` for options that contradict themselves or sizes that `times` does not have.
    """
    problems = options.check()
    if len(times.whole_s) < options.max_batch_count:
        problems.append(f"times of {len(times.whole_s)} sizes for batches of up to {options.max_batch_count}")
    if problems:
        raise BadPlan(f"dynamic batching: {'; '.join(problems)}")
    return _Batcher(times, options, Clock(generator)).run(traffic)


class _Batcher:
    """The state of one run."""

    def __init__(self, times: BatchTimes, options: DynamicBatching, clock: Clock) -> None:
        self.clock, self.options = clock, options
        self.host_s, self.device_s = times.host_s.tolist(), times.device_s.tolist()
        self.shape = 1.0 / times.cv_frac**2 if times.cv_frac > 0 else 0.0
        sizes = options.preferred_counts or (options.max_batch_count,)
        self.sizes = sorted(set(sizes))
        self.queue: deque[int] = deque()
        self.waiting = Tally(clock)
        self.devices = [SharedRate(clock, 1.0) for _ in range(options.devices_count)]
        self.free = [options.instances_count] * options.devices_count
        self.busy = [Tally(clock) for _ in self.devices]
        self.arrived_s: list[float] = []
        self.started_s: list[float] = []
        self.finished_s: list[float] = []
        self.state: list[int] = []
        self.batches: list[list[float]] = []
        self.alarm: Event | None = None
        self.on_end: Callable[[], None] | None = None

    def run(self, traffic: Traffic) -> BatchingRun:
        """Feed the traffic and gather what happened."""
        if isinstance(traffic, ClosedLoop):
            self._feed_users(traffic)
        else:
            self._feed(traffic.draw(self.clock.generator).arrived_s.tolist())
        self.clock.run()
        batches = np.array(self.batches, dtype=np.float64).reshape(-1, 4)  # src: rl-definition
        return BatchingRun(
            arrived_s=np.array(self.arrived_s),
            started_s=np.array(self.started_s),
            finished_s=np.array(self.finished_s),
            state=np.array(self.state, dtype=np.int64),
            batch_started_s=batches[:, 0],
            batch_finished_s=batches[:, 1],
            batch_count=batches[:, 2].astype(np.int64),
            batch_queue=batches[:, -1].astype(np.int64),
            queue_mean=self.waiting.mean(),
            device_busy_frac=sum(tally.mean() for tally in self.busy) / len(self.busy),
            span_s=self.clock.now_s - (self.arrived_s[0] if self.arrived_s else 0.0),
        )

    def _feed(self, arrivals: list[float]) -> None:
        """Open loop: each arrival schedules the next, so that the list of events stays short."""
        coming = iter(arrivals)

        def arrive() -> None:
            self.offer()
            after()

        def after() -> None:
            time_s = next(coming, None)
            if time_s is not None:
                self.clock.at(time_s, arrive)

        after()

    def _feed_users(self, loop: ClosedLoop) -> None:
        thought = iter(loop.draw(self.clock.generator)[2].tolist())

        def send_later() -> None:
            think_s = next(thought, None)
            if think_s is not None:
                self.clock.after(think_s, self.offer)

        self.on_end = send_later
        for _ in range(min(loop.users_count, loop.count)):
            send_later()

    def offer(self) -> None:
        """A request arrives now."""
        index = len(self.arrived_s)
        self.arrived_s.append(self.clock.now_s)
        self.started_s.append(math.nan)
        self.finished_s.append(math.nan)
        self.state.append(SERVED)
        limit = self.options.queue_count
        if limit is not None and len(self.queue) >= limit and not self._can_start():
            self._end(index, REFUSED)
            return
        self.queue.append(index)
        self.waiting.add(1.0)
        self._dispatch()

    def _can_start(self) -> bool:
        return max(self.free) > 0

    def _end(self, index: int, state: int) -> None:
        self.state[index] = state
        if self.on_end is not None:
            self.on_end()

    def _dispatch(self) -> None:
        """Send batches while the rules let one go; else set an alarm for the moment when one may."""
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        while self.queue and self._can_start():
            self._drop_expired()
            if not self.queue:
                return
            size = self._size()
            if size == 0:
                due_s = self.arrived_s[self.queue[0]] + self.options.delay_s
                self.alarm = self.clock.at(max(self.clock.now_s, due_s), self._overdue)
                return
            self._send(size)

    def _size(self) -> int:
        """The batch to send now; 0: wait for more."""
        count = len(self.queue)
        place = bisect_right(self.sizes, count)
        if place:
            return self.sizes[place - 1]
        due_s = self.arrived_s[self.queue[0]] + self.options.delay_s
        return count if self.options.delay_s <= 0 or self.clock.now_s >= due_s else 0

    def _overdue(self) -> None:
        """The oldest request has waited long enough."""
        self.alarm = None
        if self.queue and self._can_start():
            self._send(self._size() or min(len(self.queue), self.options.max_batch_count))
        self._dispatch()

    def _drop_expired(self) -> None:
        limit_s = self.options.timeout_s
        if limit_s is None:
            return
        while self.queue and self.clock.now_s - self.arrived_s[self.queue[0]] > limit_s:
            self.waiting.add(-1.0)
            self._end(self.queue.popleft(), EXPIRED)

    def _send(self, size: int) -> None:
        device = max(range(len(self.free)), key=self.free.__getitem__)
        self.free[device] -= 1
        queued = len(self.queue)
        members = [self.queue.popleft() for _ in range(size)]
        self.waiting.add(-float(size))
        now_s = self.clock.now_s
        for index in members:
            self.started_s[index] = now_s
        batch = [now_s, math.nan, float(size), float(queued - size)]
        self.batches.append(batch)
        factor = float(self.clock.generator.gamma(self.shape, 1.0 / self.shape)) if self.shape else 1.0

        def work() -> None:
            self.busy[device].set(1.0)
            self.devices[device].start(factor * self.device_s[size - 1], done)

        def done() -> None:
            self.busy[device].set(1.0 if self.devices[device].running.level > 0 else 0.0)
            self.free[device] += 1
            batch[1] = self.clock.now_s
            for index in members:
                self.finished_s[index] = self.clock.now_s
            for index in members:
                self._end(index, SERVED)
            self._dispatch()

        self.clock.after(factor * self.host_s[size - 1], work)
