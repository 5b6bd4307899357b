"""Power and energy an item of pictures and films of diffusion transformers, from the sensors of their GPUs."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.power import Activity, PowerLaw, estimate_chips
from ridgeline.serving.denoising import DenoisingEstimate, estimate_denoising
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_diffusion import PASSES_SIGMA, denoising_job, is_denoiser_row
from ridgeline.validation.power import power_law, score_figures, share
from ridgeline.validation.scores import Report, ScoredRow

# Parts of a batch in which the units of a chip rest.
_RESTING = ("exchange", "launches", "host", "pictures to the host")
# Share of the memory bandwidth beside products of long sequences: assumed, 0.1 to 0.5; it moves the power by 4 %.
_MEMORY_FRAC = 0.3  # src: rl-power-form


def score_diffusion_power(rows: list[Row], path: str, catalog: Catalog) -> Report:
    """Power of all chips and energy of an item for every row that states enough."""
    law = replace(power_law(catalog), compute_share_frac=share(catalog, "denoising_compute_share_frac"))
    return score_figures(rows, path, lambda row: _score(row, catalog, law))


def denoiser_row(row: Row) -> Row:
    """The row in the columns of an inference file."""
    frames = row.text("num_frames")
    shape = f"{row.text('height')}x{row.text('width')}" + (f" x{frames} frames" if frames else "")
    cells = {
        "id": row.id,
        "source_title": f"ML.ENERGY leaderboard ({row.text('task')})",
        "model": row.text("model_id"),
        "task": row.text("task"),
        "input_shape_or_seq": f"{shape}, {row.text('inference_steps')} steps",
        "device": row.text("gpu"),
        "n_devices": row.text("n_gpus"),
        "engine": "xDiT",
        "precision": row.text("weight_precision"),
        "batch": row.text("batch_size"),
        "note": f"ulysses {row.text('ulysses')} ring {row.text('ring')}",
    }
    return Row(cells, row.line)


def denoising_activity(estimate: DenoisingEstimate, peak_flop_per_s: float) -> Activity:
    """How busy a chip is in a batch; its units rest during exchanges and while the host issues or takes over."""
    whole_s = estimate.time.value
    waiting_s = sum(estimate.time.value_of(name) for name in _RESTING)
    return Activity(
        compute_frac=min(1.0, estimate.flop_per_s_per_device / peak_flop_per_s),
        memory_frac=_MEMORY_FRAC,
        waiting_frac=min(1.0, waiting_s / whole_s),
    )


def _score(row: Row, catalog: Catalog, law: PowerLaw) -> list[ScoredRow]:
    measured = {"power": row.number("avg_power_w"), "energy": row.number("energy_per_item_j")}
    if not all(measured.values()):
        raise Unscored("power or energy not stated")
    stated = denoiser_row(row)
    if not is_denoiser_row(stated):
        raise Unscored(f"model {row.text('model_id')[:40]!r} has no configuration in the catalogue")
    job = denoising_job(stated, catalog)
    estimate = estimate_denoising(job)
    chip, devices = job.system.chip, job.split.devices_count
    power = estimate_chips(job.system, devices, denoising_activity(estimate, chip.peak("bf16")), law)
    each_s = estimate.latency_s.best / job.batch_count
    energy = Interval.from_sigma(power.best * each_s, quadrature(power.sigma, estimate.latency_s.sigma, PASSES_SIGMA))
    tdp_w = devices * (chip.tdp_w or 0.0)
    return [
        ScoredRow(
            id=f"{row.id}.{name}",
            source=row.source,
            device=chip.id,
            family=f"gpu {name}",
            metric=name,
            unit=unit,
            measured=measured[name] or 0.0,
            predicted=value.best,
            low=value.low,
            high=value.high,
            baseline=baseline,
            fills=("traffic to the memory assumed",),
            notes=(f"{job.model.id}, {devices} x {chip.id}",),
        )
        for name, value, unit, baseline in (
            ("power", power, "W", tdp_w),
            ("energy", energy, "J", tdp_w * each_s),
        )
    ]
