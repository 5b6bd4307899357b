"""Sizing with engines that read prompts and decode in the same steps: how many of them a load needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ridgeline.errors import OutOfMemory
from ridgeline.search.serving import activity_of, hour_of, serving_power, tokens_of
from ridgeline.search.sizing_front import FrontPoint
from ridgeline.search.sizing_result import Latencies, Pool, Sized
from ridgeline.search.sizing_workers import Curve, Worker
from ridgeline.search.terms import Machine, Objective, Terms
from ridgeline.serving import ServingEstimate, ServingJob, estimate_serving
from ridgeline.specs import Load

# Curves are linear between doublings of the batch: so much below their bound the exact number may be.
_SLACK = 0.95  # src: rl-numerics
_GROWTH = 1.1  # src: ridgeline-layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Equal engines, as many as the curve of one says that the load needs."""

    worker: Worker
    curve: Curve
    most_count: float
    replicas_count: int

    @property
    def devices_count(self) -> int:
        """Devices of all engines."""
        return self.replicas_count * self.worker.devices_count

    def key(self, load: Load, objective: Objective) -> tuple[float, float]:
        """The less the better: devices for the load, or latency, by the curve."""
        if load.rate_per_s is None and load.concurrency_count is None:
            return -self.curve.rate_at(self.most_count) / self.worker.devices_count, float(self.worker.devices_count)
        share = self.replicas_count
        clients = load.concurrency_count or (load.rate_per_s or 0.0) * float(self.curve.e2e_s[0])
        whole_s = float(np.interp(clients / share, self.curve.counts, self.curve.e2e_s))
        return (whole_s, self.devices_count) if objective == "time" else (self.devices_count, whole_s)


def crew_for(worker: Worker, curve: Curve, load: Load, objective: Objective, devices_count: int) -> Crew | None:
    """The engines that `load` needs at least, or all that `devices_count` devices give room for where there is no load
    or time is to be least; None where one request alone breaks a limit. May be more than there is room for."""
    most = curve.largest(load)
    if most < 1:
        return None
    room = max(1, devices_count // worker.devices_count)
    if load.rate_per_s is not None:
        least = load.rate_per_s / curve.rate_at(most)
    elif load.concurrency_count is not None:
        least = load.concurrency_count / most
    else:
        least = room / _SLACK
    replicas = max(1, math.ceil(_SLACK * least))
    if objective == "time" and replicas <= room:
        clients = load.concurrency_count
        replicas = room if clients is None else min(room, max(replicas, math.floor(clients)))
    return Crew(worker=worker, curve=curve, most_count=most, replicas_count=replicas)


def exact_estimate(crew: Crew, load: Load, devices_count: int) -> ServingEstimate | None:
    """The fewest engines of `crew`, from its own number up, that carry `load` by the full estimate; None: too many.

    The number grows by tenths until one does, then is halved between the last that did not and that.
    """

    def with_engines(count: int) -> ServingEstimate | None:
        plan = replace(crew.worker.plan, replica_count=count)
        try:
            estimate = estimate_serving(replace(crew.worker.job, plan=plan, load=load))
        except OutOfMemory:
            return None
        return estimate if estimate.feasible else None

    room = devices_count // crew.worker.devices_count
    count, failed, found = crew.replicas_count, crew.replicas_count - 1, None
    while count <= room:
        found = with_engines(count)
        if found is not None:
            break
        failed, count = count, min(max(count + 1, math.ceil(count * _GROWTH)), max(room, count + 1))
    if found is None:
        return None
    while count - failed > 1:
        middle = (count + failed) // 2
        other = with_engines(middle)
        if other is None:
            failed = middle
        else:
            count, found = middle, other
    return found


def sized_crew(crew: Crew, estimate: ServingEstimate, machine: Machine, terms: Terms) -> Sized:
    """The full answer for engines that both read and decode; devices that no engine uses are not counted."""
    devices = estimate.devices_count
    used = replace(machine, devices_count=devices)
    tokens = tokens_of(estimate)
    schedulers = crew.worker.job.schedulers_count
    limit = math.ceil(crew.most_count / schedulers)
    pool = Pool(
        role="both",
        plan=estimate.plan,
        running_count=estimate.running_count / estimate.plan.replica_count,
        batch_limit_count=limit,
        batch_tokens_count=step_tokens(crew.worker.job, limit),
        step=estimate.step,
        memory=estimate.memory,
        memory_available_bytes=estimate.memory_available_bytes,
        activity=activity_of(
            machine.system.chip,
            estimate.plan.activation_precision,
            estimate.flop_per_s_per_device,
            estimate.memory_bytes_per_s_per_device,
            estimate.device_busy_frac,
        ),
    )
    return Sized(
        mode="aggregated",
        system=machine.system,
        engine=crew.worker.job.engine.id,
        devices_count=devices,
        nodes_count=math.ceil(devices / machine.system.devices_per_node_count),
        pools=(pool,),
        latencies=Latencies(
            ttft_s=estimate.ttft_s,
            ttft_p95_s=estimate.ttft_p95_s,
            tpot_s=estimate.tpot_s,
            tpot_p95_s=estimate.tpot_p95_s,
            e2e_p95_s=estimate.e2e_p95_s,
        ),
        requests_per_s=estimate.requests_per_s,
        output_tokens_per_s=estimate.output_tokens_per_s,
        utilisation_frac=estimate.utilisation_frac,
        binding=estimate.binding,
        hour=hour_of(used, devices, lambda: serving_power(used, estimate, terms), tokens, terms),
        uses=estimate.uses,
        models=estimate.models,
        notes=estimate.notes,
    )


def step_tokens(job: ServingJob, batch_count: int) -> int:
    """The token budget of a step to start the engine with: its own, else a prompt beside a full batch."""
    budget = job.max_batch_tokens
    return int(budget) if math.isfinite(budget) else math.ceil(job.prompt_tokens) + batch_count


def crew_points(crew: Crew, load: Load) -> list[FrontPoint]:
    """The curve of one engine, as far as it keeps the limits, as points of the front."""
    curve, devices = crew.curve, crew.worker.devices_count
    counts = [float(count) for count in curve.counts if count < crew.most_count] + [crew.most_count]
    found = []
    for count in counts:
        tpot_s = float(np.interp(count, curve.counts, curve.tpot_s))
        if tpot_s <= 0:
            continue
        found.append(
            FrontPoint(
                mode="aggregated",
                system_id=crew.worker.job.system.id,
                layout=crew.worker.plan.label(),
                running_count=count,
                user_tokens_per_s=1.0 / tpot_s,
                device_tokens_per_s=load.output_tokens * curve.rate_at(count) / devices,
                ttft_s=float(np.interp(count, curve.counts, curve.ttft_p95_s)),
            )
        )
    return found
