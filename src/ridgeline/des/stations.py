"""Stations with servers and a queue, bounded stores, pools of units, and a rate that jobs share."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ridgeline.des.clock import Clock, Event
from ridgeline.des.tally import Tally

Item = TypeVar("Item")


class Station(Generic[Item]):
    """So many servers that serve one item each, and one queue, first come first served.

    `service_s(item)` is asked when service starts; `done(item)` is called when it ends, before the next item starts.
    `queue_count`: how many may wait (None: any number); an item that finds the queue full is refused.
    `waiting` and `busy` are tallies; `refused_count` counts.

    >>> import numpy as np
    >>> clock, ends = Clock(np.random.default_rng(0)), []
    >>> station = Station(clock, 1, lambda item: 2.0, lambda item: ends.append((item, clock.now_s)))
    >>> [station.offer(name) for name in "ab"]
    [True, True]
    >>> _ = clock.run()
    >>> ends
    [('a', 2.0), ('b', 4.0)]
    """

    def __init__(
        self,
        clock: Clock,
        servers_count: int,
        service_s: Callable[[Item], float],
        done: Callable[[Item], None],
        queue_count: int | None = None,
    ) -> None:
        self._clock, self._service_s, self._done = clock, service_s, done
        self.servers_count, self._limit = servers_count, queue_count
        self._queue: deque[Item] = deque()
        self.waiting, self.busy = Tally(clock), Tally(clock)
        self.refused_count = 0

    def offer(self, item: Item) -> bool:
        """Bring an item: it starts, waits, or is refused (False)."""
        if self.busy.level < self.servers_count:
            self._start(item)
            return True
        if self._limit is not None and len(self._queue) >= self._limit:
            self.refused_count += 1
            return False
        self._queue.append(item)
        self.waiting.add(1.0)
        return True

    def _start(self, item: Item) -> None:
        self.busy.add(1.0)
        self._clock.after(self._service_s(item), lambda: self._end(item))

    def _end(self, item: Item) -> None:
        self.busy.add(-1.0)
        self._done(item)
        while self._queue and self.busy.level < self.servers_count:
            self.waiting.add(-1.0)
            self._start(self._queue.popleft())


class Pool:
    """A number of equal units (buffers, slots, bytes): takers wait in order until enough are free.

    >>> import numpy as np
    >>> clock, got = Clock(np.random.default_rng(0)), []
    >>> pool = Pool(clock, 2)
    >>> pool.take(2, lambda: got.append("first")); pool.take(1, lambda: got.append("second"))
    >>> got, pool.free
    (['first'], 0)
    >>> pool.give(2); got
    ['first', 'second']
    """

    def __init__(self, clock: Clock, units_count: float) -> None:
        self.units_count = self.free = units_count
        self.used, self.waiting = Tally(clock), Tally(clock)
        self._queue: deque[tuple[float, Callable[[], None]]] = deque()

    def take(self, units_count: float, then: Callable[[], None]) -> None:
        """Take so many units, now or when those who came before have theirs, and call `then`."""
        if units_count > self.units_count:
            raise ValueError(f"a pool of {self.units_count:g} units can never give {units_count:g}")
        self._queue.append((units_count, then))
        self.waiting.add(1.0)
        self._serve()

    def give(self, units_count: float) -> None:
        """Return units."""
        self.free += units_count
        self.used.add(-units_count)
        self._serve()

    def _serve(self) -> None:
        while self._queue and self._queue[0][0] <= self.free:
            units, then = self._queue.popleft()
            self.waiting.add(-1.0)
            self.free -= units
            self.used.add(units)
            then()


class Store(Generic[Item]):
    """A queue between two stages: `put` waits while `room_count` items are held, `get` waits while there is none."""

    def __init__(self, clock: Clock, room_count: float = math.inf) -> None:
        self.room_count = room_count
        self.held = Tally(clock)
        self._items: deque[Item] = deque()
        self._puts: deque[tuple[Item, Callable[[], None]]] = deque()
        self._gets: deque[Callable[[Item], None]] = deque()

    def put(self, item: Item, then: Callable[[], None] = lambda: None) -> None:
        """Hand over `item`; `then` is called once there is room for it (the sender may go on)."""
        self._puts.append((item, then))
        self._move()

    def get(self, then: Callable[[Item], None]) -> None:
        """Call `then` with the next item, now or when there is one."""
        self._gets.append(then)
        self._move()

    @property
    def blocked_count(self) -> int:
        """Senders that wait for room."""
        return len(self._puts)

    def _move(self) -> None:
        moved = True
        while moved:
            moved = False
            if self._puts and (len(self._items) < self.room_count or (self._gets and not self._items)):
                item, put = self._puts.popleft()
                self._items.append(item)
                self.held.add(1.0)
                put()
                moved = True
            if self._gets and self._items:
                get = self._gets.popleft()
                self.held.add(-1.0)
                get(self._items.popleft())
                moved = True


class _Share:
    __slots__ = ("most_per_s", "rate_per_s", "then", "work")

    def __init__(self, work: float, most_per_s: float, then: Callable[[], None]) -> None:
        self.work, self.most_per_s, self.then = work, most_per_s, then
        self.rate_per_s = 0.0


class SharedRate:
    """A rate (bytes or work a second) that all jobs under way share evenly: streams on one memory, copies on one link.

    A job with a limit of its own (`most_per_s`) takes no more than that; what it leaves goes to the others
    (max-min fair). With equal unlimited jobs this is processor sharing.

    >>> import numpy as np
    >>> clock, ends = Clock(np.random.default_rng(0)), []
    >>> link = SharedRate(clock, 10.0)
    >>> link.start(10.0, lambda: ends.append(clock.now_s)); link.start(5.0, lambda: ends.append(clock.now_s))
    >>> _ = clock.run(); ends
    [1.0, 1.5]
    """

    def __init__(self, clock: Clock, rate_per_s: float) -> None:
        self._clock, self.rate_per_s = clock, rate_per_s
        self.running = Tally(clock)
        self._jobs: list[_Share] = []
        self._since_s = clock.now_s
        self._next: Event | None = None

    def start(self, work: float, then: Callable[[], None], most_per_s: float = math.inf) -> None:
        """Begin a job of `work`; `then` is called when it is done."""
        self._pass_time()
        self._jobs.append(_Share(max(0.0, work), most_per_s, then))
        self.running.add(1.0)
        self._schedule()

    def _pass_time(self) -> None:
        passed_s = self._clock.now_s - self._since_s
        self._since_s = self._clock.now_s
        for job in self._jobs:
            job.work -= job.rate_per_s * passed_s

    def _schedule(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        left_per_s = self.rate_per_s
        for index, job in enumerate(sorted(self._jobs, key=lambda job: job.most_per_s)):
            job.rate_per_s = min(job.most_per_s, left_per_s / (len(self._jobs) - index))
            left_per_s -= job.rate_per_s
        if self._jobs:
            first = min(self._jobs, key=lambda job: job.work / job.rate_per_s)
            delay_s = max(0.0, first.work / first.rate_per_s)
            self._next = self._clock.after(delay_s, lambda: self._end(first))

    def _end(self, job: _Share) -> None:
        self._next = None
        self._pass_time()
        self._jobs.remove(job)
        self.running.add(-1.0)
        self._schedule()
        job.then()
