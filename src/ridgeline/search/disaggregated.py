"""Disaggregated serving: engines that only read prompts hand the cache over a link to engines that only decode.

A prompt waits for a place in the pool of prefill engines, is read in one step (with others, where they share it), its
keys and values move to an engine of the decode pool, and every further token is a step of that engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ridgeline.core import model as formula
from ridgeline.network.topology import tiers
from ridgeline.search.sizing_workers import Floats, Worker, growing
from ridgeline.serving import capacity, step_time
from ridgeline.serving.capacity import sequence_cache_bytes
from ridgeline.serving.operating import Point, decode_step, static_point
from ridgeline.serving.queueing import load_dependent_queue
from ridgeline.specs import Load, RankGroup, System

# Prompts that a prefill engine reads in one step: more than a few change nothing where prompts are long.
_PROMPTS = (1, 2, 4)  # src: ridgeline-layouts
# Shares of the pool's capacity at which waits are tabled.
_SHARES_COUNT = 199  # src: rl-numerics
# Busiest a prefill pool is planned where no limit on the time to first token says how long prompts may wait.
_BUSIEST_FRAC = 0.95  # src: rl-derivation
_TAIL_95 = 0.05  # src: percentile-95
_TRIES = 12  # src: rl-numerics
# Larger pools wait no longer than one of so many engines; of their ratios so many are tried, and so many near the even.
_TABLED_COUNT, _SPLITS_COUNT, _NEAR_COUNT = 512, 128, 16  # src: rl-numerics
MOST_SPLITS = _SPLITS_COUNT + 2 * _NEAR_COUNT + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """An engine that reads `prompts_count` prompts a step and nothing else.

    `cache_bytes`: keys and values of one prompt; `shard_bytes`: what one device holds of them.
    """

    worker: Worker
    prompts_count: int
    point: Point
    cache_bytes: float
    shard_bytes: float

    @property
    def step_s(self) -> float:
        """From the start of a prompt to its first token."""
        return self.point.ttft_s

    @property
    def rate_per_s(self) -> float:
        """Most prompts a second of one engine."""
        return self.point.requests_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """An engine that only decodes: its time per token with `counts` requests in service, up to what the pool, the
    scheduler and the limit on it allow (`most_count`). `shard_bytes`: of a prompt's cache on one device."""

    worker: Worker
    counts: Floats
    tpot_s: Floats
    most_count: float
    shard_bytes: float

    def tpot_at(self, count: float) -> float:
        """Time per token with `count` in service."""
        return float(np.interp(count, self.counts, self.tpot_s))

    def count_at(self, tpot_s: float) -> float:
        """Most requests (whole) whose time per token is at most `tpot_s`; 0 where none is."""
        rising = np.maximum.accumulate(self.tpot_s)
        if rising[0] > tpot_s:
            return 0.0
        return min(self.most_count, float(math.floor(np.interp(tpot_s, rising, self.counts))))

    def rate_at(self, count: float) -> float:
        """Requests a second that end with `count` in service."""
        return count / (further_tokens(self.worker.job.load) * self.tpot_at(count))


def further_tokens(load: Load) -> float:
    """Tokens of a request that the decode pool makes: all but the first."""
    return max(0.0, load.output_tokens - 1.0)


def prefill_engines(worker: Worker) -> Iterator[Prefill]:
    """`worker` as a prefill engine, with one prompt and with a few in a step where its memory holds them."""
    job = worker.job
    reading = job.with_load(output_tokens=1.0)
    cache_bytes, shard_bytes = _cache_bytes(worker), _shard_bytes(worker)
    for count in _PROMPTS:
        tokens = math.ceil(count * job.prompt_tokens)
        sized = reading
        if count > 1 and tokens > job.max_batch_tokens:
            if job.plan.max_batch_tokens is not None:
                break
            sized = reading.with_plan(max_batch_tokens=tokens)
        room = capacity(sized)
        if not room.fits or count * job.plan.attention_data_count > max(1.0, room.running_count):
            break
        prompts = count * job.plan.attention_data_count * job.plan.pipeline_count
        yield Prefill(
            worker=Worker(job=sized, room=room),
            prompts_count=prompts,
            point=static_point(sized, float(prompts)),
            cache_bytes=cache_bytes,
            shard_bytes=shard_bytes,
        )


def decode_engine(worker: Worker) -> Decode | None:
    """`worker` as a decode engine; None where one request alone breaks the limit on the time per token."""
    load = worker.job.load
    counts, times = [], []
    for count in growing(_places(worker)):
        counts.append(count)
        times.append(step_time(worker.job, decode_step(worker.job, count)).time_s)
        if load.tpot_p95_s is not None and times[-1] > load.tpot_p95_s:
            break
    engine = Decode(
        worker=worker,
        counts=np.array(counts),
        tpot_s=np.array(times),
        most_count=counts[-1],
        shard_bytes=_shard_bytes(worker),
    )
    if load.tpot_p95_s is None:
        return engine
    most = engine.count_at(load.tpot_p95_s)
    return replace(engine, most_count=most) if most >= 1 else None


