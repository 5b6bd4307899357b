"""The clock: events in order of time, ties in order of insertion."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Action = Callable[[], None]


@dataclass(order=True, slots=True)
class Event:
    """Something that happens at `time_s`; `order` is the count of events scheduled before it and breaks ties."""

    time_s: float
    order: int
    action: Action = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Let the event pass without its action (harmless when it has happened already)."""
        self.cancelled = True


class Clock:
    """Simulated time. Events at one time run in the order in which they were scheduled, so a run is repeatable.

    `generator`: the only source of chance of everything that runs on this clock.

    >>> clock, seen = Clock(np.random.default_rng(0)), []
    >>> _ = clock.after(2.0, lambda: seen.append(("b", clock.now_s)))
    >>> _ = clock.after(1.0, lambda: seen.append(("a", clock.now_s)))
    >>> _ = clock.after(2.0, lambda: seen.append(("c", clock.now_s)))
    >>> clock.run()
    3
    >>> seen
    [('a', 1.0), ('b', 2.0), ('c', 2.0)]
    """

    def __init__(self, generator: np.random.Generator, start_s: float = 0.0) -> None:
        self.generator = generator
        self.now_s = start_s
        self._events: list[Event] = []
        self._order = 0
        self._stopped = False

    def at(self, time_s: float, action: Action) -> Event:
        """Schedule `action` at `time_s`, which may be now but not before."""
        if not time_s >= self.now_s or math.isinf(time_s):
            raise ValueError(f"an event at {time_s!r} s cannot be scheduled at {self.now_s!r} s")
        event = Event(time_s, self._order, action)
        self._order += 1
        heapq.heappush(self._events, event)
        return event

    def after(self, delay_s: float, action: Action) -> Event:
        """Schedule `action` in `delay_s` from now."""
        return self.at(self.now_s + delay_s, action)

    def stop(self) -> None:
        """End `run` after the event that is happening."""
        self._stopped = True

    def run(self, until_s: float = math.inf, events_count: int | None = None) -> int:
        """Let events happen until none is left before `until_s`, `stop` is called, or so many have happened.

        Events at `until_s` itself happen. The clock then stands at `until_s` if that is finite and was reached, else at
        the last event. Returns how many happened.
        """
        self._stopped = False
        done = 0
        while self._events and not self._stopped and (events_count is None or done < events_count):
            if self._events[0].time_s > until_s:
                break
            event = heapq.heappop(self._events)
            if event.cancelled:
                continue
            self.now_s = event.time_s
            event.action()
            done += 1
        reached = not self._stopped and (events_count is None or done < events_count)
        if reached and math.isfinite(until_s):
            self.now_s = max(self.now_s, until_s)
        return done

    @property
    def next_s(self) -> float:
        """Time of the next event (inf: none)."""
        while self._events and self._events[0].cancelled:
            heapq.heappop(self._events)
        return self._events[0].time_s if self._events else math.inf
