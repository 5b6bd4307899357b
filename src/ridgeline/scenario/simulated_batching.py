"""Models that answer in one pass behind a dynamic batcher: times of every batch size, then the queue."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ridgeline.core import Note, merge
from ridgeline.scenario.answer import AnswerRow
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.planning import terms_of
from ridgeline.scenario.simulated_parts import Z_80, SimulatedPart, Work, limits_of, power_of, ranges, repeated
from ridgeline.scenario.simulated_traffic import Drawn
from ridgeline.serving import ServingJob, estimate_encoder
from ridgeline.simulation.batching import BatchingRun, BatchTimes, DynamicBatching, simulate_batching
from ridgeline.simulation.results import Measured, Served, measure, steadiness, timeline
from ridgeline.simulation.traffic import ClosedLoop
from ridgeline.specs.requests import Floats

DEFAULT_MAX_BATCH = 64
_EVERY_SIZE = 64  # up to here every size is computed, beyond it a grid


def batching_run(scenario: Scenario, row: AnswerRow, job: ServingJob, drawn: Drawn) -> SimulatedPart:
    """The traffic of `scenario` through the batcher of one candidate."""
    file, serve = scenario.file, scenario.file.workload.serve
    options, notes = batching_options(scenario, row, job)
    times, sigma = batch_times(job, options.max_batch_count)
    traffic = drawn.traffic
    if drawn.users_from_room and isinstance(traffic, ClosedLoop):
        users = 2 * options.max_batch_count * options.instances_count * options.devices_count
        traffic = replace(traffic, users_count=users)
        notes.append(Note("fill", f"maximum load: {users:,} users, two batches for each instance"))
    control = file.simulate

    def run(seed: int, factor: float = 1.0) -> BatchingRun:
        return simulate_batching(traffic, times.scaled(factor), options, np.random.default_rng(seed))

    def measured(runs: list[BatchingRun]) -> Measured:
        return measure([_served(item) for item in runs], limits_of(scenario), control.warm_up)

    runs = repeated(run, control.seed, control.replications, drawn.random)
    best = measured(runs)
    quick, slow = (measured([run(control.seed, math.exp(sign * Z_80 * sigma))]) for sign in (-1.0, 1.0))
    slices = timeline(_served(runs[0]), control.slices)
    work = _work(runs[0], times, options, slices.start_s, slices.slice_s)
    rate = best.requests_per_s.best
    power, levels, told = power_of(job, work, terms_of(scenario).power, scenario.site.pue_frac, ("request", rate))
    notes += [*told, *steadiness(best, drawn.open_loop)]
    if serve is not None and serve.output == 0 and drawn.traffic is not None:
        notes.append(Note("not-modelled", "requests of one batch are of one length (padded to the mean)"))
    return SimulatedPart(
        mode="dynamic batching",
        measured=best,
        timeline=replace(slices, levels={**slices.levels, **levels}),
        ranges=ranges(best, quick, slow),
        power=power,
        extra={"batching": _batching_dict(options, times, runs)},
        notes=merge(notes),
    )


def batching_options(scenario: Scenario, row: AnswerRow, job: ServingJob) -> tuple[DynamicBatching, list[Note]]:
    """The batcher of the scenario; the largest batch is what is asked for, what fits, or 64."""
    serve = scenario.file.workload.serve
    estimate = row.found.estimate
    notes: list[Note] = []
    asked = None if serve is None else (serve.batching.max or serve.max_batch)
    fits = getattr(estimate, "max_running_count", math.inf) / max(1, job.plan.replica_count)
    most = max(1.0, min(float(asked or DEFAULT_MAX_BATCH), fits // 1.0))
    if asked is None:
        notes.append(Note("fill", f"largest batch not given (workload.serve.batching.max): {most:g} is taken"))
    elif most < asked:
        notes.append(Note("hint", f"batches of {asked:,} do not fit, {most:g} is taken"))
    keys = None if serve is None else serve.batching
    return DynamicBatching(
        max_batch_count=int(most),
        preferred_counts=tuple(size for size in (keys.preferred if keys else ()) if size <= most),
        delay_s=keys.delay if keys else 0.0,
        instances_count=keys.instances if keys else 1,
        devices_count=job.plan.replica_count,
        queue_count=keys.queue if keys else None,
        timeout_s=keys.timeout if keys else None,
    ), notes


def batch_times(job: ServingJob, most: int) -> tuple[BatchTimes, float]:
    """Times of batches of 1 to `most` on one replica (all sizes up to 64, beyond it a grid), and their doubt."""
    sizes = list(range(1, min(most, _EVERY_SIZE) + 1))
    while sizes[-1] < most:
        sizes.append(min(most, math.ceil(sizes[-1] * 1.25)))
    rows = []
    for size in sizes:
        found = estimate_encoder(job.with_plan(replica_count=1), float(size))
        whole = found.e2e_s.best
        busy = found.device_busy_frac
        devices = job.plan.devices_per_replica_count
        flop, moved = found.flop_per_s_per_device * whole, found.memory_bytes_per_s_per_device * whole
        rows.append((whole * (1.0 - busy), whole * busy, flop * devices, moved * devices, found.e2e_s.sigma))
    table = np.array(rows)
    every = np.arange(1, most + 1)
    host, device, flop, moved = (np.interp(every, sizes, table[:, index]) for index in range(4))
    times = BatchTimes(host_s=host, device_s=device, flop=flop, moved_bytes=moved)
    return times, float(table[:, -1].mean())


def _served(run: BatchingRun) -> Served:
    nothing = np.zeros(len(run.arrived_s), dtype=np.int64)
    return Served(
        arrived_s=run.arrived_s,
        started_s=run.started_s,
        first_token_s=run.finished_s,
        finished_s=run.finished_s,
        input_tokens=nothing,
        output_tokens=nothing,
        answered=run.served,
    )


def _work(run: BatchingRun, times: BatchTimes, options: DynamicBatching, start_s: Floats, slice_s: float) -> Work:
    """Work of one device, in all and in slices; a batch counts where it starts."""
    at = run.batch_count - 1
    edges = np.concatenate((start_s, [start_s[-1] + slice_s])) + run.arrived_s[0]
    sums = [
        np.histogram(run.batch_started_s, edges, weights=values[at])[0] / (slice_s * options.devices_count)
        for values in (times.flop, times.moved_bytes, times.device_s)
        if values is not None
    ]
    flop, moved, busy = sums
    return Work(
        flop_per_s=float(flop.mean()),
        bytes_per_s=float(moved.mean()),
        busy_frac=float(run.device_busy_frac),
        slice_flop_per_s=flop,
        slice_bytes_per_s=moved,
        slice_busy_frac=np.minimum(1.0, busy),
    )


def _batching_dict(options: DynamicBatching, times: BatchTimes, runs: list[BatchingRun]) -> dict[str, object]:
    sizes = np.concatenate([run.batch_count for run in runs])
    counts = np.bincount(sizes, minlength=2)
    states = np.concatenate([run.state for run in runs])
    return {
        "max": options.max_batch_count,
        "preferred": list(options.preferred_counts),
        "delay_s": options.delay_s,
        "instances": options.instances_count,
        "devices": options.devices_count,
        "mean_batch": float(sizes.mean()),
        "batches": {str(size): int(count) for size, count in enumerate(counts) if count},
        "batch_s": {str(size): float(times.whole_s[size - 1]) for size in sorted(set(sizes.tolist()))},
        "refused": int((states == 1).sum()),
        "expired": int((states == 2).sum()),
        "device_busy_frac": float(np.mean([run.device_busy_frac for run in runs])),
    }
