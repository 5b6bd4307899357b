"""Of a serving load that no layout of a machine carries: which layout comes nearest, what it holds, and how many
devices would do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ridgeline.errors import OutOfMemory
from ridgeline.serving import ServingEstimate, ServingJob, estimate_max_load, estimate_serving

# Replicas are added by a tenth at a time until queues keep the limits, at most to about three times what saturated
# ones would need.
_GROWTH = 1.1  # src: ridgeline-layouts
_TRIES = 12  # src: rl-numerics


def shortfall(estimate: ServingEstimate) -> float:
    """How far the worst figure is beyond what is allowed: rate over capacity, or a latency over its limit.

    1 is just enough; the layout with the least shortfall is nearest to carrying the load.
    """
    load = estimate.load
    latencies = (
        (estimate.ttft_p95_s, load.ttft_p95_s),
        (estimate.tpot_p95_s, load.tpot_p95_s),
        (estimate.e2e_p95_s, load.e2e_p95_s),
    )
    over = [value / limit for value, limit in latencies if limit is not None]
    busy = estimate.utilisation_frac if load.rate_per_s is not None else 0.0
    return max([busy, *over])


def held_text(jobs: Iterable[ServingJob]) -> str:
    """What the best of `jobs` (one machine in different layouts) holds within the limits, and the size that would do.

    Empty where the load is neither a rate nor a number of requests at once.
    """
    held: list[tuple[float, ServingJob]] = []
    asked, unit = 0.0, ""
    for job in jobs:
        if job.load.static_batch or (job.load.rate_per_s is None and job.load.concurrency_count is None):
            return ""
        by_rate = job.load.rate_per_s is not None
        asked = job.load.rate_per_s or job.load.concurrency_count or 0.0
        unit = "requests/s" if by_rate else "requests at once"
        most = estimate_max_load(job)
        if most.feasible:
            held.append((most.requests_per_s.best if by_rate else most.running_count, job))
    if not held:
        return "no load, however small, keeps the limits on this machine"
    amount, job = max(held, key=lambda item: item[0])
    text = f"within the limits the machine holds at most {amount:.3g} {unit} (saturated, {job.plan.label()})"
    devices = _enough(job, math.ceil(asked / amount * job.plan.replica_count))
    return text + (f"; about {devices:,} devices would do" if devices else "")


def _enough(job: ServingJob, replicas: int) -> int:
    """Devices of the layout of `job` that carry its load, queues included; 0 where no number that was tried does."""
    for _ in range(_TRIES):
        try:
            grown = replace(job, plan=replace(job.plan, replica_count=replicas))
            if estimate_serving(grown).feasible:
                return grown.plan.devices_count
        except OutOfMemory:
            return 0
        replicas = max(replicas + 1, math.ceil(replicas * _GROWTH))
    return 0
