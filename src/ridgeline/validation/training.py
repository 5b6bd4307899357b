"""Scoring training throughput: each row becomes a job, its step time the metric that the row states."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.specs import LayerRun, SoftmaxAttention, Stack, TrainingPlan, Transformer
from ridgeline.training import Setting, TrainingEstimate, TrainingJob, complete_plan, estimate_step
from ridgeline.validation.corpus import Row, read_rows
from ridgeline.validation.each_row import Unscored, score_each
from ridgeline.validation.network_names import row_network
from ridgeline.validation.scores import Report, ScoredRow
from ridgeline.validation.training_lambda import counted_frac
from ridgeline.validation.training_networks import FAMILIES, score_network_row
from ridgeline.validation.training_rows import TrainingCase, training_case
from ridgeline.validation.training_suspects import SUSPECTS
from ridgeline.workload.training_flop import step_flop

# How much a filled input widens the interval (log standard deviation of each): between the spread of layouts that
# sources tried (3-10 % in step time) and of software releases (5 %): assumed.
FILL_SIGMA = 0.05
# The naive figure that every prediction must beat: this share of the dense 16-bit peak, faster in fewer bits.
NAIVE_PEAK_FRAC = 0.5
NAIVE_SPEEDUP = {"fp8": 1.5, "nvfp4": 2.2, "mxfp4": 2.2, "fp4": 2.2}
METRICS = ("step_time_s", "tokens_per_s_per_device", "samples_per_s_total", "tflops_per_device", "mfu")


def score_training(path: str, catalog: Catalog) -> Report:
    """Predictions for every row of a training file that states enough."""
    rows = read_rows(path, "training")
    return score_each("training", rows, path, lambda row: score_row(row, catalog))


def score_row(row: Row, catalog: Catalog) -> ScoredRow:
    """One row with its prediction; `Unscored` with the reason where there is none."""
    if row.id in SUSPECTS:
        raise Unscored(f"contradicts its own table: {SUSPECTS[row.id]}")
    if row.text("family") in FAMILIES and row_network(row) is not None:
        return score_network_row(row, catalog)
    metric, measured = row.text("metric"), row.number("value")
    if metric not in METRICS or not measured or measured <= 0:
        raise Unscored("no value" if metric in METRICS else f"metric {metric!r} is not known")
    case = training_case(row, catalog)
    job, fills = job_of(case, catalog)
    estimate = estimate_step(job)
    widened = quadrature(estimate.step_s.sigma, *(FILL_SIGMA for _ in fills))
    step_s = Interval.from_sigma(estimate.step_s.best, widened)
    predicted = in_metric(metric, step_s, row, job)
    naive_s = baseline_step_s(job)
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=job.system.chip.id,
        family=row.text("family") or "llm",
        metric=metric,
        unit={"step_time_s": "s", "mfu": "1", "tflops_per_device": "TFLOP/s"}.get(metric, "1/s"),
        measured=measured,
        predicted=predicted.best,
        low=predicted.low,
        high=predicted.high,
        baseline=in_metric(metric, Interval.exact(naive_s), row, job).best,
        is_time=metric == "step_time_s",
        fills=tuple(fills),
        notes=tuple(note.text for note in estimate.notes),
    )


def job_of(case: TrainingCase, catalog: Catalog) -> tuple[TrainingJob, list[str]]:
    """The job of a case, with every fill that it needed."""
    if case.made.model is None:
        raise Unscored(case.made.reason)
    calibration = catalog.calibration(case.system.chip.id)
    setting = Setting(model=case.made.model, system=case.system, calibration=calibration, software=case.software)
    plan, notes = complete_plan(case.draft, setting)
    job = TrainingJob(
        model=case.made.model, plan=plan, system=case.system, calibration=calibration, software=case.software
    )
    return job, [*case.fills, *(note.text for note in notes if note.kind == "fill")]


def estimate_of(row: Row, catalog: Catalog) -> tuple[TrainingEstimate, list[str]]:
    """The whole estimate of a row, for memory and for looking at terms."""
    job, fills = job_of(training_case(row, catalog), catalog)
    return estimate_step(job), fills


def in_metric(metric: str, step_s: Interval, row: Row, job: TrainingJob) -> Interval:
    """A step time in the metric of a row."""
    plan = job.plan
    if metric == "step_time_s":
        return step_s
    if metric == "samples_per_s_total":
        return step_s.inverted(plan.global_batch_count * counted_frac(row))
    if metric == "tokens_per_s_per_device":
        tokens = plan.global_batch_count * (row.count("seq_len") or plan.sequence_tokens)
        return step_s.inverted(tokens / plan.devices_count)
    flop = convention_flop(row, job)
    if metric == "tflops_per_device":
        return step_s.inverted(flop / plan.devices_count / 1e12)
    return step_s.inverted(flop / plan.devices_count / job.system.chip.peak(plan.precision))


def convention_flop(row: Row, job: TrainingJob) -> float:
    """FLOP of one step as the source of a row counts them.

    Megatron 2021 counts 96 B s l h^2 (1 + s / 6h + V / 16 l h), full recompute included (narayanan-2021, equation 3);
    "8 N" counts eight operations a parameter and token; NeMo and MaxText count the whole attention square,
    Megatron-Bridge and newer ones half of it; nobody counts table look-ups but "6 N" and "8 N".
    """
    text, plan, model = row.text("flops_convention").lower(), job.plan, job.model
    tokens = plan.global_batch_count * plan.sequence_tokens
    if "96bslh2" in text:
        hidden, layers, sequence = model.hidden_count, model.layers_count, plan.sequence_tokens
        square = 1 + sequence / (6 * hidden) + model.vocab_count / (16 * layers * hidden)
        return 96 * tokens * layers * hidden**2 * square
    if "8*n*tokens" in text:
        return 8 * (row.number("params_b") or model.parameters_count / 1e9) * 1e9 * tokens
    if "6n" in text:
        return 6 * model.active_parameters_count * tokens + _square_flop(model, plan)
    if "causal" in text and "non-causal" not in text:
        return step_flop(model, plan)
    if "megatron-bridge" in text:
        return step_flop(model, plan)
    return step_flop(full_square(model), plan)


def _square_flop(model: Transformer, plan: TrainingPlan) -> float:
    """12 L h s a token: the whole attention square, forward and backward."""
    whole = full_square(model)
    heads = sum(
        run.repeat_count * mixer.heads_count * (mixer.key_dim_count + mixer.value_dim_count)
        for run in whole.main.runs
        for mixer in run.layer.mixers
        if isinstance(mixer, SoftmaxAttention)
    )
    return 6.0 * heads * plan.sequence_tokens**2 * plan.global_batch_count


def full_square(model: Transformer) -> Transformer:
    """The same model with attention counted over the whole square of positions."""

    def opened(run: LayerRun) -> LayerRun:
        mixers = tuple(
            replace(mixer, causal=False) if isinstance(mixer, SoftmaxAttention) else mixer for mixer in run.layer.mixers
        )
        return replace(run, layer=replace(run.layer, mixers=mixers))

    def stack(part: Stack) -> Stack:
        return replace(part, runs=tuple(opened(run) for run in part.runs))

    return replace(model, main=stack(model.main), others=tuple(stack(part) for part in model.others))


def baseline_step_s(job: TrainingJob) -> float:
    """Step time at a flat share of the dense 16-bit peak (that of the plan where it has no 16-bit peak)."""
    chip, precision = job.system.chip, job.plan.precision
    wide = precision if precision in ("fp32", "tf32") else "bf16"
    peak = chip.peak(wide if chip.has_peak(wide) else precision) * NAIVE_SPEEDUP.get(precision, 1.0)
    return step_flop(job.model, job.plan) / (NAIVE_PEAK_FRAC * peak * job.plan.devices_count)
