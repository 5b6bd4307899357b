"""Percentiles and means of simulated samples, with how sure they are, and where the start of a run is cut off.

Samples of a queue depend on their neighbours, so confidence comes from batches of neighbours (one run) or from whole
runs with other seeds (replications), never from the single samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.core import model
from ridgeline.specs.requests import Floats

PERCENTS = (50, 90, 95, 99)  # src: percentile-95
_MOST_BATCHES, _LEAST_BATCHES = 20, 5  # src: schmeiser-1982
_TAIL_SAMPLES = 5  # src: rl-definition
_MSER_GROUP = 5  # src: white-1997
_CENT = 100.0  # src: percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A figure estimated from samples: best value and its central 95 % confidence range.

    The range says how far another run of the same length would differ; it knows nothing of how right the times are that
    went into the run. `low` and `high` are None where there are too few samples to tell.
    """

    best: float
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Plain data."""
        return {"best": self.best, "low": self.low, "high": self.high}

    def contains(self, value: float) -> bool:
        """Whether `value` lies within the confidence range (False where there is none)."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Mean and percentiles (50, 90, 95, 99) of a quantity, in its SI unit."""

    mean: Sampled
    p50: Sampled
    p90: Sampled
    p95: Sampled
    p99: Sampled
    highest: float
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        named = {name: getattr(self, name).to_dict() for name in ("mean", "p50", "p90", "p95", "p99")}
        return {**named, "highest": self.highest, "count": self.count}


def distribution(runs: Sequence[Floats]) -> Distribution | None:
    """Mean and percentiles of `runs` (one array of samples a replication, in order); None without a sample."""
    kept = [run for run in runs if len(run)]
    if not kept:
        return None
    whole = np.concatenate(kept)
    shares = [percent / _CENT for percent in PERCENTS]
    levels = np.quantile(whole, shares)
    found = [_level(kept, share, float(best)) for share, best in zip(shares, levels, strict=True)]
    mean = _mean(kept, float(whole.mean()))
    p50, p90, p95, p99 = found
    return Distribution(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, highest=float(whole.max()), count=len(whole))


def _level(runs: Sequence[Floats], share: float, best: float) -> Sampled:
    """One percentile, from replications where there are enough, else from batches of the longest run."""
    if len(runs) >= _LEAST_BATCHES:
        return confident(best, [float(np.quantile(run, share)) for run in runs])
    per_batch = _TAIL_SAMPLES / min(share, 1.0 - share)
    batches = [batch for run in runs for batch in _batches(run, per_batch, len(runs))]
    return confident(best, [float(np.quantile(batch, share)) for batch in batches])


def _mean(runs: Sequence[Floats], best: float) -> Sampled:
    if len(runs) >= _LEAST_BATCHES:
        return confident(best, [float(run.mean()) for run in runs])
    batches = [batch for run in runs for batch in _batches(run, 2.0 * _TAIL_SAMPLES, len(runs))]
    return confident(best, [float(batch.mean()) for batch in batches])


def _batches(run: Floats, least_count: float, runs_count: int) -> list[Floats]:
    """Neighbouring samples in up to 20 batches (over all runs) of at least `least_count` each."""
    most = max(1, _MOST_BATCHES // runs_count)
    number = max(1, min(most, int(len(run) / least_count)))
    return list(np.array_split(run, number))


def confident(best: float, values: Sequence[float]) -> Sampled:
    """`best` with the 95 % range that independent estimates `values` of it stand for (fewer than five: no range).

    Sectioning: the spread is taken around `best` (of all samples), not around the mean of the batches, which for
    percentiles of short batches is biased.

    >>> range_ = confident(2.0, [1.0, 2.0, 3.0, 2.0, 2.0])
    >>> round(range_.high, 2)   # 2 + t(0.975, 4) sqrt(0.5 / 5), t = 2.776
    2.88
    """
    count = len(values)
    if count < _LEAST_BATCHES:
        return Sampled(best=best)
    spread = math.sqrt(math.fsum((value - best) ** 2 for value in values) / (count - 1) / count)
    reach = float(student_t_975(count - 1)) * spread
    return Sampled(best=best, low=best - reach, high=best + reach)


@model(id="student-t-quantile", sources=("abramowitz-stegun-26.7.5",), valid={"freedom_count": (4.0, math.inf)})
def student_t_975(freedom_count: Any) -> Any:
    """The 97.5 % point of Student's t with `freedom_count` degrees of freedom, as an expansion around the normal one.

    >>> round(student_t_975(4), 2), round(student_t_975(19), 3)   # tables: 2.776, 2.093
    (2.77, 2.093)
    """
    z = 1.959963984540054  # src: normal-quantiles
    first = (z**3 + z) / 4  # src: abramowitz-stegun-26.7.5
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96  # src: abramowitz-stegun-26.7.5
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384  # src: abramowitz-stegun-26.7.5
    return (
        z + first / freedom_count + second / freedom_count**2 + third / freedom_count**3
    )  # src: abramowitz-stegun-26.7.5


def warm_up_count(samples: Floats) -> int:
    """How many samples at the start of a run to leave out: the marginal standard error rule on groups of five.

    The cut minimises the standard error of the mean of what is left, over cuts in the first half: while samples at the
    start are still on their way to the level of the rest, leaving them out lowers it. 0 for very short runs.

    >>> climbing = np.concatenate([np.linspace(0.0, 1.0, 100), 1.0 + 0.01 * np.sin(np.arange(900.0))])
    >>> 85 <= warm_up_count(climbing) <= 115
    True
    """
    groups = len(samples) // _MSER_GROUP
    if groups < 2 * _LEAST_BATCHES:
        return 0
    means = samples[: groups * _MSER_GROUP].reshape(groups, _MSER_GROUP).mean(axis=1)
    left = np.arange(groups, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    errors = (squares - sums**2 / left) / left**2
    return int(np.argmin(errors[: groups // 2])) * _MSER_GROUP
