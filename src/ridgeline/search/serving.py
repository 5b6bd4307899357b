"""Ranks machines for a serving load: the best layout on each, its latency, throughput, energy and money."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ridgeline.core import FrozenMap, Interval, Note, quadrature
from ridgeline.cost import CostEstimate, estimate_cost
from ridgeline.errors import MissingFact, OutOfMemory
from ridgeline.facility import FacilityEstimate
from ridgeline.power import Activity, PowerEstimate, estimate_power, serving_activity
from ridgeline.search.layouts import MEMORY, MISSING
from ridgeline.search.ranking import counted, energy_of, gathered, ordered, power_note, until_stopped
from ridgeline.search.result import Infeasible, SearchResult, ServingRow, broken_limits
from ridgeline.search.sizing import held_text, shortfall
from ridgeline.search.terms import Machine, Objective, Progress, Terms
from ridgeline.serving import (
    Rejection,
    ServingEstimate,
    ServingJob,
    estimate_serving,
    layout_problems,
    precisions_on,
    serving_layouts,
)
from ridgeline.specs import Chip, Load, ServingPlan, Transformer

LATENCY = "latency or load"
_HOUR_S = 3600.0  # src: si-accepted-units
_MONTH_S = 730.5 * _HOUR_S  # src: julian-year (a twelfth)
_MILLION = 1e6  # src: si-prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRequest:
    """The question: a model, a load, precisions, and parts of the layout that are already decided (`pins`)."""

    model: Transformer
    load: Load
    weight_precision: str = ""
    activation_precision: str = ""
    kv_precision: str = ""
    pins: FrozenMap[str, int] = field(default_factory=FrozenMap)


@dataclass(frozen=True, slots=True)
class _Tried:
    """Estimates of one machine and what fell out."""

    kept: tuple[ServingEstimate, ...]
    broken: tuple[ServingEstimate, ...]
    rejected: dict[str, int]
    memory: str
    missing: str
    tried_count: int


def rank_serving(
    request: ServingRequest, machines: Sequence[Machine], terms: Terms, progress: Progress | None = None
) -> SearchResult[ServingRow]:
    """The best layout of each machine, ranked under the objective of `terms`; infeasible machines with reasons.

    With a rate or a concurrency given, "time" is the 95th-percentile latency of a request, else the throughput. A
    budget is held against a month (a twelfth of a year) of the money that the ranking uses.
    """
    rows: list[ServingRow] = []
    infeasible: list[Infeasible] = []
    tried_counts: list[int] = []

    def search(machine: Machine) -> None:
        if progress is not None:
            progress(f"searching {machine.system.id} x {machine.devices_count}")
        tried = _try_layouts(request, machine)
        found = _best_or_reason(machine, request, tried, terms)
        tried_counts.append(tried.tried_count)
        if isinstance(found, Infeasible):
            infeasible.append(found)
        else:
            rows.append(found)

    unsearched = until_stopped(machines, search)
    ranked = ordered(rows, terms.objective, objective_values)
    return gathered(ranked, infeasible, sum(tried_counts), unsearched)


def _best_or_reason(machine: Machine, request: ServingRequest, tried: _Tried, terms: Terms) -> ServingRow | Infeasible:
    found = [_row(machine, request, estimate, tried, terms) for estimate in tried.kept]
    if not found:
        return _nothing(machine, request, tried)
    ranked = ordered(found, terms.objective, objective_values)
    within = next((row for row in ranked if not _broken(row, terms)), None)
    if within is not None:
        return within
    row = ranked[0]
    broken = _broken(row, terms)
    return Infeasible(
        system_id=machine.system.id,
        devices_count=machine.devices_count,
        reasons=tuple(text for _, text in broken),
        rejected=counted(tried.rejected | {broken[0][0]: len(found)}),
        divided_count=tried.tried_count,
    )


def objective_values(row: ServingRow) -> dict[Objective, float]:
    """What a row costs under each objective: the less the better, infinite where it is not known."""
    load, estimate = row.estimate.load, row.estimate
    offered = load.rate_per_s is not None or load.concurrency_count is not None
    throughput = estimate.requests_per_s.best
    time = estimate.e2e_p95_s if offered else (1.0 / throughput if throughput > 0 else math.inf)
    return {
        "time": time,
        "cost": row.usd_per_mtoken.best if row.usd_per_mtoken is not None else math.inf,
        "energy": math.inf if row.j_per_token is None else row.j_per_token.best,
        "devices": float(row.used_count),
    }


def _try_layouts(request: ServingRequest, machine: Machine) -> _Tried:
    kept: list[ServingEstimate] = []
    broken: list[ServingEstimate] = []
    rejected: dict[str, int] = {}
    memory = missing = ""
    tried = 0
    for plan in _plans(request, machine):
        tried += 1
        try:
            estimate = estimate_serving(_job(request, machine, plan))
        except OutOfMemory as error:
            rejected[MEMORY] = rejected.get(MEMORY, 0) + 1
            memory = str(error)
            continue
        except MissingFact as error:
            rejected[MISSING] = rejected.get(MISSING, 0) + 1
            missing = str(error)
            continue
        if estimate.feasible:
            kept.append(estimate)
        else:
            broken.append(estimate)
            rejected[LATENCY] = rejected.get(LATENCY, 0) + 1
    return _Tried(tuple(kept), tuple(broken), rejected, memory, missing, tried)


def _plans(request: ServingRequest, machine: Machine) -> Iterator[ServingPlan]:
    yield from serving_layouts(
        request.model,
        machine.system,
        machine.devices_count,
        weight_precision=request.weight_precision,
        activation_precision=request.activation_precision,
        kv_precision=request.kv_precision,
        pins=request.pins,
    )


def _job(request: ServingRequest, machine: Machine, plan: ServingPlan) -> ServingJob:
    if machine.engine is None:
        raise MissingFact(f"engine for {machine.system.id}")
    return ServingJob(
        model=request.model,
        plan=plan,
        system=machine.system,
        calibration=machine.calibration,
        engine=machine.engine,
        load=request.load,
    )


def _row(
    machine: Machine, request: ServingRequest, estimate: ServingEstimate, tried: _Tried, terms: Terms
) -> ServingRow:
    tokens_per_s = tokens_of(estimate)
    hour = hour_of(machine, machine.devices_count, lambda: serving_power(machine, estimate, terms), tokens_per_s, terms)
    return ServingRow(
        system=machine.system,
        devices_count=machine.devices_count,
        used_count=estimate.plan.devices_count,
        plan=estimate.plan,
        estimate=estimate,
        power=hour.power,
        facility=hour.facility,
        cost=hour.cost,
        notes=hour.notes,
        usd_per_mtoken=hour.usd_per_mtoken,
        j_per_token=hour.j_per_token,
        calibration=machine.calibration,
        tried_count=tried.tried_count,
        rejected=counted(tried.rejected),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """Power, energy and money of one hour of serving, and of a token; None where a figure is missing."""

    power: PowerEstimate | None
    facility: FacilityEstimate | None
    cost: CostEstimate
    usd_per_mtoken: Interval | None
    j_per_token: Interval | None
    notes: tuple[Note, ...]


def hour_of(
    machine: Machine, devices_count: int, power: Callable[[], PowerEstimate], tokens_per_s: Interval, terms: Terms
) -> Hour:
    """What an hour of `devices_count` devices of `machine` takes and costs while they make `tokens_per_s`."""
    hour = Interval.exact(_HOUR_S)
    drawn, facility, missing = energy_of(power, hour, terms.site)
    cost = estimate_cost(
        machine.system.id,
        devices_count,
        hour,
        None if facility is None else facility.energy_j,
        terms.site,
        machine.quotes,
        terms.cost,
        missing,
    )
    return Hour(
        power=drawn,
        facility=facility,
        cost=cost,
        usd_per_mtoken=_usd_per_mtoken(cost, tokens_per_s),
        j_per_token=None if facility is None else _j_per_token(facility.meter_w, tokens_per_s),
        notes=power_note(machine.system, missing),
    )


def _j_per_token(meter_w: Interval, tokens_per_s: Interval) -> Interval:
    return Interval.from_sigma(meter_w.best / tokens_per_s.best, quadrature(meter_w.sigma, tokens_per_s.sigma))


def tokens_of(estimate: ServingEstimate) -> Interval:
    """Tokens a second that money and energy are spread over: output tokens, or input tokens where none are made."""
    if estimate.output_tokens_per_s.best > 0:
        return estimate.output_tokens_per_s
    return estimate.total_tokens_per_s


def _usd_per_mtoken(cost: CostEstimate, tokens_per_s: Interval) -> Interval | None:
    hourly = cost.headline_usd
    if hourly is None or tokens_per_s.best <= 0:
        return None
    factor = _MILLION / (_HOUR_S * tokens_per_s.best)
    low = hourly.low * factor * tokens_per_s.best / tokens_per_s.high
    high = hourly.high * factor * tokens_per_s.best / tokens_per_s.low
    return Interval(low, hourly.best * factor, high)


def serving_power(machine: Machine, estimate: ServingEstimate, terms: Terms) -> PowerEstimate:
    """Mean power of all devices of the machine; those that no replica uses are idle."""
    plan = estimate.plan
    activity = serving_activity(machine.system.chip, estimate)
    busy = activity.busy_frac * plan.devices_count / machine.devices_count
    return estimate_power(machine.system, machine.devices_count, replace(activity, busy_frac=busy), terms.power)


def activity_of(
    chip: Chip, activation_precision: str, flop_per_s: float, memory_bytes_per_s: float, device_busy_frac: float
) -> Activity:
    """What a device is busy with, from its mean work and traffic and the share of the time that it works.

    Raises `MissingFact` where the chip's peak or bandwidth is not known.
    """
    busy = min(1.0, device_busy_frac)
    precision = activation_precision if chip.has_peak(activation_precision) else "bf16"
    peak = chip.peak(precision, "activity of the matrix units")
    bandwidth = chip.need("memory_bandwidth_bytes_per_s", "activity of the memory")
    at_work = max(busy, 1e-9)  # src: rl-numerics
    return Activity(
        compute_frac=min(1.0, flop_per_s / at_work / peak),
        memory_frac=min(1.0, memory_bytes_per_s / at_work / bandwidth),
        busy_frac=busy,
    )


def _broken(row: ServingRow, terms: Terms) -> list[tuple[str, str]]:
    hourly = row.cost.headline_usd
    monthly = None if hourly is None else hourly.best * _MONTH_S / _HOUR_S
    return broken_limits(terms.limits, None, row.facility, monthly, " a month")


def _nothing(machine: Machine, request: ServingRequest, tried: _Tried) -> Infeasible:
    if tried.broken:
        nearest = min(tried.broken, key=lambda item: (shortfall(item), item.e2e_p95_s))
        held = held_text(_job(request, machine, item.plan) for item in tried.broken)
        said = [f"nearest layout {nearest.plan.label()}: {'; '.join(nearest.reasons)}", held]
        reason = "; ".join(text for text in said if text)
    else:
        reason = tried.memory or tried.missing or _divides_reason(machine, request)
    return Infeasible(
        system_id=machine.system.id,
        devices_count=machine.devices_count,
        reasons=(reason,),
        rejected=counted(tried.rejected),
        divided_count=tried.tried_count,
        beyond_layout=_format_lacks(machine, request),
    )


def _format_lacks(machine: Machine, request: ServingRequest) -> bool:
    """Whether the only thing wrong with what is pinned is a format that the chip has no arithmetic for."""
    problems = _pinned_problems(machine, request)
    return len(problems) == 1 and not machine.system.chip.has_peak(_formats(machine, request)[1])


def _formats(machine: Machine, request: ServingRequest) -> tuple[str, str, str]:
    """Formats of weights, activations and cache on that chip."""
    return precisions_on(
        request.model,
        machine.system.chip,
        request.weight_precision,
        request.activation_precision,
        request.kv_precision,
    )


def _divides_reason(machine: Machine, request: ServingRequest) -> str:
    """Why no layout divides: what is wrong with the pinned parts, else with the number of devices."""
    problems = _pinned_problems(machine, request)
    if problems:
        return problems[0].text
    pinned = ", ".join(f"{name.removesuffix('_count')} {value}" for name, value in request.pins.items())
    return f"{pinned or 'no layout'} does not divide {machine.devices_count} devices"


def _pinned_problems(machine: Machine, request: ServingRequest) -> tuple[Rejection, ...]:
    formats = _formats(machine, request)
    plan = replace(
        ServingPlan(weight_precision=formats[0], activation_precision=formats[1], kv_precision=formats[2]),
        **dict(request.pins),  # type: ignore[arg-type]
    )
    return layout_problems(request.model, plan, machine.system)
