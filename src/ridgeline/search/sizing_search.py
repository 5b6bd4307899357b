"""Sizing a serving system: the fewest devices (or the cheapest, or least energy) that keep a load and its limits.

Every layout of one engine is timed at growing batches; from these curves follow in closed form the engines that a load
needs, together or in two pools. The best few of each kind are then worked out in full.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ridgeline.errors import BadPlan, MissingFact
from ridgeline.search.disaggregated import (
    MOST_SPLITS,
    Decode,
    Pairing,
    Prefill,
    decode_engine,
    fewest_for,
    further_tokens,
    most_of,
    prefill_engines,
)
from ridgeline.search.ranking import counted, until_stopped
from ridgeline.search.result import add_counts, broken_limits
from ridgeline.search.serving import ServingRequest
from ridgeline.search.sizing_aggregated import Crew, crew_for, crew_points, exact_estimate, sized_crew
from ridgeline.search.sizing_confirm import Grow, first_to_hold
from ridgeline.search.sizing_front import BreakEven, FrontPoint, break_even, pareto_front
from ridgeline.search.sizing_pools import exact_pairing, pair_points, sized_pairing
from ridgeline.search.sizing_result import NoWay, Sized, Sizing
from ridgeline.search.sizing_workers import (
    LAYOUT,
    MISSING,
    Axes,
    Curve,
    Rejected,
    Worker,
    curve_of,
    single_reason,
    workers,
)
from ridgeline.search.terms import OBJECTIVES, Machine, Objective, Progress, Terms
from ridgeline.specs import Load

FEW, FIRST, PAIRS = "more devices than there are", "time to first token", "no link between pools"
# Of each kind so many are worked out in full: curves differ from full answers by less than neighbours differ.
_FINALISTS_COUNT = 3  # src: rl-numerics
_MONTH_HOURS = 730.5  # src: julian-year (a twelfth)


@dataclass(slots=True)
class _Found:
    """What the search of one machine gathers."""

    rejected: Rejected = field(default_factory=Rejected)
    sized: list[Sized] = field(default_factory=list)
    points: list[FrontPoint] = field(default_factory=list)
    break_even: BreakEven | None = None
    tried_count: int = 0
    finalists_count: int = 0


def size_serving(
    request: ServingRequest,
    machines: Sequence[Machine],
    terms: Terms,
    axes: Axes | None = None,
    progress: Progress | None = None,
) -> Sizing:
    """Ways to serve `request` on each of `machines`, of which `devices_count` is the most there is.

    With a rate or a number of requests at once: as few devices as keep the limits (under the objective "time" all of
    them, for the shortest latency). With neither: as many requests as the limits allow on all devices. The best of
    each mode and machine is kept, in the order of the objective of `terms`; those that break a limit in their
    simulation, with no device left to add, come last.
    """
    options: list[Sized] = []
    none: list[NoWay] = []
    found: list[_Found] = []

    def search(machine: Machine) -> None:
        if progress is not None:
            progress(f"sizing {machine.system.id}")
        here = _search(request, machine, terms, axes or Axes())
        found.append(here)
        if here.sized:
            options.extend(here.sized)
        else:
            none.append(_no_way(request, machine, here))

    unsearched = until_stopped(machines, search)
    options.sort(key=lambda option: order(option, request.load, terms.objective))
    return Sizing(
        options=tuple(options),
        none=tuple(none),
        rejected=add_counts(item.rejected.counts for item in found),
        tried_count=sum(item.tried_count for item in found),
        finalists_count=sum(item.finalists_count for item in found),
        front=pareto_front([point for item in found for point in item.points]),
        break_evens=tuple(item.break_even for item in found if item.break_even is not None),
        unsearched=tuple(unsearched),
    )


def sized_values(option: Sized, load: Load) -> dict[Objective, float]:
    """What a way to serve costs under each objective: the less the better, infinite where it is not known."""
    offered = load.rate_per_s is not None or load.concurrency_count is not None
    rate = max(option.requests_per_s.best, 1e-300)  # src: rl-numerics
    hour = option.hour
    return {
        "time": option.latencies.e2e_p95_s if offered else 1.0 / rate,
        "cost": math.inf if hour.usd_per_mtoken is None else hour.usd_per_mtoken.best,
        "energy": math.inf if hour.j_per_token is None else hour.j_per_token.best,
        "devices": float(option.devices_count) if offered else option.devices_count / rate,
    }


def order(option: Sized, load: Load, objective: Objective) -> tuple[float | str, ...]:
    """Best first; what breaks a limit in its simulation comes after all that does not."""
    broken = option.simulated is not None and bool(option.simulated.broken)
    values = sized_values(option, load)
    others = [values[name] for name in OBJECTIVES if name != objective]
    return (float(broken), values[objective], *others, option.system.id, option.layout)


def _search(request: ServingRequest, machine: Machine, terms: Terms, axes: Axes) -> _Found:
    found = _Found()
    fitting = list(workers(request, machine, axes, found.rejected))
    if "aggregated" in axes.modes:
        _aggregated(request, machine, terms, fitting, found, axes.simulate)
    if "disaggregated" in axes.modes and request.model.main.role == "decoder" and further_tokens(request.load) > 0:
        _disaggregated(request, machine, terms, fitting, found, axes.simulate)
    return found


def _aggregated(
    request: ServingRequest, machine: Machine, terms: Terms, fitting: Sequence[Worker], found: _Found, simulate: bool
) -> None:
    crews: list[Crew] = []
    curves: list[tuple[Worker, Curve]] = []
    pinned = request.pins.get("replica_count")
    for worker in fitting:
        try:
            curve = curve_of(worker)
        except MissingFact as error:
            found.rejected.add(MISSING, str(error))
            continue
        curves.append((worker, curve))
        found.tried_count += len(curve.counts)
        crew = crew_for(worker, curve, request.load, terms.objective, machine.devices_count)
        if crew is None:
            found.rejected.add(*single_reason(worker))
        elif crew.devices_count > machine.devices_count or (pinned is not None and crew.replicas_count > pinned):
            found.rejected.add(FEW, *_few_text(crew, request.load, machine))
        else:
            crews.append(crew)
            found.points += crew_points(crew, request.load)
    crews.sort(key=lambda crew: crew.key(request.load, terms.objective))
    answers: list[tuple[Sized, Crew]] = []
    for crew in crews[:_FINALISTS_COUNT]:
        found.finalists_count += 1
        estimate = exact_estimate(crew, request.load, machine.devices_count)
        if estimate is None:
            found.rejected.add(FEW, *_few_text(crew, request.load, machine))
            continue
        answers.append((sized_crew(crew, estimate, machine, terms), crew))
    kept = [item for item in answers if _within(item[0], terms, found)]
    if kept:
        kept.sort(key=lambda item: order(item[0], request.load, terms.objective))
        best, chosen = kept[0]
        if simulate:
            checked = [(option, _more_engines(own, option, request.load, machine, terms), own) for option, own in kept]
            best, chosen = first_to_hold(checked, request, machine)
        found.sized.append(best)
        if request.load.output_tokens > 0:
            label, devices = chosen.worker.plan.label(), chosen.worker.devices_count
            made = request.load.output_tokens
            found.break_even = break_even(machine.system.id, label, devices, made, chosen.curve)


def _disaggregated(
    request: ServingRequest, machine: Machine, terms: Terms, fitting: Sequence[Worker], found: _Found, simulate: bool
) -> None:
    load = request.load
    prefills: list[Prefill] = []
    decodes: list[Decode] = []
    for worker in fitting:
        loaded = Worker(job=worker.job.with_load(**_offered(load)), room=worker.room)
        try:
            engine = decode_engine(loaded)
            prefills += prefill_engines(worker)
        except MissingFact:
            continue
        if engine is not None:
            decodes.append(engine)
            found.tried_count += len(engine.counts)
    free = load.rate_per_s is None and load.concurrency_count is None
    pairings: list[Pairing] = []
    for prefill in prefills:
        for decode in decodes:
            if not _match(prefill, decode, machine.devices_count):
                continue
            found.tried_count += min(MOST_SPLITS, machine.devices_count // prefill.worker.devices_count) if free else 1
            try:
                pairing = (most_of if free else fewest_for)(prefill, decode, machine.system, machine.devices_count)
            except BadPlan as error:
                found.rejected.add(PAIRS, str(error))
                continue
            if pairing is None:
                found.rejected.add(*_pair_reason(prefill, load))
                continue
            pairings.append(pairing)
            found.points += pair_points(prefill, decode, pairing, load)
    pairings.sort(key=lambda pairing: _pair_key(pairing, free, terms.objective))
    answers = []
    for pairing in pairings[:_FINALISTS_COUNT]:
        found.finalists_count += 1
        exact = exact_pairing(pairing, machine)
        if exact is not None:
            answers.append((sized_pairing(exact, machine, terms), exact))
    kept = [item for item in answers if _within(item[0], terms, found)]
    if kept:
        kept.sort(key=lambda item: order(item[0], load, terms.objective))
        best = kept[0][0]
        if simulate:
            checked = [(option, _wider_pools(own.pairing, machine, terms), own) for option, own in kept]
            best, _ = first_to_hold(checked, request, machine)
        found.sized.append(best)


def _more_engines(crew: Crew, option: Sized, load: Load, machine: Machine, terms: Terms) -> Grow:
    """The option with one engine more than the last, as often as it is asked for."""
    count = option.pools[0].plan.replica_count

    def grow(broken: str) -> Sized | None:
        nonlocal count
        count += 1
        estimate = exact_estimate(replace(crew, replicas_count=count), load, machine.devices_count)
        return None if estimate is None else sized_crew(crew, estimate, machine, terms)

    return grow


def _wider_pools(pairing: Pairing, machine: Machine, terms: Terms) -> Grow:
    """The option with one engine more in the pool that a broken figure is about."""

    def grow(broken: str) -> Sized | None:
        nonlocal pairing
        name = "prefill_count" if broken == "ttft_s" else "decode_count"
        pairing = replace(pairing, **{name: getattr(pairing, name) + 1})
        exact = exact_pairing(pairing, machine)
        return None if exact is None else sized_pairing(exact, machine, terms)

    return grow


def _offered(load: Load) -> dict[str, float | None]:
    return {"rate_per_s": load.rate_per_s, "concurrency_count": load.concurrency_count}


def _match(prefill: Prefill, decode: Decode, devices_count: int) -> bool:
    """Whether the cache of one is what the other reads, with the same weights, and both have room."""
    first, second = prefill.worker.plan, decode.worker.plan
    same = (first.weight_precision, first.kv_precision) == (second.weight_precision, second.kv_precision)
    return same and prefill.worker.devices_count + decode.worker.devices_count <= devices_count


def _pair_reason(prefill: Prefill, load: Load) -> tuple[str, str]:
    label = prefill.worker.plan.label()
    if load.ttft_p95_s is not None and prefill.step_s >= load.ttft_p95_s:
        return f"{FIRST} of prefill engines", f"prefill {label}: a prompt alone takes {prefill.step_s:.3g} s"
    return "pools: " + FEW, f"prefill {label}: no ratio of pools carries the load within the limits"


def _pair_key(pairing: Pairing, free: bool, objective: Objective) -> tuple[float, float]:
    if free:
        return -pairing.requests_per_s, float(pairing.devices_count)
    if objective == "time":
        return pairing.e2e_p95_s, float(pairing.devices_count)
    return float(pairing.devices_count), pairing.e2e_p95_s


def _within(option: Sized, terms: Terms, found: _Found) -> bool:
    """Whether power and money are within the limits of the scenario; what is not is counted."""
    hourly = option.hour.cost.headline_usd
    monthly = None if hourly is None else hourly.best * _MONTH_HOURS
    broken = broken_limits(terms.limits, None, option.hour.facility, monthly, " a month")
    for code, text in broken[:1]:
        found.rejected.add(code, f"{option.layout}: {text}")
    return not broken


def _few_text(crew: Crew, load: Load, machine: Machine) -> tuple[str, float]:
    """The sentence for an engine of which there cannot be enough, and how many times too many devices it needs."""
    asked = f"{load.rate_per_s:g} requests/s" if load.rate_per_s is not None else f"{load.concurrency_count:g} at once"
    need = max(crew.devices_count, machine.devices_count + crew.worker.devices_count)
    text = (
        f"{crew.worker.plan.label()}: one engine holds {crew.curve.rate_at(crew.most_count):.3g} requests/s within the"
        f" limits ({crew.most_count:g} at once); {asked} need at least {need:,} devices,"
        f" there are {machine.devices_count:,}"
    )
    return text, need / machine.devices_count


def _no_way(request: ServingRequest, machine: Machine, found: _Found) -> NoWay:
    """Why nothing serves: the reason of what came nearest (too few devices, then limits, then memory)."""
    counts, texts = found.rejected.counts, found.rejected.texts
    if not counts:
        found.rejected.add(LAYOUT, f"no layout of {request.model.id} divides on {machine.system.id}")
    away = found.rejected.nearest
    near = sorted(counts, key=lambda code: (code != FEW, away.get(code, math.inf), code == MISSING, -counts[code]))
    return NoWay(
        system_id=machine.system.id,
        devices_count=machine.devices_count,
        reason=texts[near[0]],
        rejected=counted(counts),
    )
