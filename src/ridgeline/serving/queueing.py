"""Waiting in closed form: a server whose rate depends on how many it serves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeline.core import model as formula

Array = NDArray[np.float64]
# The share of a distribution above its 95th percentile.
_TAIL_95 = 0.05  # src: percentile-95


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """Steady state of a queue with up to N in service and the rest waiting.

    `running_mean`, `running_p95`: in service (mean over time; 95th percentile, seen by one that is in service).
    `present_mean`: in service and waiting. `wait_mean_s`, `wait_p95_s`: before service starts. `wait_frac`: share of
    arrivals that wait at all. `idle_frac`: share of the time with nobody present. `utilisation_frac`: arrivals over the
    highest service rate.
    """

    running_mean: float
    running_p95: float
    present_mean: float
    wait_mean_s: float
    wait_p95_s: float
    wait_frac: float
    idle_frac: float
    utilisation_frac: float


@formula(
    id="load-dependent-queue",
    sources=("kelly-1979", "bonald-proutiere-2003"),
    dimensional=False,  # the array of rates is of one unit, which the rescaling test cannot see
)
def load_dependent_queue(rate_per_s: float, service_per_s: Array) -> QueueState:
    """Poisson arrivals at `rate_per_s` to a server that completes `service_per_s[n-1]` requests a second when n run.

    Birth-death chain: p(n) ~ product over i <= n of rate / service(i), with service(n) constant above N = the array's
    length, where requests wait in order. Up to N this is processor sharing with load-dependent speed, whose p(n) does
    not depend on the distribution of request sizes; the wait above N is that of exponential sizes (an approximation:
    too long for requests of one length). Needs rate < service(N).

    >>> q = load_dependent_queue(0.5, np.array([1.0]))          # M/M/1 at half load
    >>> round(q.present_mean, 6), round(q.wait_mean_s, 6), q.wait_frac
    (1.0, 1.0, 0.5)
    """
    top = float(service_per_s[-1])
    load = rate_per_s / top
    logs = np.concatenate(([0.0], np.cumsum(np.log(rate_per_s) - np.log(service_per_s))))
    weights = np.exp(logs - logs.max())
    beyond = float(weights[-1]) * load / (1.0 - load)
    whole = float(weights.sum()) + beyond
    chances = weights / whole
    counts = np.arange(len(weights), dtype=np.float64)
    limit = float(counts[-1])
    above = beyond / whole
    running = float((chances * counts).sum()) + limit * above
    queued = above / (1.0 - load)
    wait_frac = float(chances[-1]) + above
    return QueueState(
        running_mean=running,
        running_p95=_seen_percentile(chances, counts, above),
        present_mean=running + queued,
        wait_mean_s=queued / rate_per_s,
        wait_p95_s=exponential_tail_s(wait_frac, top - rate_per_s),
        wait_frac=wait_frac,
        idle_frac=float(chances[0]),
        utilisation_frac=load,
    )


def _seen_percentile(chances: Array, counts: Array, above: float) -> float:
    """The 95th percentile of how many run, weighted by how many see it."""
    seen = chances * counts
    seen[-1] += above * counts[-1]
    if seen.sum() <= 0:
        return 1.0
    return float(counts[np.searchsorted(np.cumsum(seen) / seen.sum(), 1.0 - _TAIL_95)])


def exponential_tail_s(chance: float, decay_per_s: float) -> float:
    """The 95th percentile of a wait that happens with `chance` and then is exponential with rate `decay_per_s`.

    >>> exponential_tail_s(0.04, 1.0)
    0.0
    """
    if chance <= _TAIL_95 or decay_per_s <= 0:
        return 0.0
    return math.log(chance / _TAIL_95) / decay_per_s
