"""Means over time of something that changes in steps."""

from __future__ import annotations

from ridgeline.des.clock import Clock


class Tally:
    """A level that changes in steps: its mean over time and its maximum since the start or the last `reset`.

    >>> import numpy as np
    >>> clock = Clock(np.random.default_rng(0))
    >>> tally = Tally(clock)
    >>> _ = clock.after(1.0, lambda: tally.add(2.0))
    >>> _ = clock.run(until_s=4.0)
    >>> tally.mean(), tally.highest
    (1.5, 2.0)
    """

    def __init__(self, clock: Clock, level: float = 0.0) -> None:
        self._clock = clock
        self.level = level
        self.reset()

    def reset(self) -> None:
        """Forget the past (a warm-up), keep the level."""
        self._start_s = self._since_s = self._clock.now_s
        self._area = 0.0
        self.highest = self.level

    def add(self, change: float) -> None:
        """Change the level now."""
        self.set(self.level + change)

    def set(self, level: float) -> None:
        """Set the level now."""
        now_s = self._clock.now_s
        self._area += self.level * (now_s - self._since_s)
        self._since_s = now_s
        self.level = level
        self.highest = max(self.highest, level)

    def mean(self) -> float:
        """Mean over time up to now (the level itself before any time has passed)."""
        now_s = self._clock.now_s
        passed_s = now_s - self._start_s
        if passed_s <= 0:
            return self.level
        return (self._area + self.level * (now_s - self._since_s)) / passed_s
