"""Sizing with pools of prefill and decode engines: the best ratio, worked out in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgeline.core import Interval, Note, total
from ridgeline.power import PowerEstimate, estimate_power
from ridgeline.search.disaggregated import (
    Decode,
    Pairing,
    Prefill,
    decode_point,
    further_tokens,
    running_at,
    token_limit_s,
    transfer,
)
from ridgeline.search.serving import activity_of, hour_of
from ridgeline.search.sizing_aggregated import step_tokens
from ridgeline.search.sizing_front import FrontPoint
from ridgeline.search.sizing_result import Latencies, Pool, Sized
from ridgeline.search.sizing_workers import Worker
from ridgeline.search.terms import Machine, Terms
from ridgeline.serving.operating import Point
from ridgeline.specs import Load

_ASSUMED = (
    "prompts are dealt to the least loaded prefill engine as they come (Poisson arrivals); a cache moves to the decode"
    " engine after its prompt was read, nothing of it hidden"
)


@dataclass(frozen=True, slots=True)
class ExactPairing:
    """A pairing whose decode engines were timed at the batch itself."""

    pairing: Pairing
    point: Point


def exact_pairing(pairing: Pairing, machine: Machine) -> ExactPairing | None:
    """`pairing` with its transfer over the devices that it really uses and its decode step timed in full; None where
    that breaks a limit. With no load given fewer requests are let in until they keep it, else engines are added."""
    load = pairing.decode.worker.job.load
    free = load.rate_per_s is None and load.concurrency_count is None
    while pairing.running_count >= 1 and pairing.devices_count <= machine.devices_count:
        moved = transfer(pairing.prefill, pairing.decode, machine.system, pairing.devices_count)
        pairing = replace(pairing, transfer=moved)
        limit_s = token_limit_s(load, pairing.ttft_p95_s)
        count = pairing.running_count
        point = decode_point(pairing.decode, count)
        if point.tpot_s <= limit_s:
            made = pairing.decode_count * point.requests_per_s
            rate = min(pairing.requests_per_s, made) if load.rate_per_s is None else load.rate_per_s
            return ExactPairing(replace(pairing, requests_per_s=rate), point)
        if free:
            fewer = min(count - 1.0, math.floor(count * limit_s / point.tpot_s))
            pairing = replace(pairing, running_count=fewer)
        else:
            more = pairing.decode_count + 1
            pairing = replace(pairing, decode_count=more, running_count=max(1.0, count * (more - 1) / more))
    return None


def sized_pairing(found: ExactPairing, machine: Machine, terms: Terms) -> Sized:
    """The full answer for two pools."""
    pairing, load = found.pairing, found.pairing.decode.worker.job.load
    rate, made = pairing.requests_per_s, pairing.decode_count
    reading = rate / (pairing.prefill_count * pairing.prefill.rate_per_s)
    usual = found.point
    if load.rate_per_s is not None:
        usual = decode_point(
            pairing.decode, max(1.0, running_at(pairing.decode, rate / made, found.point.running_count))
        )
    at_work = 1.0 if load.rate_per_s is None else -math.expm1(-rate / made * usual.e2e_s)
    pools = (
        _pool("prefill", pairing.prefill.worker, pairing.prefill_count, pairing.prefill.point, reading),
        _pool("decode", pairing.decode.worker, made, usual, at_work),
    )
    limit = math.ceil(pairing.decode.most_count / pairing.decode.worker.job.schedulers_count)
    pools = (_limited(pools[0], pairing.prefill), replace(pools[1], batch_limit_count=limit))
    first, token = pairing.prefill.point.sigma, found.point.sigma
    shares = {
        "prefill engines": reading,
        "decode engines": rate / (made * found.point.requests_per_s),
        "links between pools": pairing.moving_frac,
    }
    slower = max(shares, key=shares.__getitem__)
    requests = Interval.from_sigma(rate, first if slower == "prefill engines" else token)
    if load.rate_per_s is not None:
        requests = Interval.exact(rate)
    output = requests.scaled(load.output_tokens)
    wait_s = pairing.wait_s[0]
    ttft_s = wait_s + pairing.prefill.step_s + pairing.transfer.time_s
    devices = pairing.devices_count
    trees = (pairing.prefill.point.tree, usual.tree, pools[0].memory, pools[1].memory)
    return Sized(
        mode="disaggregated",
        system=machine.system,
        engine=pairing.decode.worker.job.engine.id,
        devices_count=devices,
        nodes_count=math.ceil(devices / machine.system.devices_per_node_count),
        pools=pools,
        latencies=Latencies(
            ttft_s=Interval.from_sigma(ttft_s, first),
            ttft_p95_s=pairing.ttft_p95_s,
            tpot_s=Interval.from_sigma(usual.tpot_s, token),
            tpot_p95_s=found.point.tpot_s,
            e2e_p95_s=pairing.ttft_p95_s + further_tokens(load) * found.point.tpot_s,
        ),
        requests_per_s=requests,
        output_tokens_per_s=output,
        utilisation_frac=shares[slower],
        binding=slower,
        hour=hour_of(machine, devices, lambda: _power(machine, pools, terms), output, terms),
        transfer_s=pairing.transfer.time_s,
        transfer_bytes=pairing.transfer.whole_bytes,
        uses=tuple(dict.fromkeys(fact for tree in trees for fact in tree.facts())),
        models=tuple(dict.fromkeys(name for tree in trees for name in tree.models())),
        notes=(Note("not-modelled", _ASSUMED),),
    )


def _pool(role: str, worker: Worker, engines: int, point: Point, busy: float) -> Pool:
    job = worker.job
    limit = math.ceil(point.running_count / job.schedulers_count)
    return Pool(
        role=role,
        plan=replace(job.plan, replica_count=engines),
        running_count=busy * point.running_count if role == "prefill" else point.running_count,
        batch_limit_count=limit,
        batch_tokens_count=step_tokens(job, limit),
        step=point.tree,
        memory=worker.room.memory,
        memory_available_bytes=worker.room.available_bytes,
        activity=activity_of(
            job.system.chip,
            job.plan.activation_precision,
            busy * point.flop_per_s,
            busy * point.moved_bytes_per_s,
            busy * point.device_busy_frac,
        ),
    )


def _limited(pool: Pool, engine: Prefill) -> Pool:
    """Scheduler limits of a prefill engine: the prompts that it reads in one step and their tokens."""
    job = engine.worker.job
    each = max(1, engine.prompts_count // job.schedulers_count)
    return replace(pool, batch_limit_count=each, batch_tokens_count=step_tokens(job, each))


def _power(machine: Machine, pools: Sequence[Pool], terms: Terms) -> PowerEstimate:
    """Power of both pools with their hosts; the shares are the same assumptions in both, so their doubts add up."""
    parts = [estimate_power(machine.system, pool.plan.devices_count, pool.activity, terms.power) for pool in pools]
    devices = sum(pool.plan.devices_count for pool in pools)
    weighted = [(part, pool.plan.devices_count / devices) for part, pool in zip(parts, pools, strict=True)]
    return replace(
        parts[0],
        chip_w=sum(part.chip_w * share for part, share in weighted),
        host_per_device_w=sum(part.host_per_device_w * share for part, share in weighted),
        total_w=Interval(
            sum(part.total_w.low for part in parts),
            sum(part.total_w.best for part in parts),
            sum(part.total_w.high for part in parts),
        ),
        power=total("power", "W", [part.power for part in parts]),
    )


def pair_points(prefill: Prefill, decode: Decode, pairing: Pairing, load: Load) -> list[FrontPoint]:
    """Points of the front of one pair of engines, in the ratio in which neither waits for the other.

    Devices a request and second: those of prefill over its rate (at the share of capacity that the limit on the first
    token allows in `pairing`) and those of decode over theirs.
    """
    share = pairing.requests_per_s / (pairing.prefill_count * prefill.rate_per_s)
    capped = max(share, pairing.busiest_frac)
    found = []
    for count, tpot_s in zip(decode.counts, decode.tpot_s, strict=True):
        if count > decode.most_count:
            break
        devices = prefill.worker.devices_count / (prefill.rate_per_s * capped)
        devices += decode.worker.devices_count / decode.rate_at(float(count))
        found.append(
            FrontPoint(
                mode="disaggregated",
                system_id=decode.worker.job.system.id,
                layout=f"{prefill.worker.plan.label()} + {decode.worker.plan.label()}",
                running_count=float(count),
                user_tokens_per_s=1.0 / float(tpot_s),
                device_tokens_per_s=load.output_tokens / devices,
                ttft_s=prefill.step_s + pairing.transfer.time_s,
            )
        )
    return found
