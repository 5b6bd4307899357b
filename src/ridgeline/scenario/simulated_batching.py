"""Models that answer in one pass behind a dynamic batcher: times of every batch size, then the queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ridgeline.core import Note, merge
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.planning import power_law
from ridgeline.scenario.schema import ServeFile, SimulateFile
from ridgeline.scenario.simulated_parts import (
    Z_80,
    Drawer,
    SimulatedPart,
    Work,
    energy_each,
    limits_of,
    power_of,
    ranges,
    repeated,
    waiting_frac,
)
from ridgeline.scenario.simulated_traffic import Drawn, require_serve, users_of, with_users
from ridgeline.search import ServingRow
from ridgeline.serving import ServingJob, estimate_encoder
from ridgeline.simulation.batching import BatchingRun, BatchTimes, DynamicBatching, simulate_batching
from ridgeline.simulation.results import Measured, Served, measure, occupied, steadiness, timeline
from ridgeline.simulation.traffic import ClosedLoop
from ridgeline.specs.requests import Floats

DEFAULT_MAX_BATCH = 64
_EVERY_SIZE = 64  # up to here every size is computed, beyond it a grid
_GRID = 1.25
_ONE_LENGTH = Note("not-modelled", "requests of one batch are of one length (padded to the mean)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatcherCase:
    """One candidate to run: its batcher, the times of its batches with their log deviation, and what draws power."""

    serve: ServeFile
    control: SimulateFile
    options: DynamicBatching
    times: BatchTimes
    sigma: float
    drawer: Drawer
    notes: tuple[Note, ...] = ()


def encoder_run(scenario: Scenario, found: ServingRow, job: ServingJob, drawn: Drawn) -> SimulatedPart:
    """The traffic of `scenario` through the batcher of one candidate."""
    serve = require_serve(scenario)
    fits = found.estimate.max_running_count / max(1, job.plan.replica_count)
    options, notes = batching_options(serve, fits, job.plan.replica_count)
    alone = job.with_plan(replica_count=1)
    devices = job.plan.devices_per_replica_count

    def one(size: int) -> BatchPoint:
        batch = estimate_encoder(alone, float(size))
        work = (batch.flop_per_s_per_device * devices, batch.memory_bytes_per_s_per_device * devices)
        return BatchPoint(batch.e2e_s.best, batch.device_busy_frac, *work, batch.e2e_s.sigma)

    times, sigma = batch_times(one, options.max_batch_count)
    drawer = Drawer(
        system=job.system,
        devices_count=job.plan.devices_count,
        precision=job.plan.activation_precision,
        law=power_law(scenario.catalog),
        pue_frac=scenario.site.pue_frac,
        waiting_frac=waiting_frac(found.estimate),
        serves=True,
    )
    case = BatcherCase(
        serve=serve,
        control=scenario.file.simulate,
        options=options,
        times=times,
        sigma=sigma,
        drawer=drawer,
        notes=(*notes, _ONE_LENGTH),
    )
    return run_batcher(case, drawn)


def run_batcher(case: BatcherCase, drawn: Drawn) -> SimulatedPart:
    """Run the traffic, and with all times at the ends of their range for the ranges of the figures."""
    control, options, notes = case.control, case.options, list(case.notes)
    traffic = drawn.traffic
    if drawn.users_from_room and isinstance(traffic, ClosedLoop):
        users = 2 * options.max_batch_count * options.instances_count * options.devices_count
        traffic = with_users(traffic, users, control.requests)
        notes.append(Note("fill", f"maximum load: {users:,} users, two batches for each instance"))

    def run(seed: int, factor: float = 1.0) -> BatchingRun:
        return simulate_batching(traffic, case.times.scaled(factor), options, np.random.default_rng(seed))

    def measured(runs: Sequence[BatchingRun]) -> Measured:
        return measure([_served(item) for item in runs], limits_of(case.serve), control.warm_up, users_of(traffic))

    runs: list[BatchingRun] = repeated(run, control.seed, control.replications, drawn.random)
    best = measured(runs)
    quick, slow = (measured([run(control.seed, math.exp(sign * Z_80 * case.sigma))]) for sign in (-1.0, 1.0))
    slices = timeline(_served(runs[0]), control.slices)
    work = _work(runs[0], case, slices.start_s, slices.slice_s)
    power, levels, told = power_of(case.drawer, work, ("request", best.requests_per_s.best))
    levels["batch"] = _batch_sizes(runs[0], slices.start_s, slices.slice_s)
    levels["j_per_request"] = energy_each(case.drawer, levels, slices.levels["requests_per_s"])
    notes += [*told, *steadiness(best, users_of(traffic))]
    return SimulatedPart(
        mode="dynamic batching",
        measured=best,
        timeline=replace(slices, levels={**slices.levels, **levels}),
        ranges=ranges(best, quick, slow),
        power=power,
        users_count=users_of(traffic),
        extra={"batching": _batching_dict(options, case.times, runs)},
        notes=merge(notes),
    )


def batching_options(serve: ServeFile, fits_count: float, devices_count: int) -> tuple[DynamicBatching, list[Note]]:
    """The batcher of the scenario; the largest batch is what is asked for, what fits, or 64."""
    notes: list[Note] = []
    keys = serve.batching
    asked = keys.max or serve.max_batch
    most = max(1.0, min(float(asked or DEFAULT_MAX_BATCH), fits_count // 1.0))
    if asked is None:
        notes.append(Note("fill", f"largest batch not given (workload.serve.batching.max): {most:g} is taken"))
    elif most < asked:
        notes.append(Note("hint", f"batches of {asked:,} do not fit, {most:g} is taken"))
    options = DynamicBatching(
        max_batch_count=int(most),
        preferred_counts=tuple(size for size in keys.preferred if size <= most),
        delay_s=keys.delay,
        instances_count=keys.instances,
        devices_count=devices_count,
        queue_count=keys.queue,
        timeout_s=keys.timeout,
    )
    return options, notes


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """One batch: its latency, the share of it that the device works, work and traffic a second, log deviation."""

    latency_s: float
    busy_frac: float
    flop_per_s: float
    moved_bytes_per_s: float
    sigma: float


def batch_times(one: Callable[[int], BatchPoint], most: int) -> tuple[BatchTimes, float]:
    """Times of batches of 1 to `most` (all sizes up to 64, beyond it a grid), and their log deviation."""
    sizes = list(range(1, min(most, _EVERY_SIZE) + 1))
    while sizes[-1] < most:
        sizes.append(min(most, math.ceil(sizes[-1] * _GRID)))
    rows = []
    for size in sizes:
        point = one(size)
        whole = point.latency_s
        works, waits = whole * point.busy_frac, whole * (1.0 - point.busy_frac)
        rows.append((waits, works, point.flop_per_s * whole, point.moved_bytes_per_s * whole, point.sigma))
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


def _work(run: BatchingRun, case: BatcherCase, start_s: Floats, slice_s: float) -> Work:
    """Work of one device, in all and in slices; a batch counts where it starts."""
    at, times = run.batch_count - 1, case.times
    edges = np.concatenate((start_s, [start_s[-1] + slice_s])) + run.arrived_s[0]
    sums = [
        np.histogram(run.batch_started_s, edges, weights=values[at])[0] / (slice_s * case.options.devices_count)
        for values in (times.flop, times.moved_bytes)
        if values is not None
    ]
    flop, moved = sums
    busy = np.minimum(1.0, occupied(run.batch_started_s, run.batch_finished_s, edges) / case.options.devices_count)
    return Work(
        flop_per_s=float(flop.mean()),
        bytes_per_s=float(moved.mean()),
        busy_frac=float(busy.mean()),
        slice_flop_per_s=flop,
        slice_bytes_per_s=moved,
        slice_busy_frac=busy,
    )


def _batch_sizes(run: BatchingRun, start_s: Floats, slice_s: float) -> Floats:
    """Mean size of the batches that start in each slice (0: none)."""
    edges = np.concatenate((start_s, [start_s[-1] + slice_s])) + run.arrived_s[0]
    counts = np.histogram(run.batch_started_s, edges)[0]
    sizes = np.histogram(run.batch_started_s, edges, weights=run.batch_count)[0]
    found: Floats = sizes / np.maximum(counts, 1)
    return found


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