def _places(worker: Worker) -> float:
    """Requests at once on a decode engine: its scheduler's limit and its pool at their full length."""
    job, room = worker.job, worker.room
    limit = job.max_batch_count * job.schedulers_count
    if room.cache_bytes_per_sequence > 0:
        each = sequence_cache_bytes(job, job.prompt_tokens + job.load.beams_count * job.load.output_tokens)
        limit = min(limit, job.plan.attention_data_count * math.floor(room.pool_bytes / each))
    return max(1.0, limit if math.isfinite(limit) else 1024.0)  # src: ridgeline-layouts


def decode_point(engine: Decode, count: float) -> Point:
    """The engine with `count` requests in service: one token each every step."""
    job = engine.worker.job
    time = step_time(job, decode_step(job, count))
    whole_s = further_tokens(job.load) * time.time_s
    return Point(
        running_count=count,
        requests_per_s=count / whole_s,
        ttft_s=0.0,
        ttft_p95_s=0.0,
        tpot_s=time.time_s,
        e2e_s=whole_s,
        step_s=time.time_s,
        mix=((1.0, time),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One request's keys and values on their way: bytes in all, time, the level of the network that carries them."""

    whole_bytes: float
    time_s: float
    level: str


@formula(id="cache-transfer", sources=("rl-derivation",))
def cache_transfer_s(
    sent_bytes_per_device: float, received_bytes_per_device: float, oneway_bytes_per_s: float, latency_s: float
) -> float:
    """Time to move a request's cache between two engines whose devices all send or receive their shards at once.

    latency + max(sent, received) / bandwidth of a device in one direction; nothing of it is hidden behind the prompt.

    >>> cache_transfer_s(1e9, 0.5e9, 50e9, 3e-6)
    0.020003
    """
    return latency_s + max(sent_bytes_per_device, received_bytes_per_device) / oneway_bytes_per_s


def transfer(prefill: Prefill, decode: Decode, system: System, devices_count: int) -> Transfer:
    """How a prompt's cache goes from one engine to the other, over the outermost level that `devices_count` devices
    span (engines of one node use the links inside it)."""
    tier = tiers(RankGroup(size_count=max(2, devices_count)), system)[-1]
    latency_s = tier.level.latency_s * tier.hops_count
    return Transfer(
        whole_bytes=prefill.cache_bytes,
        time_s=cache_transfer_s(prefill.shard_bytes, decode.shard_bytes, tier.pair_bytes_per_s, latency_s),
        level=tier.level.name,
    )


def _shard_bytes(worker: Worker) -> float:
    """Cache of one prompt on one device of `worker`."""
    return sequence_cache_bytes(worker.job, worker.job.prompt_tokens)


def _cache_bytes(worker: Worker) -> float:
    """Cache of one prompt, once."""
    whole = worker.job.with_plan(tensor_count=1, pipeline_count=1, expert_count=1, attention_data_count=1)
    return sequence_cache_bytes(whole, whole.prompt_tokens)


@lru_cache(maxsize=4096)
def _wait_table(servers_count: int) -> tuple[Floats, Floats, Floats]:
    """Shares of capacity, and the mean and 95th percentile of the wait in service times (see `pool_wait`)."""
    shares = np.linspace(0.0, 1.0, _SHARES_COUNT + 2)[1:-1]
    offered = servers_count * shares
    blocked = np.ones_like(offered)
    for server in range(1, servers_count + 1):
        blocked = offered * blocked / (server + offered * blocked)
    waiting = blocked / (1.0 - shares * (1.0 - blocked))
    decay = 2.0 * servers_count * (1.0 - shares)
    tail = np.where(waiting > _TAIL_95, np.log(np.maximum(waiting, _TAIL_95) / _TAIL_95), 0.0) / decay
    return shares, waiting / decay, tail


@formula(id="pool-wait", sources=("erlang-1917", "rl-derivation"))
def pool_wait_s(rate_per_s: float, service_s: float, servers_count: int) -> tuple[float, float]:
    """Mean and 95th percentile of the wait for one of `servers_count` servers of constant `service_s` each.

    Poisson arrivals, one line (the least loaded engine takes the next prompt). The chance to wait is Erlang's C; the
    wait of those who do decays at 2 c (1 - share) / service: half of what exponential service times would wait. Exact
    in the mean for one server (M/D/1), an approximation beyond; infinite at and above capacity.

    >>> mean_s, tail_s = pool_wait_s(0.5, 1.0, 1)      # M/D/1 at half load: rho / (2 (1 - rho)) of a service time
    >>> round(mean_s, 3), tail_s > mean_s
    (0.5, True)
    """
    share = rate_per_s * service_s / servers_count
    if share >= 1.0:
        return math.inf, math.inf
    shares, mean, tail = _wait_table(min(servers_count, _TABLED_COUNT))
    if share > shares[-1]:
        left = (1.0 - shares[-1]) / (1.0 - share)
        return float(mean[-1]) * left * service_s, float(tail[-1]) * left * service_s
    first = share / shares[0]
    if first < 1.0:
        return float(mean[0]) * first * service_s, float(tail[0]) * first * service_s
    return float(np.interp(share, shares, mean)) * service_s, float(np.interp(share, shares, tail)) * service_s


def busiest_frac(patience_s: float | None, service_s: float, servers_count: int) -> float:
    """Highest share of its capacity at which 95 % of the prompts wait at most `patience_s` (None: 0.95)."""
    if patience_s is None:
        return _BUSIEST_FRAC
    if patience_s < 0:
        return 0.0
    shares, _, tail = _wait_table(min(servers_count, _TABLED_COUNT))
    return float(np.interp(patience_s / service_s, tail, shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """So many engines of either kind and what they carry together.

    `running_count`: requests in service on one decode engine (with a given rate what 95 % see); `queued_s`: the 95th
    percentile of the wait for a place there.
    """

    prefill: Prefill
    decode: Decode
    prefill_count: int
    decode_count: int
    transfer: Transfer
    requests_per_s: float
    running_count: float
    queued_s: float = 0.0

    @property
    def devices_count(self) -> int:
        """Devices of both pools."""
        return (
            self.prefill_count * self.prefill.worker.devices_count
            + self.decode_count * self.decode.worker.devices_count
        )

    @property
    def wait_s(self) -> tuple[float, float]:
        """Mean and 95th percentile of the wait for a prefill engine."""
        return pool_wait_s(self.requests_per_s, 1.0 / self.prefill.rate_per_s, self.prefill_count)

    @property
    def busiest_frac(self) -> float:
        """Highest share of the prefill pool's capacity that the limit on the first token allows."""
        patience_s = _patience_s(self.decode.worker.job.load, self.prefill.step_s + self.transfer.time_s)
        return busiest_frac(patience_s, 1.0 / self.prefill.rate_per_s, self.prefill_count)

    @property
    def ttft_p95_s(self) -> float:
        """95th percentile from arrival to the first token at the decode engine."""
        return self.wait_s[1] + self.prefill.step_s + self.transfer.time_s + self.queued_s

    @property
    def moving_frac(self) -> float:
        """Share of the time that the links of the fewer engines carry caches."""
        return self.requests_per_s * self.transfer.time_s / min(self.prefill_count, self.decode_count)

    @property
    def tpot_s(self) -> float:
        """Time per further token."""
        return self.decode.tpot_at(self.running_count)

    @property
    def e2e_p95_s(self) -> float:
        """95th percentile of a whole request."""
        return self.ttft_p95_s + further_tokens(self.decode.worker.job.load) * self.tpot_s


def _patience_s(load: Load, fixed_s: float) -> float | None:
    """How long prompts may wait beyond `fixed_s`; a limit on the whole request leaves decoding the rest."""
    return None if load.ttft_p95_s is None else load.ttft_p95_s - fixed_s


def token_limit_s(load: Load, first_s: float) -> float:
    """The longest time per token: its limit, or what the limit on whole requests leaves after the first token."""
    found = math.inf if load.tpot_p95_s is None else load.tpot_p95_s
    if load.e2e_p95_s is not None:
        found = min(found, (load.e2e_p95_s - first_s) / max(1.0, further_tokens(load)))
    return found


def most_of(prefill: Prefill, decode: Decode, system: System, devices_count: int) -> Pairing | None:
    """The ratio of engines on `devices_count` devices that carries most requests within the limits; None: none does."""
    load = decode.worker.job.load
    moved = transfer(prefill, decode, system, devices_count)
    fixed_s = prefill.step_s + moved.time_s
    patience_s = _patience_s(load, fixed_s)
    if patience_s is not None and patience_s < 0:
        return None
    first_s = load.ttft_p95_s if load.ttft_p95_s is not None else fixed_s + 1.0 / prefill.rate_per_s
    most = decode.count_at(token_limit_s(load, first_s))
    if most < 1:
        return None
    best: Pairing | None = None
    for ones in _splits(prefill, decode, most, devices_count, patience_s):
        others = (devices_count - ones * prefill.worker.devices_count) // decode.worker.devices_count
        share = busiest_frac(patience_s, 1.0 / prefill.rate_per_s, ones)
        reading = ones * prefill.rate_per_s * share
        making = others * decode.rate_at(most)
        rate = min(reading, making, min(ones, others) / moved.time_s)
        if best is not None and rate <= best.requests_per_s:
            if reading > making:
                break  # more prefill engines leave ever fewer to decode
            continue
        running = most if making <= rate else running_at(decode, rate / others, most)
        best = Pairing(
            prefill=prefill,
            decode=decode,
            prefill_count=ones,
            decode_count=others,
            transfer=moved,
            requests_per_s=rate,
            running_count=running,
        )
    return best


def _splits(prefill: Prefill, decode: Decode, most: float, devices_count: int, patience_s: float | None) -> list[int]:
    """Numbers of prefill engines to try, rising: all of them where they are few, else a geometric row and those around
    the ratio in which neither pool waits for the other."""
    first, second = prefill.worker.devices_count, decode.worker.devices_count
    last = (devices_count - second) // first
    if last <= _SPLITS_COUNT:
        return list(range(1, last + 1))
    share = busiest_frac(patience_s, 1.0 / prefill.rate_per_s, last)
    made = decode.rate_at(most)
    even = round(devices_count * made / (prefill.rate_per_s * share * second + made * first))
    near = range(max(1, even - _NEAR_COUNT), min(last, even + _NEAR_COUNT) + 1)
    row = np.unique(np.geomspace(1.0, last, _SPLITS_COUNT).round().astype(int)).tolist()
    return sorted({*row, *near})


def running_at(decode: Decode, rate_per_s: float, most: float) -> float:
    """Requests in service at which one engine ends `rate_per_s`."""
    rates = decode.counts / (further_tokens(decode.worker.job.load) * decode.tpot_s)
    return min(most, float(np.interp(rate_per_s, np.maximum.accumulate(rates), decode.counts)))


def fewest_for(prefill: Prefill, decode: Decode, system: System, devices_count: int) -> Pairing | None:
    """The fewest engines of either kind, at most `devices_count` devices, that carry the rate or the requests at once
    of the load within its limits; None where no number does."""
    load = decode.worker.job.load
    moved = transfer(prefill, decode, system, devices_count)
    fixed_s = prefill.step_s + moved.time_s
    patience_s = _patience_s(load, fixed_s)
    if patience_s is not None and patience_s < 0:
        return None
    first_s = load.ttft_p95_s if load.ttft_p95_s is not None else fixed_s + 1.0 / prefill.rate_per_s
    most = decode.count_at(token_limit_s(load, first_s))
    if most < 1:
        return None
    if load.rate_per_s is not None:
        others, running, queued_s = _decoders(decode, load.rate_per_s, most, patience_s)
        rate = load.rate_per_s
    else:
        clients = load.concurrency_count or 1.0
        others, running, queued_s = math.ceil(clients / most), 0.0, 0.0
        running = clients / others
        rate = others * decode.rate_at(running)
    left_s = None if patience_s is None else patience_s - queued_s
    moving = math.ceil(rate * moved.time_s)  # engines whose links are full of caches on their way
    others = others and max(others, moving)
    ones = max(1, moving, math.floor(rate / prefill.rate_per_s))
    limit = devices_count // prefill.worker.devices_count
    while ones <= limit and rate >= ones * prefill.rate_per_s * busiest_frac(left_s, 1.0 / prefill.rate_per_s, ones):
        ones += 1
    found = Pairing(
        prefill=prefill,
        decode=decode,
        prefill_count=ones,
        decode_count=others,
        transfer=moved,
        requests_per_s=rate,
        running_count=running,
        queued_s=queued_s,
    )
    return found if others and found.devices_count <= devices_count else None


def _decoders(decode: Decode, rate_per_s: float, most: float, patience_s: float | None) -> tuple[int, float, float]:
    """Decode engines for a rate: their number (0: none found), the requests that 95 % see in service on one of them,
    and the 95th percentile of the wait for a place (at most half of the patience)."""
    counts = np.arange(1.0, most + 1.0)
    further = further_tokens(decode.worker.job.load)
    rates = np.maximum.accumulate(counts / (further * np.interp(counts, decode.counts, decode.tpot_s)))
    engines = math.floor(rate_per_s / float(rates[-1])) + 1
    for _ in range(_TRIES):
        state = load_dependent_queue(rate_per_s / engines, rates)
        if state.wait_p95_s <= (math.inf if patience_s is None else patience_s / 2):
            return engines, max(1.0, state.running_p95), state.wait_p95_s
        engines += max(1, engines // 10)  # src: rl-numerics
    return 0, 0.0, 0.0
