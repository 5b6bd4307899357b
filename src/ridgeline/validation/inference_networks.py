"""Inference rows of layered networks: machine, engine, formats and batch, and the row's figure as Ridgeline has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.errors import RidgelineError
from ridgeline.serving.network import NetworkServingEstimate, NetworkServingJob, estimate_network, network_memory
from ridgeline.validation.baseline import compute_baseline_s
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_encoders import (
    LOADED_SIGMA,
    TAIL_SIGMA,
    engine_of,
    formats_of,
    hosted,
    loaded_requests,
    machine_of,
)
from ridgeline.validation.network_names import row_network
from ridgeline.validation.scores import ScoredRow

METRICS = ("samples_s", "latency_ms", "p99_ms")
MILLI = 1e3
# Queries of one image at once in MLPerf's multistream scenario (mlperf-inference-rules).
MULTISTREAM_BATCH = 8
# An unstated batch of a throughput run: the largest power of two that fits, up to this.
LARGEST_FILLED_BATCH = 256
BATCH_SIGMA = 0.05
# A server that has to keep a latency limit reaches this little less than without (log standard deviation): assumed.
SERVER_SIGMA = 0.15
# Patches of 128 that a kidney volume is cut into, half over each other: sizes of volumes differ, the mean is not
# published (30 to 80 assumed).
PATCHES, PATCHES_SIGMA = 50.0, 0.38
_LOADED = ("offline", "throughput", "server")

Fills = list[tuple[str, float]]


def is_network_row(row: Row) -> bool:
    """Whether the row is about a layered network that is known."""
    return row_network(row) is not None


def score_network_row(row: Row, catalog: Catalog) -> ScoredRow:
    """One row with its prediction; `Unscored` with the reason where there is none."""
    metric, measured = row.text("metric"), row.number("value")
    if metric not in METRICS:
        raise Unscored(f"metric {metric!r} is not known")
    if not measured or measured <= 0:
        raise Unscored("no value")
    job, fills = network_serving_job(row, catalog)
    patches = PATCHES if network_is_cut(row) else 1.0
    if patches > 1:
        fills.append((f"{patches:g} patches a volume", PATCHES_SIGMA))
        job = replace(job, batch_count=job.batch_count * patches)
    estimate = _remembered(job)
    value = _read(estimate, metric)
    if metric == "samples_s":
        value = value.scaled(1.0 / patches)
    predicted = Interval.from_sigma(value.best, quadrature(value.sigma, *(sigma for _, sigma in fills)))
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=job.system.chip.id,
        family=row.text("task") or "image",
        metric=metric,
        unit="1/s" if metric == "samples_s" else "ms",
        measured=measured,
        predicted=predicted.best,
        low=predicted.low,
        high=predicted.high,
        baseline=_baseline(job, metric),
        is_time=metric != "samples_s",
        fills=tuple(text for text, _ in fills),
        notes=(f"{job.network.id}, batch {job.batch_count:g}, {job.precision}, {job.engine.id}", *_texts(estimate)),
    )


def network_is_cut(row: Row) -> bool:
    """Whether an item of the row is a volume that is processed patch by patch."""
    found = row_network(row)
    return (
        found is not None and found.id == "3d-unet-kits19" and row.text("source_title").startswith("MLPerf Inference")
    )


def network_serving_job(row: Row, catalog: Catalog) -> tuple[NetworkServingJob, Fills]:
    """The job that a row states, with the fills that it needed and how much each widens the answer."""
    fills: Fills = []
    network = row_network(row)
    if network is None:
        raise Unscored(f"layer graph of {row.text('model')!r} not known")
    system, copies = machine_of(row, catalog)
    engine = hosted(engine_of(row, catalog, fills), system.chip, fills)
    stored, fed = formats_of(row, system.chip, engine, fills)
    precision = fed if fed in ("int8", "fp8") else stored
    if precision in ("int8", "fp8") and not system.chip.has_peak(precision):
        raise Unscored(f"no {precision} rate of {system.chip.id} is known")
    scenario = row.text("scenario").lower()
    job = NetworkServingJob(
        network=network,
        batch_count=1.0,
        precision=precision,
        system=system,
        calibration=catalog.calibration(system.chip.id),
        engine=engine,
        devices_count=(row.count("n_devices") or 1) * copies,
        sustained=scenario in _LOADED and row.text("metric") == "samples_s",
    )
    if row.text("metric") == "p99_ms":
        fills.append(("99th percentile read as the time of a batch", TAIL_SIGMA))
    if scenario == "server":
        fills.append(("latency limit taken as not binding", SERVER_SIGMA))
    return replace(job, batch_count=_batch(row, job, fills)), fills


def _batch(row: Row, job: NetworkServingJob, fills: Fills) -> float:
    """Images at once: stated, or what the scenario means, or the largest usual one that fits."""
    stated, scenario = row.number("batch"), row.text("scenario").lower()
    if stated:
        return stated
    if under_way := loaded_requests(row, job.system):
        fills.append((f"latency in the run for throughput, with {under_way:g} requests under way", LOADED_SIGMA))
        return under_way
    if scenario in ("singlestream", "latency"):
        return 1.0
    if scenario == "multistream":
        return float(MULTISTREAM_BATCH)
    if scenario not in _LOADED:
        raise Unscored("batch not stated")
    filled = LARGEST_FILLED_BATCH
    while filled > 1 and network_memory(replace(job, batch_count=float(filled))).value > job.system.chip.memory_bytes():
        filled //= 2
    fills.append((f"batch not stated: {filled}, the largest power of two that fits up to 256", BATCH_SIGMA))
    return float(filled)


@lru_cache(maxsize=1024)
def _remembered(job: NetworkServingJob) -> NetworkServingEstimate:
    return estimate_network(job)


def _read(estimate: NetworkServingEstimate, metric: str) -> Interval:
    return estimate.samples_per_s if metric == "samples_s" else estimate.latency_s.scaled(MILLI)


def _texts(estimate: NetworkServingEstimate) -> Iterable[str]:
    return (note.text for note in estimate.notes)


def _baseline(job: NetworkServingJob, metric: str) -> float | None:
    """Half of the peak on the network's own FLOP."""
    try:
        each_s = compute_baseline_s(job.network.forward_flop(), job.system.chip, job.precision, 1)
    except RidgelineError:
        return None
    return job.devices_count / each_s if metric == "samples_s" else job.batch_count * each_s * MILLI
