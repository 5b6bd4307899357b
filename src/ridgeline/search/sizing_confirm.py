"""Finalists of a sizing put to the event simulation: the same engines and load, request by request."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ridgeline.errors import RidgelineError
from ridgeline.network.topology import tiers
from ridgeline.search.serving import ServingRequest
from ridgeline.search.sizing_result import Simulated, Sized
from ridgeline.search.terms import Machine
from ridgeline.serving import ServingJob
from ridgeline.simulation.cluster import Trace
from ridgeline.simulation.engine import prepare
from ridgeline.simulation.options import Pool, SimulationOptions, Users
from ridgeline.simulation.traffic import FixedLengths, OpenLoop
from ridgeline.specs import Load, RankGroup
from ridgeline.specs.requests import Floats, Requests

# Requests of a run: so many, and so many times those under way, at least; never more than the last.
_LEAST_COUNT, _TIMES_COUNT, _MOST_COUNT = 600, 4, 2500  # src: rl-numerics
# Of equal engines that do everything so many stand for all: a router with more to choose from waits less.
_ENGINES_COUNT = 4  # src: rl-numerics
_WARM_FRAC = 1 / 3  # src: rl-numerics
_SEED = 20261  # src: rl-numerics
_P95 = 0.95  # src: percentile-95
# Without a load two pools are simulated at so much of the most that they carry: Poisson arrivals at all of it never
# settle, and users that start together stay in step with each other.
_LOAD_FRAC = 0.95  # src: rl-numerics
# Times that engines are added where a simulated percentile breaks its limit.
_GROWN = 3  # src: rl-numerics

Grow = Callable[[str], Sized | None]
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """The part of a system that is simulated: `share` of its engines of either kind, and of its load."""

    counts: tuple[int, ...]
    share: float


def cell_of(counts: tuple[int, ...]) -> _Cell:
    """The engines that stand for all: of one kind at most four; of two kinds the fewest in the same ratio, but not
    fewer than four of either where there are more (a single engine makes prompts wait longer than several do).

    >>> cell_of((12, 10)).counts, cell_of((32,)).counts, cell_of((3, 5)).counts, cell_of((40, 80)).counts
    ((6, 5), (4,), (3, 5), (4, 8))
    """
    if len(counts) == 1:
        most = min(counts[0], _ENGINES_COUNT)
        return _Cell(counts=(most,), share=most / counts[0])
    common = math.gcd(*counts)
    divisor = max(d for d in range(1, common + 1) if common % d == 0 and (d == 1 or min(counts) >= _ENGINES_COUNT * d))
    return _Cell(counts=tuple(count // divisor for count in counts), share=1.0 / divisor)


def confirmed(option: Sized, request: ServingRequest, machine: Machine, grow: Grow) -> Sized:
    """`option` with what its simulation says; with a load given, engines are added while a limit breaks in it.

    `grow` gives the option with one engine more for the figure that broke ("ttft_s", "tpot_s", "e2e_s"), None where
    there is none. What cannot be simulated comes back as it was.
    """
    found = _with_simulation(option, request, machine)
    free = request.load.rate_per_s is None and request.load.concurrency_count is None
    for _ in range(0 if free else _GROWN):
        if found.simulated is None or not found.simulated.broken:
            return found
        more = grow(found.simulated.broken[0])
        if more is None:
            return found
        found = _with_simulation(more, request, machine)
    return found


def first_to_hold(
    options: Sequence[tuple[Sized, Grow, Kept]], request: ServingRequest, machine: Machine
) -> tuple[Sized, Kept]:
    """The first of `options` (best first, each with how it grows and what belongs to it) whose simulation keeps all
    limits, grown where it must; where none does, the first."""
    first: tuple[Sized, Kept] | None = None
    for option, grow, own in options:
        found = confirmed(option, request, machine, grow)
        if found.simulated is None or not found.simulated.broken:
            return found, own
        first = first or (found, own)
    if first is None:
        raise ValueError("no options")
    return first


def _with_simulation(option: Sized, request: ServingRequest, machine: Machine) -> Sized:
    try:
        return replace(option, simulated=simulated(option, request, machine))
    except RidgelineError:
        return option


def simulated(option: Sized, request: ServingRequest, machine: Machine) -> Simulated | None:
    """A run of a cell of `option` under its load (Poisson, or users that send again at once).

    None for encoders and engines without continuous batching, and where more requests are under way than a short run
    can hold. Engines without a load get users, pools Poisson arrivals at 95 % of the most that they carry.
    """
    load = request.load
    engine = machine.engine
    if engine is None or engine.batching != "continuous":
        return None
    if load.output_tokens <= 0 or request.model.main.role != "decoder":
        return None
    cell = cell_of(tuple(pool.plan.replica_count for pool in option.pools))
    pools = tuple(
        Pool(job=_job(option, index, request, machine), replicas_count=count, role=pool.role)  # type: ignore[arg-type]
        for index, (pool, count) in enumerate(zip(option.pools, cell.counts, strict=True))
    )
    free = load.rate_per_s is None and load.concurrency_count is None
    load_frac = _LOAD_FRAC if free and len(pools) > 1 else 1.0
    rate = option.requests_per_s.best * cell.share * load_frac
    inside = rate * option.latencies.e2e_p95_s
    lengths = FixedLengths(input_tokens=round(load.input_tokens), output_tokens=round(load.output_tokens))
    generator = np.random.default_rng(_SEED)
    if load.rate_per_s is not None or load_frac < 1.0:
        count = min(_MOST_COUNT, max(_LEAST_COUNT, math.ceil(_TIMES_COUNT * inside)))
        if inside > count / 2:
            return None
        # So few Poisson gaps scatter by a few percent: they are stretched to the rate that was asked.
        requests = OpenLoop(rate_per_s=rate, count=count, lengths=lengths).draw(generator).rescaled(rate)
        trace = prepare(pools, requests, _options(option)).run()
        told = _told(trace, cell.share, load, round(count * _WARM_FRAC), count)
        return replace(told, load_frac=load_frac)
    users = max(1, round(_users(option, load) * cell.share))
    count = max(_LEAST_COUNT, math.ceil(2.5 * users)) if users > 1 else _LEAST_COUNT // 12  # src: rl-numerics
    if count > _MOST_COUNT:
        return None
    inputs, outputs = lengths.draw(count, generator)
    # Users come one after another over the time of a request, so that their requests end so.
    starts_s = generator.uniform(0.0, option.latencies.e2e_p95_s, users)
    thought_s = np.zeros(count)
    thought_s[:users] = starts_s
    requests = Requests(arrived_s=np.zeros(count), input_tokens=inputs, output_tokens=outputs)
    trace = prepare(pools, requests, _options(option), Users(users_count=users, thought_s=thought_s)).run()
    return _told(trace, cell.share, load, min(users, count // 2), count - min(users, count // 2) // 2)


def _users(option: Sized, load: Load) -> float:
    """Requests under way at once: those given, else those in service by the closed form (prefill pools included)."""
    if load.concurrency_count is not None:
        return load.concurrency_count
    return math.fsum(pool.running_count * pool.plan.replica_count for pool in option.pools)


def _job(option: Sized, index: int, request: ServingRequest, machine: Machine) -> ServingJob:
    pool = option.pools[index]
    plan = replace(pool.plan, max_batch_count=pool.batch_limit_count, max_batch_tokens=pool.batch_tokens_count)
    if machine.engine is None:
        raise RidgelineError(f"engine for {machine.system.id}")
    return ServingJob(
        model=request.model,
        plan=plan,
        system=machine.system,
        calibration=machine.calibration,
        engine=machine.engine,
        load=request.load,
    )


def _options(option: Sized) -> SimulationOptions:
    if len(option.pools) == 1:
        return SimulationOptions(prefix_cache=False)
    tier = tiers(RankGroup(size_count=max(2, option.devices_count)), option.system)[-1]
    return SimulationOptions(
        prefix_cache=False,
        link_bytes_per_s=tier.pair_bytes_per_s,
        link_latency_s=tier.level.latency_s * tier.hops_count,
    )


def _told(trace: Trace, share: float, load: Load, first: int, last: int) -> Simulated:
    """Percentiles of the requests from the `first` to the `last` in order of arrival, and the rate meanwhile."""
    order = np.argsort(trace.arrived_s, kind="stable")
    kept = order[first:last][trace.answered[order[first:last]] > 0]
    ttft_s = trace.first_token_s[kept] - trace.arrived_s[kept]
    whole_s = trace.finished_s[kept] - trace.arrived_s[kept]
    further = np.maximum(1, trace.output_tokens[kept] - 1)
    tpot_s = (whole_s - ttft_s) / further
    levels = {"ttft_s": _level(ttft_s), "tpot_s": _level(tpot_s), "e2e_s": _level(whole_s)}
    limits = {"ttft_s": load.ttft_p95_s, "tpot_s": load.tpot_p95_s, "e2e_s": load.e2e_p95_s}
    broken = [name for name, limit in limits.items() if limit is not None and levels[name] > limit]
    return Simulated(
        requests_count=len(trace.arrived_s),
        share_frac=share,
        ttft_p95_s=levels["ttft_s"],
        tpot_p95_s=levels["tpot_s"],
        e2e_p95_s=levels["e2e_s"],
        requests_per_s=_rate(np.sort(trace.finished_s[trace.answered > 0])) / share,
        broken=tuple(broken),
    )


def _level(values: Floats) -> float:
    return float(np.quantile(values, _P95)) if len(values) else math.inf


def _rate(ends_s: Floats) -> float:
    """Ends a second in the middle half of a run."""
    low, high = len(ends_s) // 4, (3 * len(ends_s)) // 4  # src: rl-numerics
    span_s = float(ends_s[high] - ends_s[low]) if high > low else 0.0
    return (high - low) / span_s if span_s > 0 else 0.0
