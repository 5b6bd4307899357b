"""What a simulated run leaves: a value for each request, and the state over time."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.specs.requests import Counts, Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intervals:
    """State over time; interval i lasts from `edges_s[i]` to `edges_s[i + 1]`.

    Means over the interval, summed over replicas: `waiting_count`, `running_count`, `replicas_count` (paid for),
    `cache_frac` (share of all blocks that running requests hold). Means of what happened in it: `steps_count`,
    `step_s` (mean step, 0 without steps), `busy_frac` (device time over time and paid replicas), `flop_per_s` and
    `bytes_per_s` (of one device of each replica, summed), tokens made and read a second, preemptions.
    """

    edges_s: Floats
    waiting_count: Floats
    running_count: Floats
    replicas_count: Floats
    cache_frac: Floats
    steps_count: Floats
    step_s: Floats
    busy_frac: Floats
    flop_per_s: Floats
    bytes_per_s: Floats
    made_tokens_per_s: Floats
    read_tokens_per_s: Floats
    preemptions_count: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A run. One value a request, in the order in which they were given; NaN where a request was refused.

    `started_s`: first let in by a scheduler. `first_token_s`: out of the step that ended its prompt (where nothing is
    generated: its end). `preemptions`: how often it had to yield. `cached_tokens`: found in a prefix cache when it was
    let in last. `replica`: which one ended it. `answered`: false for those that no replica could ever hold.
    `gap_edges_s`, `gap_counts`: distribution of the times between tokens of a request, all requests together.
    `end_s`: when the last one ended. `steps_count`: engine steps; `runs_count`: those that were computed (steps in
    which nothing changes are taken together).
    """

    arrived_s: Floats
    started_s: Floats
    first_token_s: Floats
    finished_s: Floats
    input_tokens: Counts
    output_tokens: Counts
    preemptions: Counts
    cached_tokens: Counts
    replica: Counts
    answered: Counts
    gap_edges_s: Floats
    gap_counts: Floats
    intervals: Intervals
    end_s: float
    steps_count: float
    runs_count: int

    @property
    def refused_count(self) -> int:
        """Requests that no replica could ever hold."""
        return int((self.answered == 0).sum())

    @property
    def requests_per_s(self) -> float:
        """Answers over the time from the first arrival to the last end."""
        span_s = self.end_s - float(self.arrived_s.min()) if len(self.arrived_s) else 0.0
        return float(self.answered.sum()) / span_s if span_s > 0 else float("inf")
