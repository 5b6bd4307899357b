"""The serving estimate in closed form: static batches, closed and open loops, maximum load, encoders."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ridgeline.core import Interval, Note, merge
from ridgeline.errors import OutOfMemory
from ridgeline.serving.answer import ServingEstimate
from ridgeline.serving.capacity import Capacity, capacity, sequence_cache_bytes
from ridgeline.serving.job import ServingJob
from ridgeline.serving.limits import broken_limits, largest_count
from ridgeline.serving.operating import Point, batch_point, running_point, static_point
from ridgeline.serving.queueing import QueueState, load_dependent_queue
from ridgeline.units import show

# Points at which rates are computed between one request and the largest number; between them time is linear.
_GRID_COUNT = 7  # src: rl-numerics
_DOUBTFUL_LOAD = 0.85  # src: rl-derivation


def estimate_serving(job: ServingJob) -> ServingEstimate:
    """Speed, latency, memory and limits of `job`.

    Chooses by the load: a static batch, a closed loop of clients, an open loop of Poisson arrivals, or the maximum
    load; with latency limits the maximum load is the largest that keeps them. Encoders run in batches.
    Raises `OutOfMemory` where not even one request fits, with what is missing.
    """
    room = capacity(job)
    require_room(job, room)
    if not job.generates:
        return _encoder(job, room)
    if job.load.static_batch:
        return _static(job, room)
    if job.load.rate_per_s is not None:
        return _open_loop(job, room)
    if job.load.concurrency_count is not None:
        return _closed_loop(job, room)
    return _maximum(job, room)


def estimate_static_batch(job: ServingJob, batch_count: float) -> ServingEstimate:
    """A batch of `batch_count` a replica that starts and ends together (1: a single request)."""
    count = batch_count * job.plan.replica_count
    return estimate_serving(job.with_load(static_batch=True, concurrency_count=count, rate_per_s=None))


def estimate_max_load(job: ServingJob) -> ServingEstimate:
    """An endless queue of requests: what the scheduler and the pool let run."""
    return estimate_serving(job.with_load(static_batch=False, concurrency_count=None, rate_per_s=None))


def estimate_encoder(job: ServingJob, batch_count: float) -> ServingEstimate:
    """Batches of `batch_count` inputs without generation, one after another."""
    count = batch_count * job.plan.replica_count
    return estimate_serving(job.with_load(output_tokens=0.0, concurrency_count=count, rate_per_s=None))


def require_room(job: ServingJob, room: Capacity) -> None:
    """Raise `OutOfMemory` where the weights or one request do not fit."""
    if room.fits:
        return
    weights = room.memory.value_of("weights")
    where = f"{job.model.id} {job.plan.label()} on {job.system.chip.id}"
    if room.pool_bytes < 0:
        short, whole = show(-room.pool_bytes, "bytes"), show(room.available_bytes, "bytes")
        raise OutOfMemory(
            f"{where}: weights ({show(weights, 'bytes')}) and workspace do not fit the {whole} of one device: {short}"
            " are missing; use more devices or narrower weights"
        )
    raise OutOfMemory(
        f"{where}: a key-value pool of {show(room.pool_bytes, 'bytes')} is too small for one request of"
        f" {job.load.total_tokens:,.0f} tokens ({show(room.request_bytes, 'bytes')})"
    )


def _static(job: ServingJob, room: Capacity) -> ServingEstimate:
    count = (job.load.concurrency_count or 1.0) / job.plan.replica_count
    point = static_point(job, count)
    reasons = []
    fitting = job.plan.attention_data_count * room.pool_bytes / max(1.0, room.cache_bytes_per_sequence)
    if room.cache_bytes_per_sequence > 0 and count > fitting:
        reasons.append(f"a batch of {count:g} needs more cache than the pool holds ({math.floor(fitting)} sequences)")
    return _answer(job, room, point, "static batch", reasons)


def _encoder(job: ServingJob, room: Capacity) -> ServingEstimate:
    load = job.load
    if load.rate_per_s is not None:
        return _encoder_rate(job, room)
    if load.concurrency_count is not None:
        count = load.concurrency_count / job.plan.replica_count
        return _answer(job, room, batch_point(job, count), "encoder", [])
    limit = min(room.running_count, 1024.0)  # src: ridgeline-layouts
    best = largest_count(job, limit, lambda n: batch_point(job, n))
    return _answer(job, room, best.point, "encoder", list(best.reasons), best.binding)


def _encoder_rate(job: ServingJob, room: Capacity) -> ServingEstimate:
    """Dynamic batching at a given rate: while a batch runs, the next one gathers, so batch = rate * its own time."""
    rate = (job.load.rate_per_s or 0.0) / job.plan.replica_count
    count = 1.0
    limit = min(room.running_count, 1024.0)  # src: ridgeline-layouts
    point = batch_point(job, 1.0)
    while count < limit and point.requests_per_s < rate:
        count = min(limit, 2.0 * count)
        point = batch_point(job, count)
    low, high = count / 2.0, count
    if point.requests_per_s >= rate and count > 1.0:
        for _ in range(12):  # src: rl-numerics
            middle = (low + high) / 2
            if batch_point(job, middle).requests_per_s >= rate:
                high = middle
            else:
                low = middle
        point = batch_point(job, max(1.0, high))
    busy = min(1.0, rate / point.requests_per_s)
    waiting_s = busy * point.step_s / 2
    waited = replace(
        point,
        ttft_s=point.ttft_s + waiting_s,
        ttft_p95_s=point.ttft_s + busy * 0.95 * point.step_s,  # src: uniform-p95
        e2e_s=point.e2e_s + waiting_s,
    )
    reasons = []
    if point.requests_per_s < rate:
        reasons.append(_overload(job, point.requests_per_s, room.binding))
    estimate = _answer(job, room, waited, "encoder", reasons, served_per_s=min(rate, point.requests_per_s))
    return replace(estimate, utilisation_frac=rate / point.requests_per_s)


def _overload(job: ServingJob, capacity_per_s: float, binding: str) -> str:
    count = job.plan.replica_count
    replicas = f"{count} replica{'' if count == 1 else 's'}"
    return (
        f"rate {job.load.rate_per_s:g}/s is above the capacity of {capacity_per_s * count:.3g}/s"
        f" (bound by {binding}, {replicas})"
    )


def _maximum(job: ServingJob, room: Capacity) -> ServingEstimate:
    limit = room.running_count
    if not math.isfinite(limit):
        limit = 1024.0  # src: ridgeline-layouts
    best = largest_count(job, limit, lambda n: running_point(job, n))
    binding = best.binding or room.binding
    return _answer(job, room, best.point, "maximum load", list(best.reasons), binding)


def _closed_loop(job: ServingJob, room: Capacity) -> ServingEstimate:
    """So many clients: those above the engine's room wait for others to end (Little's law)."""
    clients = max(1.0, (job.load.concurrency_count or 1.0) / job.plan.replica_count)
    count = min(clients, room.running_count)
    point = running_point(job, count)
    waiting_s = (clients - count) / point.requests_per_s
    point = replace(
        point,
        ttft_s=point.ttft_s + waiting_s,
        ttft_p95_s=point.ttft_p95_s + waiting_s,
        e2e_s=point.e2e_s + waiting_s,
    )
    return _answer(job, room, point, "closed loop", [])


def _open_loop(job: ServingJob, room: Capacity) -> ServingEstimate:
    rate = (job.load.rate_per_s or 0.0) / job.plan.replica_count
    limit = room.running_count if math.isfinite(room.running_count) else 1024.0  # src: ridgeline-layouts
    top = running_point(job, limit)
    if rate >= top.requests_per_s:
        reasons = [_overload(job, top.requests_per_s, room.binding)]
        estimate = _answer(job, room, top, "open loop", reasons)
        return replace(estimate, utilisation_frac=rate / top.requests_per_s)
    grid = [running_point(job, n) for n in _grid(limit)]
    counts = np.arange(1.0, math.floor(limit) + 1.0)
    whole_s = np.interp(counts, [p.running_count for p in grid], [p.e2e_s for p in grid])
    rates = np.maximum.accumulate(counts / whole_s)
    state = load_dependent_queue(rate, rates)
    return _queued(job, room, rate, state)


def _grid(limit: float) -> list[float]:
    """Counts from 1 to `limit`, denser at the low end."""
    if limit <= 1.0:
        return [1.0]
    steps = min(_GRID_COUNT, math.ceil(limit))
    return [limit ** (i / (steps - 1)) for i in range(steps)]


def _queued(job: ServingJob, room: Capacity, rate: float, state: QueueState) -> ServingEstimate:
    """Latencies from the state of the queue: steps at the mean and at the 95th percentile of what runs, and the wait
    for a place. Deviations of the parts at p95 add as squares."""
    usual = running_point(job, max(1.0, state.running_mean))
    busy = running_point(job, max(1.0, state.running_p95))
    ttft_s = state.wait_mean_s + usual.ttft_s
    spread = (state.wait_p95_s - state.wait_mean_s, busy.ttft_p95_s - usual.ttft_s)
    further = max(0.0, job.load.output_tokens - 1.0)
    whole_s = state.present_mean / rate
    tpot_s = max(0.0, whole_s - ttft_s) / further if further > 0 else 0.0
    tail_s = math.sqrt(sum(max(0.0, part) ** 2 for part in spread))
    point = replace(
        usual,
        ttft_s=min(ttft_s, whole_s),
        ttft_p95_s=ttft_s + tail_s,
        tpot_s=tpot_s,
        e2e_s=whole_s,
    )
    estimate = _answer(job, room, point, "open loop", [], served_per_s=rate)
    tpot_p95_s = max(tpot_s, busy.tpot_s)
    estimate = replace(
        estimate,
        running_count=state.running_mean * job.plan.replica_count,
        utilisation_frac=state.utilisation_frac,
        device_busy_frac=(1.0 - state.idle_frac) * usual.device_busy_frac,
        tpot_p95_s=tpot_p95_s,
        e2e_p95_s=max(point.ttft_p95_s + further * tpot_s, ttft_s + further * tpot_p95_s),
        notes=merge(estimate.notes, _queue_notes(state)),
    )
    reasons = broken_limits(job.load, estimate.ttft_p95_s, estimate.tpot_p95_s, estimate.e2e_p95_s)
    return replace(estimate, feasible=not reasons, reasons=tuple(reasons))


def _queue_notes(state: QueueState) -> list[Note]:
    text = (
        "latency percentiles come from a load-dependent queue (processor sharing up to the running limit) with Poisson"
        " arrivals, one request length and independent parts; an event simulation is more exact"
    )
    notes = [Note("not-modelled", text)]
    if state.utilisation_frac > _DOUBTFUL_LOAD:
        notes.append(Note("hint", "the load is close to capacity: waits are sensitive to small errors of the capacity"))
    return notes


def _answer(
    job: ServingJob,
    room: Capacity,
    point: Point,
    mode: str,
    reasons: list[str],
    binding: str = "",
    served_per_s: float | None = None,
) -> ServingEstimate:
    replicas, load = job.plan.replica_count, job.load
    sigma = point.sigma
    rate = point.requests_per_s if served_per_s is None else served_per_s
    at_work = min(1.0, rate / point.requests_per_s)
    # An offered rate that is met is exact; a capacity is as uncertain as the steps.
    requests = Interval.exact(rate) if served_per_s is not None else Interval.from_sigma(rate, sigma)
    requests = requests.scaled(float(replicas))
    made = load.output_tokens if job.generates else 0.0
    each = point.running_count * (max(1.0, made) / point.e2e_s)
    tree, tiny = point.tree, 1e-300  # src: rl-numerics
    name = "time per output token" if made else "time per request"
    per_token = tree.scaled(1.0 / max(tiny, each * point.step_s), name)
    cached = sequence_cache_bytes(job, job.prompt_tokens + made / 2) if made else 0.0
    pool = room.pool_bytes * job.plan.attention_data_count
    broken = broken_limits(load, point.ttft_p95_s, point.tpot_s, point.e2e_s)
    reasons = [*reasons, *(text for text in broken if not any(text in known for known in reasons))]
    return ServingEstimate(
        mode=mode,
        plan=job.plan,
        load=load,
        feasible=not reasons,
        reasons=tuple(reasons),
        ttft_s=Interval.from_sigma(point.ttft_s, sigma),
        ttft_p95_s=point.ttft_p95_s,
        tpot_s=Interval.from_sigma(point.tpot_s, sigma),
        tpot_p95_s=point.tpot_s,
        e2e_s=Interval.from_sigma(point.e2e_s, sigma),
        e2e_p95_s=point.e2e_s + point.ttft_p95_s - point.ttft_s,
        output_tokens_per_s=requests.scaled(made),
        total_tokens_per_s=requests.scaled(load.input_tokens + made),
        requests_per_s=requests,
        running_count=point.running_count * replicas,
        max_running_count=room.running_count * replicas,
        binding=binding or room.binding,
        cache_tokens_count=room.cache_tokens_count * replicas,
        cache_used_frac=min(1.0, point.running_count * cached / pool) if pool > 0 else 0.0,
        utilisation_frac=1.0,
        time=per_token,
        step=tree,
        memory=room.memory,
        memory_available_bytes=room.available_bytes,
        fits=room.fits,
        device_busy_frac=at_work * point.device_busy_frac,
        flop_per_s_per_device=at_work * point.flop_per_s,
        memory_bytes_per_s_per_device=at_work * point.moved_bytes_per_s,
        median_gap_s=point.median_gap_s,
        ops=point.mix[0][1].ops,
        notes=_notes(job),
        uses=tuple(dict.fromkeys((*tree.facts(), *room.memory.facts()))),
        models=tuple(dict.fromkeys((*tree.models(), *room.memory.models()))),
    )


def _notes(job: ServingJob) -> tuple[Note, ...]:
    engine = job.engine
    notes = []
    if engine.assumed:
        named = ", ".join(engine.assumed)
        facts = tuple(engine.fact_id(name) for name in engine.assumed)
        notes.append(Note("assumed", f"engine {engine.id} {engine.version}: {named}", facts))
    return tuple(notes)
