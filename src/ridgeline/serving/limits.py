"""Latency limits: which are broken, the largest load that keeps them, and what stands in the way of none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ridgeline.serving.job import ServingJob
from ridgeline.serving.operating import Point
from ridgeline.specs import Load
from ridgeline.units import show

_PER_TOKEN = "time per output token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Largest:
    """The largest count that keeps the limits: its point, what binds ("" where the count limit does), or reasons why
    not even one request keeps them (the point is then that of one)."""

    point: Point
    binding: str = ""
    reasons: tuple[str, ...] = ()


def broken_limits(load: Load, ttft_p95_s: float, tpot_p95_s: float, e2e_p95_s: float) -> list[str]:
    """A sentence for each limit of `load` that the figures exceed."""
    pairs = (
        ("time to first token", load.ttft_p95_s, ttft_p95_s),
        (_PER_TOKEN, load.tpot_p95_s, tpot_p95_s),
        ("latency", load.e2e_p95_s, e2e_p95_s),
    )
    return [
        f"{name} {show(value, 'time')} is above the limit of {show(limit, 'time')}"
        for name, limit, value in pairs
        if limit is not None and value > limit
    ]


def largest_count(job: ServingJob, limit_count: float, at: Callable[[float], Point]) -> Largest:
    """The largest whole number of requests in service, up to `limit_count`, whose point keeps the limits of the load.

    Latency grows with the number in service, so bisection finds it. Without limits it is `limit_count` itself.
    """
    most = max(1.0, float(math.floor(limit_count)))
    point = at(most)
    first = _broken(job, point)
    if not first:
        return Largest(point=point)
    single = at(1.0)
    alone = _broken(job, single)
    if alone:
        reasons = tuple(f"{text}, at any batch: {_largest_part(single, text)}" for text in alone)
        return Largest(point=single, binding="latency limit", reasons=reasons)
    low, high, best = 1.0, most, single
    while high - low > 1.0:
        middle = float(math.floor((low + high) / 2))
        candidate = at(middle)
        if _broken(job, candidate):
            high = middle
        else:
            low, best = middle, candidate
    return Largest(point=best, binding="latency limit")


def _broken(job: ServingJob, point: Point) -> list[str]:
    return broken_limits(job.load, point.ttft_p95_s, point.tpot_s, point.e2e_s)


def _largest_part(point: Point, text: str) -> str:
    """What a single request spends most of the step on that the limit is about: the one of a token, or the longest."""
    times = [time for _, time in point.mix]
    worst = times[0] if text.startswith(_PER_TOKEN) else max(times, key=lambda time: time.time_s)
    parts = [part for part in worst.tree.parts if part.value > 0]
    largest = max(parts, key=lambda part: part.value)
    whole, most = show(worst.time_s, "time"), show(largest.value, "time")
    text = f"a step with one request takes {whole}, {most} of it {largest.name}"
    if worst.ops and largest.name not in ("host", "launches"):
        op = worst.ops[0]
        text += f" (longest: {op.name}, {show(op.time_s, 'time')}, bound by {op.bound})"
    return text
