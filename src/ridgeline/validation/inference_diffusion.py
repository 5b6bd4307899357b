"""Rows of diffusion transformers: model, steps, size and parallel degrees, and the row's figure as Ridgeline has it."""

from __future__ import annotations

import re
from functools import lru_cache

from ridgeline.catalog import Catalog
from ridgeline.core import quadrature
from ridgeline.errors import RidgelineError
from ridgeline.serving.denoising import DenoisingEstimate, DenoisingJob, estimate_denoising
from ridgeline.validation.baseline import compute_baseline_s
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_encoders import machine_of
from ridgeline.validation.scores import ScoredRow
from ridgeline.workload.convnets.transformers import DENOISING, decoder
from ridgeline.workload.denoising import PRECISION, SequenceSplit

MILLI = 1e3
# Names of rows to models: exact, no guesses.
DENOISERS: dict[str, str] = {
    "Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers": "sana-1.5-1.6b",
    "Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers": "sana-1.5-4.8b",
    "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS": "pixart-sigma-xl",
    "Tencent-Hunyuan/HunyuanDiT-v1.2-Diffusers": "hunyuandit-1.2",
    "Wan-AI/Wan2.1-T2V-1.3B-Diffusers": "wan2.1-1.3b",
    "Wan-AI/Wan2.1-T2V-14B-Diffusers": "wan2.1-14b",
    "black-forest-labs/FLUX.1-dev": "flux.1-dev",
    "stabilityai/stable-diffusion-3.5-large": "sd-3.5-large",
    "stabilityai/stable-diffusion-3.5-medium": "sd-3.5-medium",
    "tencent/HunyuanVideo": "hunyuanvideo",
    "zai-org/CogVideoX-2b": "cogvideox-2b",
    "zai-org/CogVideoX1.5-5B": "cogvideox-1.5-5b",
}
# Counts of element-wise passes and attention back ends follow one release of the reference code: assumed spread of the
# whole (log standard deviation).
PASSES_SIGMA = 0.2
_SHAPE = re.compile(r"(\d+)x(\d+)(?: x(\d+) frames)?, (\d+) steps")
_SPLIT = re.compile(r"ulysses (\d+) ring (\d+)")


def is_denoiser_row(row: Row) -> bool:
    """Whether the row is about a diffusion transformer that is known."""
    return row.text("model") in DENOISERS


def score_denoiser_row(row: Row, catalog: Catalog) -> ScoredRow:
    """One row with its prediction; `Unscored` with the reason where there is none."""
    measured = row.number("value")
    if row.text("metric") != "latency_ms" or not measured or measured <= 0:
        raise Unscored("no latency")
    job = denoising_job(row, catalog)
    estimate = _remembered(job)
    value = estimate.latency_s.scaled(MILLI)
    predicted = type(value).from_sigma(value.best, quadrature(value.sigma, PASSES_SIGMA))
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=job.system.chip.id,
        family=row.text("task"),
        metric="latency_ms",
        unit="ms",
        measured=measured,
        predicted=predicted.best,
        low=predicted.low,
        high=predicted.high,
        baseline=_baseline(job, estimate),
        is_time=True,
        notes=(f"{job.model.id}, {job.engine.id}, ulysses {job.split.ulysses_count} ring {job.split.ring_count}",),
    )


def denoising_job(row: Row, catalog: Catalog) -> DenoisingJob:
    """The job that a row states."""
    shape, split = _SHAPE.search(row.text("input_shape_or_seq")), _SPLIT.search(row.text("note"))
    batch = row.number("batch")
    if shape is None or batch is None:
        raise Unscored("size, steps or batch not stated")
    if not row.text("engine").startswith("xDiT"):
        raise Unscored(f"engine {row.text('engine')[:40]!r} is not modelled")
    height, width, frames, steps = (int(part) if part else 1 for part in shape.groups())
    model = DENOISING[DENOISERS[row.text("model")]]
    system, _ = machine_of(row, catalog)
    degrees = (int(split.group(1)), int(split.group(2))) if split else (row.count("n_devices") or 1, 1)
    return DenoisingJob(
        model=model,
        decoder=decoder(model.decoder, _latent(model.decoder, height, width, model.latent_frames(frames))),
        batch_count=batch,
        steps_count=float(steps),
        picture_tokens=model.picture_tokens(height, width, frames),
        split=SequenceSplit(ulysses_count=degrees[0], ring_count=degrees[1]),
        system=system,
        calibration=catalog.calibration(system.chip.id),
        engine=catalog.engine("xdit"),
    )


def _latent(name: str, height: int, width: int, frames: int) -> tuple[int, ...]:
    """Size of the latent: an eighth of the picture (a 32nd for the deep decoder), with its frames for a film."""
    edge = 32 if name == "deep-decoder" else 8
    plane = (height // edge, width // edge)
    return (frames, *plane) if name.startswith("film") else plane


@lru_cache(maxsize=2048)
def _remembered(job: DenoisingJob) -> DenoisingEstimate:
    return estimate_denoising(job)


def _baseline(job: DenoisingJob, estimate: DenoisingEstimate) -> float | None:
    """Half of the peak on the denoiser's own FLOP."""
    flop = estimate.flop_per_s_per_device * estimate.latency_s.best
    try:
        return compute_baseline_s(flop, job.system.chip, PRECISION, 1) * MILLI
    except RidgelineError:
        return None
