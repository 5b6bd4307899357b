"""Scoring serving and generation rows: each row becomes a job, its estimate the metric that the row states."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, quadrature
from ridgeline.core import model as formula
from ridgeline.core.interval import Z_80
from ridgeline.errors import Infeasible, RidgelineError
from ridgeline.serving import ServingEstimate, ServingJob, estimate_serving
from ridgeline.specs import Calibration, Load, ServingPlan
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored, score_each
from ridgeline.validation.inference_baseline import llm_baseline
from ridgeline.validation.inference_cases import LlmCase, llm_case, queued_requests
from ridgeline.validation.inference_suspects import RELABELLED, SUSPECTS
from ridgeline.validation.scores import Report, ScoredRow

# What each metric is read from, in its unit; the corpus gives times in thousandths of a second.
MILLI = 1e3
RATES: dict[str, Callable[[ServingEstimate], Interval]] = {
    "output_tok_s_total": lambda e: e.output_tokens_per_s,
    "total_tok_s": lambda e: e.total_tokens_per_s,
    "tok_s_per_device": lambda e: e.output_tokens_per_s_per_device,
    "requests_s": lambda e: e.requests_per_s,
    "decode_tok_s": lambda e: e.tpot_s.inverted(_replica_batch(e)),
    "prefill_tok_s": lambda e: e.ttft_s.inverted(_replica_batch(e) * e.load.input_tokens),
}
TIMES: dict[str, Callable[[ServingEstimate], Interval]] = {
    "ttft_ms": lambda e: e.ttft_s.scaled(MILLI),
    "tpot_ms": lambda e: e.tpot_s.scaled(MILLI),
    "latency_ms": lambda e: e.e2e_s.scaled(MILLI),
}
# Sources whose time between tokens is the median of all gaps (`median_itl_ms`), not the mean of a request.
MEDIAN_GAPS = ("ML.ENERGY leaderboard",)
# Tokens that a run must generate for the metric to mean something: the first one has no time between tokens.
LEAST_OUTPUT = {"output_tok_s_total": 1, "tok_s_per_device": 1, "decode_tok_s": 2, "tpot_ms": 2}
UNITS = {**dict.fromkeys(RATES, "1/s"), **dict.fromkeys(TIMES, "ms")}
# Spread of an offered rate that is met: what arrived in the measured window differs from the rate that was asked for.
OFFERED_SIGMA = 0.03


def reader(metric: str, title: str) -> Callable[[ServingEstimate], Interval]:
    """How the figure of `metric` is read from an estimate, as the source of that title defines it."""
    if metric == "tpot_ms" and title.startswith(MEDIAN_GAPS):
        return lambda e: Interval.from_sigma(e.median_gap_s * MILLI, e.tpot_s.sigma)
    return RATES.get(metric) or TIMES[metric]


def _replica_batch(estimate: ServingEstimate) -> float:
    return estimate.running_count


@dataclass(slots=True)
class Session:
    """What a run computes once: calibrations and estimates of jobs that differ in nothing but the metric."""

    catalog: Catalog
    calibrations: dict[str, Calibration] = field(default_factory=dict)
    estimates: dict[object, ServingEstimate | RidgelineError] = field(default_factory=dict)

    def calibration(self, chip: str) -> Calibration:
        """The laws of a chip."""
        if chip not in self.calibrations:
            self.calibrations[chip] = self.catalog.calibration(chip)
        return self.calibrations[chip]

    def estimate(self, case: LlmCase, plan: ServingPlan, load: Load) -> ServingEstimate:
        """The estimate of one layout under one load; errors are remembered and raised again."""
        key = (case.model.id, bool(case.model.precisions), plan, case.system.id, case.engine, load)
        if key not in self.estimates:
            job = ServingJob(
                model=case.model,
                plan=plan,
                system=case.system,
                calibration=self.calibration(case.system.chip.id),
                engine=case.engine,
                load=load,
            )
            try:
                self.estimates[key] = in_waves(job)
            except RidgelineError as error:
                self.estimates[key] = error
        found = self.estimates[key]
        if isinstance(found, RidgelineError):
            raise found
        return found


def in_waves(job: ServingJob) -> ServingEstimate:
    """The estimate; a static batch larger than what fits runs as several batches, one after the other."""
    estimate = estimate_serving(job)
    if not job.load.static_batch or not estimate.reasons:
        return estimate
    count = job.load.concurrency_count or 1.0
    waves = math.ceil(count / max(1.0, estimate.max_running_count))
    if waves <= 1:
        return estimate
    part = estimate_serving(job.with_load(concurrency_count=count / waves))
    return replace(
        part,
        ttft_s=part.ttft_s.scaled((waves + 1) / 2),
        e2e_s=part.e2e_s.scaled(float(waves)),
        running_count=part.running_count,
    )


def score_llm(rows: list[Row], path: str, catalog: Catalog) -> Report:
    """Predictions for every row that states enough."""
    session = Session(catalog)
    return score_each("inference", rows, path, lambda row: score_row(row, session))


def score_row(row: Row, session: Session) -> ScoredRow:
    """One row with its prediction; `Unscored` with the reason where there is none."""
    if row.id in SUSPECTS:
        raise Unscored(SUSPECTS[row.id])
    metric, measured = RELABELLED.get(row.id, row.text("metric")), row.number("value")
    if metric not in UNITS:
        raise Unscored(f"metric {metric!r} is not known")
    if not measured or measured <= 0:
        raise Unscored("no value")
    case = llm_case(row, session.catalog)
    if case.load.output_tokens < LEAST_OUTPUT.get(metric, 0):
        raise Unscored(f"metric {metric!r} of a run that generates too few tokens")
    estimate, predicted = predict(case, metric, session)
    is_time = metric in TIMES
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=case.system.chip.id,
        family="llm",
        metric=metric,
        unit=UNITS[metric],
        measured=measured,
        predicted=predicted.best,
        low=predicted.low,
        high=predicted.high,
        baseline=llm_baseline(case, estimate, metric),
        is_time=is_time,
        fills=tuple(text for text, _ in case.fills),
        notes=_notes(row, metric, estimate),
    )


def _notes(row: Row, metric: str, estimate: ServingEstimate) -> tuple[str, ...]:
    notes = [f"{estimate.mode}, {estimate.plan.label()}, bound by {estimate.binding}"]
    if metric != row.text("metric"):
        notes.append(f"read as {metric}")
    return (*notes, *estimate.reasons)


def predict(case: LlmCase, metric: str, session: Session) -> tuple[ServingEstimate, Interval]:
    """The estimate that stands for a case and its figure in `metric`, as wide as kernels, fills and ranges make it."""
    found = _estimates(case, case.load, session)
    read = reader(metric, case.row.text("source_title"))
    if case.layouts.choice == "best":
        # Whoever submits a rate takes the layout with the best one.
        chosen = max(found, key=lambda e: e.requests_per_s.best)
        value, spread = read(chosen), 0.0
    else:
        chosen = found[0]
        values = [read(each).best for each in found]
        best = math.exp(sum(math.log(v) for v in values) / len(values))
        value = Interval.from_sigma(best, read(chosen).sigma)
        spread = math.log(max(values) / min(values)) / (2 * Z_80)
    sigmas = [value.sigma, spread, *(sigma for _, sigma in case.fills)]
    if case.load.rate_per_s is not None and value.sigma == 0.0:
        sigmas.append(OFFERED_SIGMA)
    sigmas += [_range_sigma(case, load, read, chosen.plan, session) for load in _other_lengths(case)]
    return chosen, Interval.from_sigma(value.best, quadrature(*sigmas))


def _estimates(case: LlmCase, load: Load, session: Session) -> list[ServingEstimate]:
    """Estimates of all layouts that can be; the error of the last where none can."""
    found: list[ServingEstimate] = []
    failed: Infeasible | None = None
    for plan in case.layouts.plans:
        try:
            most = session.estimate(case, plan, load)
            found.append(_as_run(case, most, session))
        except Infeasible as error:
            failed = error
    if not found and failed is not None:
        raise Unscored("the model does not fit the stated devices and layout by our account") from failed
    met = [each for each in found if each.feasible]
    return met or found


def _as_run(case: LlmCase, most: ServingEstimate, session: Session) -> ServingEstimate:
    """The estimate of the run that was measured, where `most` is the steady state at its fullest."""
    if case.at_random:
        return _arriving(case, most, session)
    requests = queued_requests(case)
    return most if requests is None else _finite(case, most, requests, session)


def _finite(case: LlmCase, most: ServingEstimate, requests: float, session: Session) -> ServingEstimate:
    """A run of so many requests, all queued at its start: the last that fit at once run to their end together, as a
    batch that starts together; those before them leave at the rate of the steady state."""
    together = min(float(requests), most.running_count)
    load = replace(most.load, concurrency_count=together, static_batch=True)
    last = session.estimate(case, most.plan, load)
    rate = most.requests_per_s.best
    elapsed_s = (requests - together) / rate + together / last.requests_per_s.best
    share = requests / elapsed_s / rate
    return replace(
        most,
        requests_per_s=most.requests_per_s.scaled(share),
        output_tokens_per_s=most.output_tokens_per_s.scaled(share),
        total_tokens_per_s=most.total_tokens_per_s.scaled(share),
    )


def _arriving(case: LlmCase, most: ServingEstimate, session: Session) -> ServingEstimate:
    """The estimate at the mean number in service that arrivals at random allow, where `most` is as full as the limits
    permit."""
    mean = staffed_count(most.running_count)
    if not most.feasible or mean < 1.0:
        return most
    free = {"ttft_p95_s": None, "tpot_p95_s": None, "e2e_p95_s": None}
    load = replace(most.load, concurrency_count=mean, **free)  # type: ignore[arg-type]
    usual = session.estimate(case, most.plan, load)
    return replace(usual, mode=most.mode, binding=most.binding, reasons=most.reasons, feasible=True)


@formula(id="square-root-staffing", sources=("halfin-whitt-1981", "normal-quantiles"))
def staffed_count(limit_count: float) -> float:
    """Mean number in service whose 99th percentile is `limit_count` when requests arrive at random.

    The number in service is about Poisson with mean n where places are plenty: n + z sqrt(n) = limit, z = 2.326.

    >>> round(staffed_count(1000), 1), round(staffed_count(25), 1)
    (929.1, 15.8)
    """
    half = 2.326 / 2  # src: normal-quantiles
    return float((math.sqrt(half * half + max(0.0, limit_count)) - half) ** 2)


def _other_lengths(case: LlmCase) -> list[tuple[Load, Load]]:
    """Pairs of loads at the ends of assumed lengths."""
    pairs = []
    for name, ends in (("input_tokens", case.lengths.input_range), ("output_tokens", case.lengths.output_range)):
        if ends is not None:
            pairs.append((replace(case.load, **{name: ends[0]}), replace(case.load, **{name: ends[1]})))  # type: ignore[arg-type]
    return pairs


def _range_sigma(
    case: LlmCase,
    loads: tuple[Load, Load],
    read: Callable[[ServingEstimate], Interval],
    plan: ServingPlan,
    session: Session,
) -> float:
    """Log standard deviation that the range of an assumed length stands for."""
    try:
        values = [read(session.estimate(case, plan, load)).best for load in loads]
    except Infeasible:
        return 0.1
    return abs(math.log(values[1] / values[0])) / (2 * Z_80) if min(values) > 0 else 0.1
