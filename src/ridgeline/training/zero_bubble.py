"""Pipelines that split the backward pass: input gradients go on at once, weight gradients fill what would be waiting.

A stage's work on a micro-batch is F (forward), B (gradient of the input) and W (gradient of the weights). Only F and B
are waited for by neighbours; W may come whenever its device has nothing else to do.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ridgeline.core import model

_LONGEST_COUNT = 16  # src: rl-numerics
_GRAIN = 64.0  # src: rl-numerics
_FORWARD, _INPUT, _WEIGHT = 0, 1, 2
# Places of tasks that wait on a device: F of its first chunk and of its second, B of its second and of its first, W.
_OUT, _IN, _BACK_IN, _BACK_OUT, _LATE = range(5)  # src: rl-numerics
# What a free device takes first; how many weight gradients may wait before they go before a new micro-batch (0: any
# number); first chunks alive at most, in shares of the depth. The best combination is taken.
_ORDERS = ((_IN, _BACK_OUT, _BACK_IN, _OUT, _LATE), (_BACK_OUT, _BACK_IN, _IN, _OUT, _LATE))
_PATIENCE = (0, 3)  # src: rl-numerics
_ROOMS = (1.25, 1.5, 1.75, 2.0)  # src: rl-numerics
Times = tuple[float, float, float]
"""F, B and W of one micro-batch on one stage [s]."""


@model(id="zero-bubble-h", sources=("qi-2023-zero-bubble",))
def split_bubble_s(
    forward_s: Sequence[float], input_s: Sequence[float], weight_s: Sequence[float], delayed_count: int
) -> float:
    """Waiting of the slowest stage under the schedules ZB-H1 (`delayed_count` 1) and ZB-H2 (2).

    Times of one micro-batch on each stage [s]. Returns [s].

    bubble = max(0, sum of F + B over the other stages - k (p - 1) W of the slowest)

    With equal stages (p - 1)(F + B - k W): H1, in the memory of 1F1B, waits a third of what 1F1B does where the three
    are equal; H2, with 2p - 1 micro-batches alive, not at all. Assumes that transfers are counted elsewhere, and for H2
    that steps follow each other without a barrier. Source: Qi et al. 2023, table 2.

    >>> split_bubble_s([1.0] * 4, [1.0] * 4, [1.0] * 4, 1), split_bubble_s([1.0] * 4, [1.0] * 4, [1.0] * 4, 2)
    (3.0, 0.0)
    """
    whole = [sum(times) for times in zip(forward_s, input_s, weight_s, strict=True)]
    slowest = whole.index(max(whole))
    others = sum(forward_s) + sum(input_s) - forward_s[slowest] - input_s[slowest]
    return max(0.0, others - delayed_count * (len(whole) - 1) * weight_s[slowest])


@model(id="zero-bubble-v", sources=("qi-2024-controllable-memory",), dimensional=False)
def v_bubble_s(times: Sequence[Times], micro_batches_count: int) -> float:
    """Waiting of a device under a V-shaped split schedule in the memory of 1F1B: two chunks a device, out and back.

    `times`: F, B, W of one micro-batch on both chunks of each device together [s]; a chunk has half of them. Returns
    the longest span of a device from its first to its last task, less the work of the busiest [s] (steps follow each
    other without a barrier, as in the source). The schedule is made here, by the best of a few rules of what a free
    device takes first; a micro-batch is alive on a chunk until its W is done, and at most 2p chunks are. That is an
    upper bound: the schedule ZB-V of the source has no bubble where F, B and W are equal. Of long steps 3p
    micro-batches are followed, as the middle repeats; more than 16 stages wait in proportion. No time dimension:
    durations are rounded to 1/64 of the longest.

    >>> 0 < v_bubble_s([(1.0, 1.0, 1.0)] * 8, 24) < 7 * (1.0 + 1.0 - 1.0)  # less than ZB-H1
    True
    """
    depth = len(times)
    longest = max(max(three) for three in times)
    if longest <= 0 or depth == 1:
        return 0.0
    if depth > _LONGEST_COUNT:
        some = [times[index * depth // _LONGEST_COUNT] for index in range(_LONGEST_COUNT)]
        fewer = max(1, micro_batches_count * _LONGEST_COUNT // depth)
        return v_bubble_s(some, fewer) * depth / _LONGEST_COUNT
    grains = tuple(tuple(round(_GRAIN * part / longest) for part in three) for three in times)
    return _idle(grains, min(micro_batches_count, 3 * depth)) / 2 * longest / _GRAIN  # src: rl-numerics


@lru_cache(maxsize=512)
def _idle(times: tuple[tuple[int, ...], ...], micro_batches: int) -> float:
    """Least over the rules of the longest span of a device less the most work of one, in half grains."""
    depth = len(times)
    rooms = dict.fromkeys(min(2 * depth - 1, max(1, round(share * depth))) for share in _ROOMS)
    return min(
        _Folded(times, micro_batches, _Rule(order, patience, room)).run()
        for order in _ORDERS
        for patience in _PATIENCE
        for room in rooms
    )


class _Rule(NamedTuple):
    """What a free device takes first, weight gradients that may wait, first chunks alive at most."""

    order: tuple[int, ...]
    patience: int
    room: int


class _Folded:
    """The tasks of a pipeline whose device d has the stages d and 2p - 1 - d, taken as devices become free."""

    def __init__(self, times: tuple[tuple[int, ...], ...], micro_batches: int, rule: _Rule) -> None:
        self.times = times
        self.depth = len(times)
        self.last = 2 * self.depth - 1
        self.micro_batches = micro_batches
        self.rule = rule
        # heaps of (micro-batch, -stage) by place: of one place the oldest micro-batch goes first
        self.ready: list[tuple[list[tuple[int, int]], ...]] = [([], [], [], [], []) for _ in times]
        self.alive = [0] * self.depth
        self.outward = [0] * self.depth
        self.free = [True] * self.depth
        self.first = [-1.0] * self.depth
        self.end = [0.0] * self.depth
        self.work = [0.0] * self.depth
        self.events: list[tuple[float, int, int, int]] = []

    def device(self, stage: int) -> int:
        return min(stage, self.last - stage)

    def offer(self, kind: int, stage: int, batch: int) -> None:
        """A task whose inputs are there."""
        if 0 <= stage <= self.last:
            second = stage >= self.depth
            place = ((_OUT, _IN)[second], (_BACK_OUT, _BACK_IN)[second], _LATE)[kind]
            heapq.heappush(self.ready[self.device(stage)][place], (batch, -stage))

    def run(self) -> float:
        """Longest span of a device from its first to its last task, less the work of the busiest."""
        for batch in range(self.micro_batches):
            self.offer(_FORWARD, 0, batch)
        self.start(0, 0.0)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, negative, batch = heapq.heappop(self.events)
                self.finish(kind, -negative, batch)
            for device in range(self.depth):
                if self.free[device]:
                    self.start(device, now)
        return max(end - first for first, end in zip(self.first, self.end, strict=True)) - max(self.work)

    def finish(self, kind: int, stage: int, batch: int) -> None:
        """What a finished task makes possible."""
        device = self.device(stage)
        self.free[device] = True
        if kind == _FORWARD:
            self.offer(_FORWARD, stage + 1, batch)
            if stage == self.last:
                self.offer(_INPUT, stage, batch)
        elif kind == _INPUT:
            self.offer(_INPUT, stage - 1, batch)
            self.offer(_WEIGHT, stage, batch)
        else:
            self.alive[device] -= 1
            self.outward[device] -= stage < self.depth

    def start(self, device: int, now: float) -> None:
        """Begin the task that is wanted most, where there is one."""
        place = self.choose(device)
        if place < 0:
            return
        batch, negative = heapq.heappop(self.ready[device][place])
        kind = {_OUT: _FORWARD, _IN: _FORWARD, _LATE: _WEIGHT}.get(place, _INPUT)
        if kind == _FORWARD:
            self.alive[device] += 1
            self.outward[device] += place == _OUT
        took = self.times[device][kind]
        self.free[device] = False
        self.first[device] = now if self.first[device] < 0 else self.first[device]
        self.end[device], self.work[device] = now + took, self.work[device] + took
        heapq.heappush(self.events, (now + took, kind, negative, batch))

    def choose(self, device: int) -> int:
        """The first place of the rule that has a task and room for it; -1 where there is none.

        A new micro-batch leaves room for one on its way back, and waits while too many weight gradients do.
        """
        ready, alive = self.ready[device], self.alive[device]
        for place in self.rule.order:
            if not ready[place] or (place == _IN and alive >= 2 * self.depth):
                continue
            if place == _OUT:
                if self.outward[device] >= self.rule.room or alive >= 2 * self.depth - 1:
                    continue
                if 0 < self.rule.patience < len(ready[_LATE]):
                    return _LATE
            return place
        return -1
