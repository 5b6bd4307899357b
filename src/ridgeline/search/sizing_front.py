"""What batching buys and costs: the front of tokens a device against tokens a user, and where they balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.core import model as formula
from ridgeline.search.pareto import front
from ridgeline.search.sizing_workers import Curve, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """One way to serve: output tokens a second for one user (1 / time per token) and of one device.

    `mode`: "aggregated" or "disaggregated"; `layout` in a few letters; `running_count` requests in service on one
    decoding engine; `ttft_s`: time to the first token without a queue.
    """

    mode: str
    system_id: str
    layout: str
    running_count: float
    user_tokens_per_s: float
    device_tokens_per_s: float
    ttft_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "mode": self.mode,
            "system": self.system_id,
            "layout": self.layout,
            "running": self.running_count,
            "tokens_per_s_per_user": self.user_tokens_per_s,
            "tokens_per_s_per_device": self.device_tokens_per_s,
            "ttft_s": self.ttft_s,
        }


def pareto_front(points: Sequence[FrontPoint]) -> tuple[FrontPoint, ...]:
    """Those that no other beats in both figures, the fastest for a user first.

    >>> base = dict(mode="aggregated", system_id="x", layout="tp1", running_count=1.0, ttft_s=0.1)
    >>> rates = ((90, 90), (50, 800), (40, 9))
    >>> made = [FrontPoint(**base, user_tokens_per_s=u, device_tokens_per_s=d) for u, d in rates]
    >>> [point.user_tokens_per_s for point in pareto_front(made)]
    [90, 50]
    """
    if not points:
        return ()
    users = np.array([point.user_tokens_per_s for point in points])
    devices = np.array([point.device_tokens_per_s for point in points])
    return tuple(points[index] for index in front(-users, -devices))


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The batch at which one percent more requests in service costs half a percent of latency and brings as much rate.

    Below it batching is nearly free (most of a step does not depend on the batch: weights, host); above it latency pays
    for most of the rate. `found` is false where the memory, the scheduler or a limit ends the batch before: then the
    figures are those of the largest.
    """

    system_id: str
    layout: str
    running_count: float
    user_tokens_per_s: float
    device_tokens_per_s: float
    found: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "system": self.system_id,
            "layout": self.layout,
            "running": self.running_count,
            "tokens_per_s_per_user": self.user_tokens_per_s,
            "tokens_per_s_per_device": self.device_tokens_per_s,
            "reached": self.found,
        }


@formula(id="batching-break-even", sources=("rl-derivation",), dimensional=False)
def break_even_count(counts: Floats, whole_s: Floats) -> float:
    """Requests in service at which the elasticity of their time, d ln(time) / d ln(count), passes one half (0: never).

    Rate = count / time (Little's law), so the elasticities of rate and time add up to one. Where time = fixed + each *
    count this is count = fixed / each. Between two counts the elasticity is taken to be linear in ln(count).

    >>> counts = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    >>> round(break_even_count(counts, 10.0 + 1.0 * counts), 1)
    10.0
    """
    if len(counts) < 2:
        return 0.0
    logs = np.log(counts)
    grown = np.diff(np.log(whole_s)) / np.diff(logs)
    middles = (logs[1:] + logs[:-1]) / 2
    above = np.flatnonzero(grown >= 0.5)
    if not above.size:
        return 0.0
    first = int(above[0])
    if first == 0:
        return float(np.exp(middles[0]))
    return float(np.exp(np.interp(0.5, grown[first - 1 : first + 1], middles[first - 1 : first + 1])))


def break_even(system_id: str, layout: str, devices_count: int, output_tokens: float, curve: Curve) -> BreakEven:
    """The break-even of one worker of `devices_count` devices, whose requests make `output_tokens` each."""
    count = break_even_count(curve.counts, curve.e2e_s)
    found = count > 0
    count = count if found else float(curve.counts[-1])
    tpot_s = float(np.interp(count, curve.counts, curve.tpot_s))
    return BreakEven(
        system_id=system_id,
        layout=layout,
        running_count=count,
        user_tokens_per_s=1.0 / tpot_s if tpot_s > 0 else 0.0,
        device_tokens_per_s=output_tokens * curve.rate_at(count) / devices_count,
        found=found,
    )
