"""Power and energy a token of LLM serving runs, read from the sensors of their GPUs, against predictions.

A row becomes the serving row that it is of (`inference_cases`), its estimate an activity of the chips, the activity a
power; energy a token is power over the predicted rate, so that an error of the rate shows in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.power import PowerLaw, estimate_chips, serving_activity
from ridgeline.serving import ServingEstimate
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_cases import LlmCase, llm_case
from ridgeline.validation.inference_llm import Session, predict
from ridgeline.validation.power import power_law, score_figures
from ridgeline.validation.scores import Report, ScoredRow


@dataclass(frozen=True, slots=True)
class Prediction:
    """Power of all chips [W], energy of an output token [J] and what both were made of."""

    power_w: Interval
    energy_j: Interval
    case: LlmCase
    estimate: ServingEstimate


def score_llm_power(rows: list[Row], path: str, catalog: Catalog) -> Report:
    """Power and energy of every row that states enough."""
    session, law = Session(catalog), power_law(catalog)
    return score_figures(rows, path, lambda row: _score(row, session, law))


def serving_row(row: Row) -> Row:
    """The row in the columns of an inference file."""
    precision = row.text("weight_precision")
    cells = {
        "id": row.id,
        "source_title": f"ML.ENERGY leaderboard ({row.text('task')})",
        "source_ref": row.text("source_ref"),
        "model": row.text("model_id"),
        "device": row.text("gpu"),
        "n_devices": row.text("n_gpus"),
        "engine": "vLLM",
        "weight_precision": {"bfloat16": "bf16", "float16": "fp16"}.get(precision, precision),
        "tp": row.text("tp") if (row.count("tp") or 1) > 1 else "",
        "ep": row.text("ep") if (row.count("ep") or 1) > 1 else "",
        "batch_or_concurrency": row.text("max_num_seqs"),
        "output_len": row.text("avg_output_len"),
        "metric": "output_tok_s_total",
        "value": row.text("output_tok_s"),
        "note": f"measured avg batch {row.text('avg_batch_size')}",
    }
    return Row(cells, row.line)


def predicted(row: Row, session: Session, law: PowerLaw) -> Prediction:
    """Power and energy of the run that `row` states."""
    case = llm_case(serving_row(row), session.catalog)
    estimate, rate = predict(case, "output_tok_s_total", session)
    activity = serving_activity(case.system.chip, estimate)
    power = estimate_chips(case.system, estimate.plan.devices_count, activity, law)
    energy = Interval.from_sigma(power.best / rate.best, quadrature(power.sigma, rate.sigma))
    return Prediction(power, energy, case, estimate)


def _score(row: Row, session: Session, law: PowerLaw) -> list[ScoredRow]:
    measured = {"power": row.number("avg_power_w"), "energy": row.number("energy_per_token_j")}
    if not all(measured.values()):
        raise Unscored("power or energy not stated")
    found = predicted(row, session, law)
    chip = found.case.system.chip
    tdp_w = found.estimate.plan.devices_count * (chip.tdp_w or 0.0)
    figures = {
        "power": (found.power_w, "W", tdp_w),
        "energy": (found.energy_j, "J", tdp_w / found.estimate.output_tokens_per_s.best),
    }
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
            fills=tuple(text for text, _ in found.case.fills),
            notes=(f"{found.estimate.mode}, {found.estimate.plan.label()}",),
        )
        for name, (value, unit, baseline) in figures.items()
    ]
