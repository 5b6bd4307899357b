"""Training rows of layered networks (families "cnn" and "diffusion"): each becomes a data-parallel step."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.specs import SoftwareProfile, System
from ridgeline.training.network_step import (
    NetworkTrainingEstimate,
    NetworkTrainingJob,
    Optimizer,
    estimate_network_step,
    largest_batch_count,
)
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.network_names import row_network
from ridgeline.validation.scores import ScoredRow
from ridgeline.validation.training_rows import release_date, system_of

FAMILIES = ("cnn", "diffusion")
METRICS = ("step_time_s", "samples_per_s_total")
# Which software a framework column means for such networks, by the words that it begins with: exact beginnings.
SOFTWARE: tuple[tuple[str, str], ...] = (
    ("PyTorch (DeepLearningExamples scripts)", "pytorch-nvidia-examples-1.9"),
    ("PyTorch 1.12 cu11.3 (timm)", "pytorch-ddp-1.9"),
    ("MXNet+DALI", "mxnet-1.8"),
    ("PaddlePaddle", "paddle-2.3"),
    ("TensorFlow 1 + XLA", "tensorflow-1.15"),
    ("TensorFlow 2.5", "synapse-1.0"),
    ("Gaudi PyTorch", "synapse-1.0"),
    ("Composer/Diffusers", "pytorch-ddp-2.4"),
    ("PyTorch", "pytorch-ddp-1.9"),
)
# MLPerf submissions state several containers; which one trains a model is fixed by the benchmark's code.
MLPERF_SOFTWARE = {
    "3D U-Net (KiTS19)": "mxnet-1.8",
    "Mask R-CNN R50": "mlperf-pytorch-2021",
    "Stable Diffusion v2 UNet (MLPerf)": "nemo-multimodal-23.09",
}
OPTIMIZERS: dict[str, Optimizer] = {"diffusion": "adam"}
# How much a filled input widens the interval (log standard deviation of each): as for transformers.
FILL_SIGMA = 0.05
# An unstated batch: the largest power of two that fits, up to what published recipes use on one device.
LARGEST_FILLED_BATCH = 256
NAIVE_PEAK_FRAC = 0.5


def score_network_row(row: Row, catalog: Catalog) -> ScoredRow:
    """One row with its prediction; `Unscored` with the reason where there is none."""
    metric, measured = row.text("metric"), row.number("value")
    if metric not in METRICS or not measured or measured <= 0:
        raise Unscored("no value" if metric in METRICS else f"metric {metric!r} is not known for layered networks")
    job, fills = network_job(row, catalog)
    estimate = estimate_network_step(job)
    step_s = Interval.from_sigma(estimate.step_s.best, quadrature(estimate.step_s.sigma, *(FILL_SIGMA for _ in fills)))
    images = job.batch_count * job.devices_count
    predicted = step_s if metric == "step_time_s" else step_s.inverted(images)
    naive_s = _naive_step_s(job)
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=job.system.chip.id,
        family=row.text("family"),
        metric=metric,
        unit="s" if metric == "step_time_s" else "1/s",
        measured=measured,
        predicted=predicted.best,
        low=predicted.low,
        high=predicted.high,
        baseline=naive_s if metric == "step_time_s" else images / naive_s,
        is_time=metric == "step_time_s",
        fills=tuple(fills),
        notes=tuple(note.text for note in estimate.notes),
    )


def network_job(row: Row, catalog: Catalog) -> tuple[NetworkTrainingJob, list[str]]:
    """The job that a row states, with the fills that it needed."""
    fills: list[str] = []
    network = row_network(row)
    if network is None:
        raise Unscored(f"layer graph of {row.text('model')!r} not known")
    devices = row.count("n_devices")
    if not devices:
        raise Unscored("number of devices not stated")
    system = system_of(row, catalog, fills)
    precision = _precision(row, system, fills)
    whole = row.count("global_batch")
    if whole and whole < devices:
        raise Unscored("less than one sample a device: spatial parallelism is not modelled")
    if "resolution mix not in the table" in row.text("note"):
        raise Unscored("mix of resolutions not stated")
    job = NetworkTrainingJob(
        network=network,
        devices_count=devices,
        batch_count=1.0,
        precision=precision,
        system=system,
        calibration=catalog.calibration(system.chip.id),
        software=_software(row, catalog, fills),
        optimizer=OPTIMIZERS.get(row.text("family"), "sgd"),
    )
    return replace(job, batch_count=_batch(row, job, devices, fills)), fills


def network_estimate_of(row: Row, catalog: Catalog) -> tuple[NetworkTrainingEstimate, list[str]]:
    """The whole estimate of a row, for memory and for looking at terms."""
    job, fills = network_job(row, catalog)
    return estimate_network_step(job), fills


def _precision(row: Row, system: System, fills: list[str]) -> str:
    stated = row.text("precision")
    if stated:
        return stated
    filled = "fp16" if system.chip.has_peak("fp16") else "bf16"
    fills.append(f"precision not stated: {filled}, mixed precision as usual for the benchmark")
    return filled


def _software(row: Row, catalog: Catalog, fills: list[str]) -> SoftwareProfile:
    text = row.text("framework")
    name = MLPERF_SOFTWARE.get(row.text("model"), "") if row.source == "mlperf" else ""
    name = name or next((name for start, name in SOFTWARE if text.startswith(start)), "")
    if not name:
        name = "pytorch-ddp-1.9"
        fills.append("framework not known for layered networks: PyTorch data parallel")
    software = catalog.software(name, release_date(row))
    if "contiguous layout" in row.text("note"):
        return replace(software, channels_last=False)
    return software


def _batch(row: Row, job: NetworkTrainingJob, devices: int, fills: list[str]) -> float:
    """Images on each device: stated, or the whole batch shared, or the largest usual one that fits."""
    whole, own = row.count("global_batch"), row.count("micro_batch")
    if whole:
        return whole / devices
    if own:
        return float(own)
    most = min(LARGEST_FILLED_BATCH, largest_batch_count(job, 1))
    filled = 1 << (most.bit_length() - 1)
    fills.append(f"batch not stated: {filled} on each device, the largest power of two that fits up to 256")
    return float(filled)


def _naive_step_s(job: NetworkTrainingJob) -> float:
    """Step time at a flat share of the dense peak."""
    chip = job.system.chip
    wide = job.precision if job.precision in ("fp32", "tf32") else "bf16"
    peak = chip.peak(wide if chip.has_peak(wide) else job.precision)
    return 3 * job.network.forward_flop(training=True) * job.batch_count / (NAIVE_PEAK_FRAC * peak)
