"""Scoring rows of other networks: encoders as transformers; what is not modelled is counted by its kind."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.core.interval import Z_80
from ridgeline.errors import RidgelineError
from ridgeline.serving import ServingEstimate, ServingJob, estimate_serving
from ridgeline.specs import Calibration, Load
from ridgeline.validation.baseline import compute_baseline_s
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored, score_each
from ridgeline.validation.inference_arrays import is_array_row, score_array_row
from ridgeline.validation.inference_diffusion import is_denoiser_row, score_denoiser_row
from ridgeline.validation.inference_encoders import EncoderCase, encoder_case, encoder_id
from ridgeline.validation.inference_networks import is_network_row, score_network_row
from ridgeline.validation.scores import Report, ScoredRow
from ridgeline.workload.flop import forward_flop_per_token

METRICS = ("samples_s", "latency_ms", "p99_ms")
MILLI = 1e3
# Kinds of networks that are not modelled, by words of model and task columns; the first match names the reason.
KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("text-to-image", "text-to-video", "stable diffusion", "stable-diffusion", "image generation"), "diffusion"),
    (("dlrm",), "recommendation"),
    (("rnnt", "rnn-t"), "recurrent transducer"),
    (("whisper",), "speech encoder-decoder"),
    (("rgat",), "graph neural"),
    (("perceiver",), "perceiver"),
    (("detection", "ssd", "yolo", "retinanet"), "detection"),
    (("3d-unet", "unet", "segmentation"), "segmentation"),
)


@dataclass(slots=True)
class Session:
    """What a run computes once: calibrations and estimates."""

    catalog: Catalog
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    estimates: dict[object, ServingEstimate | RidgelineError] = field(default_factory=dict)

    def estimate(self, case: EncoderCase, load: Load) -> ServingEstimate:
        """The estimate of a case under a load; errors are remembered and raised again."""
        chip = case.system.chip.id
        if chip not in self.calibrations:
            self.calibrations[chip] = self.catalog.calibration(chip)
        key = (case.model.id, case.plan, case.system.id, case.engine, load)
        if key not in self.estimates:
            job = ServingJob(
                model=case.model,
                plan=case.plan,
                system=case.system,
                calibration=self.calibrations[chip],
                engine=case.engine,
                load=load,
            )
            try:
                self.estimates[key] = estimate_serving(job)
            except RidgelineError as error:
                self.estimates[key] = error
        found = self.estimates[key]
        if isinstance(found, RidgelineError):
            raise found
        return found


def score_other(rows: list[Row], path: str, catalog: Catalog) -> Report:
    """Predictions for every row that states enough of a network that is modelled."""
    session = Session(catalog)
    return score_each("inference", rows, path, lambda row: score_row(row, session))


def score_row(row: Row, session: Session) -> ScoredRow:
    """One row with its prediction; `Unscored` with the reason where there is none."""
    if is_denoiser_row(row):
        return score_denoiser_row(row, session.catalog)
    if is_array_row(row):
        return score_array_row(row, session.catalog)
    if is_network_row(row):
        return score_network_row(row, session.catalog)
    metric, measured = row.text("metric"), row.number("value")
    if metric not in METRICS:
        raise Unscored(f"metric {metric!r} is not known")
    if not measured or measured <= 0:
        raise Unscored("no value")
    name = encoder_id(row.text("model"), session.catalog)
    if name is None or session.catalog.model_record(name).config.get("model_type") in ("resnet", "convnext"):
        raise Unscored(f"{kind_of(row)} networks are not modelled yet")
    case = encoder_case(row, name, session.catalog)
    estimate = session.estimate(case, case.load)
    predicted = _widened(case, estimate, metric, session)
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=case.system.chip.id,
        family=row.text("task") or "encoder",
        metric=metric,
        unit="1/s" if metric == "samples_s" else "ms",
        measured=measured,
        predicted=predicted.best,
        low=predicted.low,
        high=predicted.high,
        baseline=_baseline(case, estimate, metric),
        is_time=metric != "samples_s",
        fills=tuple(text for text, _ in case.fills),
        notes=(f"{estimate.mode}, {estimate.plan.label()}, {case.engine.id}", *estimate.reasons),
    )


def kind_of(row: Row) -> str:
    """The kind of network that a row names, for the count of what is not modelled."""
    text = f"{row.text('model')} {row.text('task')}".lower()
    for words, kind in KINDS:
        if any(word in text for word in words):
            return kind
    return "convolutional"


def _read(estimate: ServingEstimate, metric: str) -> Interval:
    return estimate.requests_per_s if metric == "samples_s" else estimate.e2e_s.scaled(MILLI)


def _widened(case: EncoderCase, estimate: ServingEstimate, metric: str, session: Session) -> Interval:
    """The figure in the row's metric, as wide as kernels, fills and assumed lengths make it."""
    value = _read(estimate, metric)
    sigmas = [value.sigma, *(sigma for _, sigma in case.fills)]
    if case.input_range is not None:
        ends = [
            _read(session.estimate(case, replace(case.load, input_tokens=tokens)), metric).best
            for tokens in case.input_range
        ]
        sigmas.append(abs(math.log(ends[1] / ends[0])) / (2 * Z_80))
    return Interval.from_sigma(value.best, quadrature(*sigmas))


def _baseline(case: EncoderCase, estimate: ServingEstimate, metric: str) -> float | None:
    """Half of the peak on the network's own FLOP."""
    tokens = max(1.0, case.load.input_tokens)
    flop = forward_flop_per_token(case.model, tokens, causal_half=False) * tokens
    try:
        each_s = compute_baseline_s(
            flop, case.system.chip, case.plan.activation_precision, case.plan.devices_per_replica_count
        )
    except RidgelineError:
        return None
    if metric == "samples_s":
        return case.plan.replica_count / each_s
    count = (case.load.concurrency_count or 1.0) / case.plan.replica_count
    return count * each_s * MILLI
