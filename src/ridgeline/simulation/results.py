"""What a simulation says: latencies with confidence, rates, goodput under limits, how the system fills over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ridgeline.core import FrozenMap, Note
from ridgeline.simulation.percentiles import PERCENTS, Distribution, Sampled, confident, distribution, warm_up_count
from ridgeline.specs.requests import Counts, Floats

_OVERLOAD_FRAC = 0.97  # src: rl-definition
# Limits of a scenario are 95th percentiles (keys `*_p95`).
_LIMIT_FRAC = 0.95  # src: rl-definition
_MOST_CUT_FRAC = 0.5
_FEW_TURNS = 10  # src: rl-definition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """One run as arrays, a value a request in order of arrival.

    `started_s`: taken out of the queue (None: not told); `first_token_s`: first token out (the end, where nothing is
    generated). Times of requests that were not answered (`answered` false) mean nothing.
    """

    arrived_s: Floats
    started_s: Floats | None
    first_token_s: Floats
    finished_s: Floats
    input_tokens: Counts
    output_tokens: Counts
    answered: Any
    preempted_count: int = 0

    @property
    def e2e_s(self) -> Floats:
        """Arrival to end."""
        return self.finished_s - self.arrived_s

    @property
    def tpot_s(self) -> Floats:
        """Mean time of a token after the first; NaN for requests of fewer than two."""
        further = np.maximum(self.output_tokens - 1, 0)
        whole = self.finished_s - self.first_token_s
        found: Floats = np.divide(whole, further, out=np.full(len(whole), np.nan), where=further > 0)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Latencies that a request must keep to count as good (None: no limit)."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None

    @property
    def given(self) -> dict[str, float]:
        """The limits that are set, by name."""
        named = (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s), ("e2e_s", self.e2e_s))
        return {name: value for name, value in named if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of the measured part of one or several runs (replications), the warm-up left out.

    `wait`: arrival to the start of service; `ttft`: arrival to first token; `tpot`: mean time of a further token of
    each request; `itl`: single gaps between tokens where the run tells them; `e2e`: arrival to end. `offered_per_s`:
    arrivals that were measured; `requests_per_s`: answers. `within_frac`: share of the measured requests that were
    answered within each limit, and within "all"; `goodput_per_s`: requests a second that keep all. `queue_mean`,
    `running_mean` and `present_mean` (both together): over the measured time.
    """

    runs_count: int
    requests_count: int
    measured_count: int
    answered_count: int
    preempted_count: int
    warm_up_s: float
    measured_s: float
    offered_per_s: float
    requests_per_s: Sampled
    output_tokens_per_s: Sampled
    total_tokens_per_s: Sampled
    wait: Distribution | None
    ttft: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    within_frac: FrozenMap[str, float]
    goodput_per_s: float
    queue_mean: float | None
    running_mean: float | None
    present_mean: float
    itl: Distribution | None = None
    notes: tuple[Note, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {
            name: getattr(self, name)
            for name in (
                "runs_count",
                "requests_count",
                "measured_count",
                "answered_count",
                "preempted_count",
                "warm_up_s",
                "measured_s",
                "offered_per_s",
                "goodput_per_s",
                "queue_mean",
                "running_mean",
                "present_mean",
            )
        }
        sampled = ("requests_per_s", "output_tokens_per_s", "total_tokens_per_s")
        spread = ("wait", "ttft", "tpot", "itl", "e2e")
        return {
            **plain,
            **{name: getattr(self, name).to_dict() for name in sampled},
            **{f"{name}_s": None if (d := getattr(self, name)) is None else d.to_dict() for name in spread},
            "within_frac": dict(self.within_frac),
        }


def measure(
    runs: Sequence[Served], limits: Limits, warm_up_frac: float | None = None, users_count: int = 0
) -> Measured:
    """The figures of `runs`. `warm_up_frac` of the requests at the start of each run is left out (None: found by the
    marginal standard error rule on the latencies, at most half).

    `users_count` of a closed loop (0: open): the last request of each is left out too, for then users leave one by one.
    Means over time follow from the times of the requests: the area under "how many are there" is the sum of the time
    that each is there, within the measured window from the first measured arrival to the last arrival.
    """
    cut = [_cut(run, warm_up_frac) for run in runs]
    warm_up_s = [run.arrived_s[count] - run.arrived_s[0] for run, count in zip(runs, cut, strict=True)]
    kept = [_part(run, count, users_count) for run, count in zip(runs, cut, strict=True)]
    good = [np.flatnonzero(run.answered) for run in kept]
    windows = [_Window.of(run) for run in kept]
    span_s = sum(window.span_s for window in windows)
    within = _within(kept, good, limits)
    measured = sum(len(run.arrived_s) for run in kept)
    answered = sum(len(index) for index in good)
    offered = sum(max(0, len(run.arrived_s) - 1) for run in kept) / span_s if span_s > 0 else 0.0
    rates = _rates(runs, windows)
    return Measured(
        runs_count=len(runs),
        requests_count=sum(len(run.arrived_s) for run in runs),
        measured_count=measured,
        answered_count=answered,
        preempted_count=sum(run.preempted_count for run in runs),
        warm_up_s=float(np.mean(warm_up_s)),
        measured_s=span_s,
        offered_per_s=offered,
        requests_per_s=rates["requests"],
        output_tokens_per_s=rates["outputs"],
        total_tokens_per_s=rates["tokens"],
        wait=distribution([_waits(run)[i] for run, i in zip(kept, good, strict=True) if run.started_s is not None]),
        ttft=distribution([(run.first_token_s - run.arrived_s)[i] for run, i in zip(kept, good, strict=True)]),
        tpot=distribution([_real(run.tpot_s[i]) for run, i in zip(kept, good, strict=True)]),
        e2e=distribution([run.e2e_s[i] for run, i in zip(kept, good, strict=True)]),
        within_frac=FrozenMap(within),
        goodput_per_s=offered * within["all"],
        queue_mean=_level(runs, windows, "arrived_s", "started_s"),
        running_mean=_level(runs, windows, "started_s", "finished_s"),
        present_mean=_level(runs, windows, "arrived_s", "finished_s") or 0.0,
    )


def with_gaps(measured: Measured, runs: Sequence[tuple[Floats, Floats]]) -> Measured:
    """`measured` with the distribution of single gaps between tokens, of which runs keep edges and counts."""
    kept = [(edges, counts) for edges, counts in runs if counts.sum() > 0]
    if not kept:
        return measured
    shares = [percent / 100.0 for percent in PERCENTS]  # src: percent
    each = np.array([[gap_level(edges, counts, share) for share in shares] for edges, counts in kept])
    means = [float((_middles(edges) @ counts) / counts.sum()) for edges, counts in kept]
    levels = [confident(float(each[:, index].mean()), each[:, index].tolist()) for index in range(len(shares))]
    highest = max(float(edges[np.flatnonzero(counts)[-1] + 1]) for edges, counts in kept)
    p50, p90, p95, p99 = levels
    spread = Distribution(
        mean=confident(float(np.mean(means)), means),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        highest=highest,
        count=int(sum(counts.sum() for _, counts in kept)),
    )
    return replace(measured, itl=spread)


def gap_level(edges: Floats, counts: Floats, share: float) -> float:
    """The value below which `share` of the counts lie, counts spread evenly between their edges.

    >>> gap_level(np.array([0.0, 1.0, 2.0]), np.array([3.0, 1.0]), 0.75)
    1.0
    """
    reached = np.concatenate(([0.0], np.cumsum(counts))) / counts.sum()
    return float(np.interp(share, reached, edges))


def _middles(edges: Floats) -> Floats:
    middles: Floats = (edges[1:] + edges[:-1]) / 2
    return middles


@dataclass(frozen=True, slots=True)
class _Window:
    """From the first to the last arrival that is measured."""

    start_s: float
    end_s: float

    @classmethod
    def of(cls, run: Served) -> _Window:
        return cls(float(run.arrived_s[0]), float(run.arrived_s[-1]))

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s


def _cut(run: Served, warm_up_frac: float | None) -> int:
    count = len(run.arrived_s)
    if warm_up_frac is not None:
        return min(int(count * warm_up_frac), count - 1)
    latencies = run.e2e_s[np.flatnonzero(run.answered)]
    return min(warm_up_count(latencies), int(_MOST_CUT_FRAC * count))


def _part(run: Served, first: int, users_count: int) -> Served:
    """Requests from the `first` on, without the last `users_count` (at most half of what is left)."""
    last = len(run.arrived_s) - min(users_count, (len(run.arrived_s) - first) // 2)
    names = ("arrived_s", "started_s", "first_token_s", "finished_s", "input_tokens", "output_tokens", "answered")
    parts: dict[str, Any] = {name: _slice(getattr(run, name), first, last) for name in names}
    return Served(**parts, preempted_count=run.preempted_count)


def _slice(values: Any, first: int, last: int) -> Any:
    return None if values is None else values[first:last]


def _waits(run: Served) -> Floats:
    return run.arrived_s * 0.0 if run.started_s is None else run.started_s - run.arrived_s


def _real(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _within(kept: Sequence[Served], good: Sequence[Any], limits: Limits) -> dict[str, float]:
    """Share of all measured requests that were answered within each limit, and within all."""
    whole = max(1, sum(len(run.arrived_s) for run in kept))
    counts = dict.fromkeys([*limits.given, "all"], 0)
    for run, index in zip(kept, good, strict=True):
        values = {"ttft_s": run.first_token_s - run.arrived_s, "tpot_s": run.tpot_s, "e2e_s": run.e2e_s}
        every = np.ones(len(index), dtype=bool)
        for name, limit in limits.given.items():
            kept_it = ~(values[name][index] > limit)  # a request of one token has no time of a further one
            counts[name] += int(kept_it.sum())
            every &= kept_it
        counts["all"] += int(every.sum())
    return {name: count / whole for name, count in counts.items()}


def _rates(runs: Sequence[Served], windows: Sequence[_Window]) -> dict[str, Sampled]:
    """Requests and tokens that end a second within the measured window, from batches of time.

    Runs that are so short that nothing ends within the window: over the whole run, without a confidence.
    """
    slices = 20 // len(runs) if len(runs) < 5 else 1  # src: schmeiser-1982
    found = {}
    for name in ("requests", "outputs", "tokens"):
        values = []
        for run, window in zip(runs, windows, strict=True):
            ended = run.answered & (run.finished_s > window.start_s) & (run.finished_s <= window.end_s)
            if ended.any():
                within = (window.start_s, window.end_s)
                sums = np.histogram(run.finished_s[ended], slices, within, weights=_weights(run, name)[ended])[0]
                values += (sums / (window.span_s / slices)).tolist()
        whole = np.mean([_whole_rate(run, name) for run in runs])
        found[name] = confident(float(np.mean(values)), values) if values else Sampled(best=float(whole))
    return found


def _whole_rate(run: Served, name: str) -> float:
    """Over the run from the first arrival to the last end."""
    good = np.flatnonzero(run.answered)
    span_s = float(run.finished_s[good].max() - run.arrived_s[0]) if len(good) else 0.0
    return float(_weights(run, name)[good].sum()) / span_s if span_s > 0 else 0.0


def _weights(run: Served, name: str) -> Any:
    if name == "requests":
        return np.ones(len(run.arrived_s))
    return run.output_tokens if name == "outputs" else run.input_tokens + run.output_tokens


def _level(runs: Sequence[Served], windows: Sequence[_Window], start: str, end: str) -> float | None:
    """Mean number of requests between two of their moments, within the windows; None where one is not told."""
    if any(getattr(run, name) is None for run in runs for name in (start, end)):
        return None
    area = span = 0.0
    for run, window in zip(runs, windows, strict=True):
        index = np.flatnonzero(run.answered)
        first = np.clip(getattr(run, start)[index], window.start_s, window.end_s)
        last = np.clip(getattr(run, end)[index], window.start_s, window.end_s)
        area += float((last - first).sum())
        span += window.span_s
    return area / span if span > 0 else 0.0


def steadiness(measured: Measured, users_count: int = 0) -> list[Note]:
    """Remarks on runs whose figures depend on how long they are; `users_count` of a closed loop (0: open)."""
    notes = []
    turns = measured.measured_count / max(1, users_count)
    if users_count and turns < _FEW_TURNS:
        text = f"{turns:.2g} measured requests a user: users that start together still move together"
        notes.append(Note("hint", f"{text}; raise simulate.requests"))
    if not users_count and measured.requests_per_s.best < _OVERLOAD_FRAC * measured.offered_per_s:
        text = (
            f"{measured.offered_per_s:.4g} requests/s arrive and {measured.requests_per_s.best:.4g} end: the queue"
            " grows, latencies are those of a run of this length and have no steady value"
        )
        notes.append(Note("out-of-range", text))
    for name, share in measured.within_frac.items():
        if name != "all" and share < _LIMIT_FRAC:
            text = f"only {100 * share:.1f} % of the requests keep the limit of {name.removesuffix('_s')}"
            notes.append(Note("out-of-range", f"{text}: it is asked of {100 * _LIMIT_FRAC:g} %"))
    if measured.e2e is not None and measured.e2e.p99.low is None:
        text = f"{measured.measured_count:,} measured requests are too few for the confidence of all percentiles"
        notes.append(Note("hint", f"{text}; raise simulate.requests or simulate.replications"))
    return notes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """The run in slices of equal length: `start_s` of each, and named levels (means over the slice)."""

    start_s: Floats
    slice_s: float
    levels: Mapping[str, Floats]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: a list a level."""
        return {
            "slice_s": self.slice_s,
            "start_s": self.start_s.tolist(),
            **{name: values.tolist() for name, values in self.levels.items()},
        }


def timeline(run: Served, slices_count: int, more: Mapping[str, Floats] | None = None) -> Timeline:
    """How many wait and run, and tokens and requests that end a second, in slices from first arrival to last end."""
    answered = np.flatnonzero(run.answered)
    start_s = float(run.arrived_s[0])
    end_s = float(run.finished_s[answered].max()) if len(answered) else float(run.arrived_s[-1])
    edges = np.linspace(start_s, max(end_s, start_s + 1e-9), slices_count + 1)  # src: rl-numerics
    width_s = float(edges[1] - edges[0])
    ends = run.finished_s[answered]
    levels = (
        {} if run.started_s is None else _split_levels(run.arrived_s, run.started_s, run.finished_s, answered, edges)
    )
    levels |= {
        "present": occupied(run.arrived_s[answered], ends, edges),
        "requests_per_s": np.histogram(ends, edges)[0] / width_s,
        "output_tokens_per_s": np.histogram(ends, edges, weights=run.output_tokens[answered])[0] / width_s,
    }
    return Timeline(start_s=edges[:-1] - start_s, slice_s=width_s, levels={**levels, **(more or {})})


def _split_levels(arrived: Floats, started: Floats, finished: Floats, index: Any, edges: Floats) -> dict[str, Floats]:
    queue = occupied(arrived[index], started[index], edges)
    return {"queue": queue, "running": occupied(started[index], finished[index], edges)}


def occupied(first_s: Floats, last_s: Floats, edges_s: Floats) -> Floats:
    """Mean number of intervals [first, last] that are under way in each slice between neighbouring edges.

    The area up to a time t is the sum of min(t, last) - min(t, first); slices are differences of it.

    >>> occupied(np.array([0.0, 1.0]), np.array([1.0, 4.0]), np.array([0.0, 2.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    areas = _area_before(last_s, edges_s) - _area_before(first_s, edges_s)
    return np.diff(areas) / np.diff(edges_s)


def _area_before(times_s: Floats, edges_s: Floats) -> Floats:
    """Sum over all times of min(edge, time), for each edge."""
    ordered = np.sort(times_s)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    below = np.searchsorted(ordered, edges_s, side="right")
    return sums[below] + (len(ordered) - below) * edges_s
