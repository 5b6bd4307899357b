"""What `workload.serve.scheduler` says about engines and routers, as options of the simulation."""

from __future__ import annotations

from typing import Any

from ridgeline.errors import BadPlan
from ridgeline.scenario.load import Scenario
from ridgeline.serving import ServingJob
from ridgeline.simulation.options import Pool, Scaling, SimulationOptions, Speculation
from ridgeline.specs import NetworkLevel


def options_of(scenario: Scenario, job: ServingJob) -> SimulationOptions:
    """Options of the scenario; what it leaves out is the simulation's default."""
    serve = scenario.file.workload.serve
    keys = None if serve is None else serve.scheduler
    given: dict[str, Any] = {}
    if keys is not None:
        for name in ("batching", "preemption", "prefix_cache", "routing"):
            if (value := getattr(keys, name)) is not None:
                given[name] = value
        if keys.preemption == "swap":
            given["swap_bytes_per_s"] = _host_link(scenario, job)
        if keys.draft_tokens is not None and keys.accepted is not None:
            layers = keys.draft_layers or 0.0
            speculation = Speculation(draft_tokens=keys.draft_tokens, accepted_frac=keys.accepted, layers_frac=layers)
            given["speculation"] = speculation
        if keys.scale_target is not None:
            given["scaling"] = Scaling(
                target_count=float(keys.scale_target),
                startup_s=keys.scale_startup or 0.0,
                least_count=keys.scale_least or 1,
            )
        if keys.prefill_replicas is not None:
            way = _way_between(job)
            given["link_bytes_per_s"], given["link_latency_s"] = way.oneway_bytes_per_s, way.latency_s
    return SimulationOptions(**given, intervals_count=max(2, scenario.file.simulate.slices))


def pools_of(scenario: Scenario, job: ServingJob) -> tuple[Pool, ...]:
    """One pool for everything, or one that reads prompts and one that decodes."""
    serve = scenario.file.workload.serve
    prefill = None if serve is None else serve.scheduler.prefill_replicas
    whole = job.plan.replica_count
    if prefill is None:
        return (Pool(job=job, replicas_count=whole),)
    if prefill >= whole:
        spot = scenario.place("workload", "serve", "scheduler", "prefill_replicas")
        there = "is 1 replica" if whole == 1 else f"are {whole} replicas"
        raise BadPlan(f"{spot}: got {prefill}, but there {there} in all and some must decode")
    return (
        Pool(job=job, replicas_count=prefill, role="prefill"),
        Pool(job=job, replicas_count=whole - prefill, role="decode"),
    )


def _host_link(scenario: Scenario, job: ServingJob) -> float:
    rate = job.system.chip.host_oneway_bytes_per_s
    if rate is None:
        spot = scenario.place("workload", "serve", "scheduler", "preemption")
        raise BadPlan(f"{spot}: no published rate of the link between {job.system.chip.id} and its host")
    return rate


def _way_between(job: ServingJob) -> NetworkLevel:
    """The innermost level of the network that reaches all replicas."""
    levels = job.system.levels
    reaching = (level for level in levels if level.size_count is None or level.size_count >= job.plan.devices_count)
    return next(reaching, levels[-1])
