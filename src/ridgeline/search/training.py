"""Ranks machines for a training job: the best layout on each, how long the run takes, energy and money."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ridgeline.core import FrozenMap, Interval
from ridgeline.cost import estimate_cost
from ridgeline.errors import MissingFact
from ridgeline.power import Activity, PowerEstimate, estimate_power
from ridgeline.search.layouts import fastest_layouts
from ridgeline.search.ranking import counted, energy_of, gathered, ordered, power_note, until_stopped
from ridgeline.search.result import (
    Infeasible,
    SearchResult,
    TrainingRow,
    add_counts,
    broken_limits,
)
from ridgeline.search.terms import Machine, Objective, Progress, Terms
from ridgeline.specs import SoftwareProfile, TrainingPlan, Transformer
from ridgeline.training import (
    GoodputEstimate,
    LayoutRequest,
    TrainingEstimate,
    TrainingJob,
    candidates,
    check_plan,
    estimate_goodput,
    estimate_step,
    peak_memory,
    run_conditions,
)
from ridgeline.units import show
from ridgeline.workload.stages import divides

_NEAR_COUNT = 8  # src: rl-numerics
_SMALLER_SIZES_COUNT = 6  # src: rl-numerics
_DEGREES = ("tensor_count", "pipeline_count", "context_count", "data_count", "expert_count", "interleave_count")
# Parts of a plan that the enumeration takes from its base and does not search.
_BASE_FIELDS = (
    *("recompute", "schedule", "offload_optimizer", "offload_weights", "offload_activations"),
    *(
        "trainable_frac",
        "frozen_precision",
        "adapter_rank",
        "adapter_targets",
        "ahead_count",
        "first_layers_count",
        "last_layers_count",
    ),
    *("document_tokens", "real_frac", "node_samples_per_s", "storage_samples_per_s"),
)
# What the codes of broken rules mean to somebody who reads the counts.
REASONS = {
    "batch": "batch does not divide",
    "heads": "heads do not divide",
    "width": "widths do not divide",
    "layers": "layers do not divide",
    "schedule": "micro-batches do not fill virtual stages",
    "sequence": "sequence does not divide",
    "experts": "experts do not divide",
    "domain": "tensor group wider than a node",
    "devices": "no such size of machine",
    "sharding": "full sharding in a pipeline",
    "frozen": "no parameter is frozen",
    "packing": "documents longer than sequences",
    "overlap": "nothing to overlap with",
    "offload": "host link not known",
    "precision": "precision not known for the chip",
}
# Lines of the waterfall during which the memory is what works.
_STREAMING = ("element-wise", "optimizer")
# Parts of a run with failures during which no device computes.
_IDLE = ("checkpoint stalls", "noticing failures", "restarts", "waiting for repairs")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """The question: a model, tokens in all (no padding), sequence, global batch in sequences, precision, parts of the
    layout that are already decided (`pins`: fields of `TrainingPlan`)."""

    model: Transformer
    tokens_count: float
    sequence_tokens: int
    global_batch_count: int
    precision: str
    pins: FrozenMap[str, float | str | bool] = field(default_factory=FrozenMap)

    @property
    def steps_count(self) -> int:
        """Steps of the run, the last one whole."""
        real = float(self.pins.get("real_frac", 1.0))
        return math.ceil(self.tokens_count / (self.sequence_tokens * self.global_batch_count * real))


@dataclass(frozen=True, slots=True)
class _Tried:
    """What the layouts of one machine came to; `divided_count` of them keep every rule (before memory is asked)."""

    kept: tuple[TrainingEstimate, ...]
    rejected: dict[str, int]
    missing: str
    divided_count: int
    tried_count: int


def rank_training(
    request: TrainingRequest, machines: Sequence[Machine], terms: Terms, progress: Progress | None = None
) -> SearchResult[TrainingRow]:
    """The best layout of each machine, ranked under the objective of `terms`; infeasible machines with reasons.

    Memory is checked before time. Where no layout divides the devices of a machine, the largest smaller number that
    some layout divides is used and the rest stands idle (and is paid). A plan that breaks a limit is infeasible.
    """
    rows: list[TrainingRow] = []
    infeasible: list[Infeasible] = []
    tried_counts: list[int] = []

    def search(machine: Machine) -> None:
        if progress is not None:
            progress(f"searching {machine.system.id} x {machine.devices_count}")
        tried = _try_sizes(request, machine)
        found = _best_or_reason(machine, request, tried, terms)
        tried_counts.append(tried.tried_count)
        if isinstance(found, Infeasible):
            infeasible.append(found)
        else:
            rows.append(found)

    unsearched = until_stopped(machines, search)
    ranked = ordered(rows, terms.objective, objective_values)
    return gathered(ranked, infeasible, sum(tried_counts), unsearched)


def _best_or_reason(
    machine: Machine, request: TrainingRequest, tried: _Tried, terms: Terms
) -> TrainingRow | Infeasible:
    found = [_row(machine, request, estimate, tried, terms) for estimate in _worth_a_row(tried.kept)]
    if not found:
        return _nothing(machine, request, tried)
    ranked = ordered(found, terms.objective, objective_values)
    within = next((row for row in ranked if not _broken(row, terms)), None)
    return within or _over(ranked[0], _broken(ranked[0], terms), tried)


def _broken(row: TrainingRow, terms: Terms) -> list[tuple[str, str]]:
    return broken_limits(terms.limits, row.elapsed_s.best, row.facility, _money(row))


def objective_values(row: TrainingRow) -> dict[Objective, float]:
    """What a row costs under each objective: the less the better, infinite where it is not known."""
    money = _money(row)
    return {
        "time": row.elapsed_s.best,
        "cost": money if money is not None else math.inf,
        "energy": math.inf if row.facility is None else row.facility.energy_j.best,
        "devices": float(row.used_count),
    }


def _money(row: TrainingRow) -> float | None:
    return None if row.cost.headline_usd is None else row.cost.headline_usd.best


def _worth_a_row(kept: Sequence[TrainingEstimate]) -> list[TrainingEstimate]:
    """The fastest few: power varies far less than time between layouts, so any objective finds its best there."""
    return sorted(kept, key=lambda item: (item.step_s.best, item.plan.label()))[:_NEAR_COUNT]


def _try_sizes(request: TrainingRequest, machine: Machine) -> _Tried:
    """All layouts of the whole machine; where none divides it, of the next smaller numbers of nodes.

    A layout of which a degree is pinned is tried on the whole machine alone.
    """
    whole = _try_layouts(request, machine, machine.devices_count)
    if whole.divided_count > 0 or any(name in request.pins for name in _DEGREES):
        return whole
    node = min(machine.system.devices_per_node_count, machine.devices_count)
    found = 0
    best = whole
    for used in range((machine.devices_count - 1) // node * node, machine.devices_count // 2, -node):
        if not _may_divide(request, machine, used):
            continue
        tried = _try_layouts(request, machine, used)
        best = _joined(best, tried)
        found += 1 if tried.kept else 0
        if found == _SMALLER_SIZES_COUNT:
            break
    return best


def _may_divide(request: TrainingRequest, machine: Machine, used_count: int) -> bool:
    """Whether some degrees multiply to `used_count` devices and leave a data degree that divides the batch.

    A quick look before all combinations of a size are made.
    """
    if machine.system.sizes_count and used_count not in machine.system.sizes_count:
        return False
    layers_count = request.model.layers_count
    depths = [depth for depth in range(1, layers_count + 1) if divides(layers_count, depth)]
    # tensor and context degrees are powers of two: their product may be any of these
    powers = [2**power for power in range(used_count.bit_length())]
    return any(
        used_count % (depth * cut) == 0 and request.global_batch_count % (used_count // (depth * cut)) == 0
        for depth in depths
        for cut in powers
    )


def layout_request(request: TrainingRequest, machine: Machine, used_count: int) -> LayoutRequest:
    """The question in the words of `training.layouts`."""
    pins = dict(request.pins)
    base = TrainingPlan(
        sequence_tokens=request.sequence_tokens,
        global_batch_count=request.global_batch_count,
        precision=request.precision,
        **{name: value for name, value in pins.items() if name in _BASE_FIELDS},  # type: ignore[arg-type]
    )
    return LayoutRequest(
        model=request.model,
        system=machine.system,
        software=_software(machine),
        devices_count=used_count,
        base=base,
        pins=request.pins,
    )


def _try_layouts(request: TrainingRequest, machine: Machine, used_count: int) -> _Tried:
    found = fastest_layouts(layout_request(request, machine, used_count), machine.calibration)
    kept = tuple(estimate_step(_job(request, machine, item.plan)) for item in found.timed[:_NEAR_COUNT])
    rejected = {REASONS.get(code, code): count for code, count in found.rejected.items()}
    return _Tried(kept, rejected, found.missing, found.divided_count, found.tried_count)


def _joined(one: _Tried, other: _Tried) -> _Tried:
    return _Tried(
        one.kept + other.kept,
        dict(add_counts([one.rejected, other.rejected])),
        one.missing or other.missing,
        one.divided_count + other.divided_count,
        one.tried_count + other.tried_count,
    )


def _software(machine: Machine) -> SoftwareProfile:
    if machine.software is None:
        raise MissingFact(f"training software for {machine.system.id}")
    return machine.software


def _job(request: TrainingRequest, machine: Machine, plan: TrainingPlan) -> TrainingJob:
    return TrainingJob(
        model=request.model,
        plan=plan,
        system=machine.system,
        calibration=machine.calibration,
        software=_software(machine),
    )


def _row(
    machine: Machine, request: TrainingRequest, estimate: TrainingEstimate, tried: _Tried, terms: Terms
) -> TrainingRow:
    run_s = estimate.step_s.scaled(float(request.steps_count))
    goodput = _goodput(machine, request, estimate, run_s)
    elapsed_s = run_s if goodput is None else goodput.run_s
    share = _at_full_power(machine, goodput, estimate, terms)
    power, facility, missing = energy_of(
        lambda: training_power(machine, estimate, terms), elapsed_s.scaled(share), terms.site
    )
    cost = estimate_cost(
        machine.system.id,
        machine.devices_count,
        elapsed_s,
        None if facility is None else facility.energy_j,
        terms.site,
        machine.quotes,
        terms.cost,
        missing,
    )
    return TrainingRow(
        system=machine.system,
        devices_count=machine.devices_count,
        used_count=estimate.plan.devices_count,
        plan=estimate.plan,
        estimate=estimate,
        run_s=run_s,
        power=power,
        facility=facility,
        cost=cost,
        notes=power_note(machine.system, missing),
        calibration=machine.calibration,
        software=_software(machine),
        tried_count=tried.tried_count,
        rejected=counted(tried.rejected),
        goodput=goodput,
    )


def _goodput(
    machine: Machine, request: TrainingRequest, estimate: TrainingEstimate, run_s: Interval
) -> GoodputEstimate | None:
    """The run with its failures, where they are known for the machine."""
    if machine.reliability is None:
        return None
    step_s, software = estimate.step_s.best, _software(machine)
    run = run_conditions(request.model, estimate.plan, machine.system, software, step_s, run_s)
    return estimate_goodput(run, machine.reliability)


def _at_full_power(
    machine: Machine, goodput: GoodputEstimate | None, estimate: TrainingEstimate, terms: Terms
) -> float:
    """Share of the run in which the power of its steps would use its energy: devices that do not compute are idle."""
    if goodput is None:
        return 1.0
    idle_s = sum(goodput.time.value_of(name) for name in _IDLE)
    resting = Activity(compute_frac=0.0, memory_frac=0.0, busy_frac=0.0)
    try:
        idle_w = estimate_power(machine.system, machine.devices_count, resting, terms.power).total_w.best
        busy_w = training_power(machine, estimate, terms).total_w.best
    except MissingFact:
        return 1.0
    return 1.0 - idle_s / goodput.time.value * (1.0 - idle_w / busy_w)


def training_power(machine: Machine, estimate: TrainingEstimate, terms: Terms) -> PowerEstimate:
    """Mean power of all devices of the machine during a step; those that the layout does not use are idle.

    The matrix units are as busy as the model's operations say, recomputation added in proportion to its time; the
    memory is taken as fully busy during element-wise work and the optimizer step, and idle otherwise.
    """
    time = estimate.time
    forward_s, backward_s = time.value_of("forward"), time.value_of("backward")
    again = 1.0 + time.value_of("recompute") / (forward_s + backward_s) if forward_s + backward_s > 0 else 1.0
    streaming_s = sum(node.value for node in time.walk() if not node.parts and node.name in _STREAMING)
    activity = Activity(
        compute_frac=min(1.0, estimate.mfu_frac * again),
        memory_frac=min(1.0, max(0.0, streaming_s / time.value)),
        busy_frac=estimate.plan.devices_count / machine.devices_count,
    )
    return estimate_power(machine.system, machine.devices_count, activity, terms.power)


def _over(row: TrainingRow, broken: list[tuple[str, str]], tried: _Tried) -> Infeasible:
    reasons = (f"best layout {row.plan.label()}: " + "; ".join(text for _, text in broken),)
    return Infeasible(
        system_id=row.system.id,
        devices_count=row.devices_count,
        reasons=reasons,
        rejected=counted({**tried.rejected, broken[0][0]: tried.tried_count - sum(tried.rejected.values())}),
        divided_count=tried.divided_count,
    )


def _nothing(machine: Machine, request: TrainingRequest, tried: _Tried) -> Infeasible:
    if tried.missing:
        reason = tried.missing
    elif tried.divided_count > 0:
        reason = _memory_reason(machine, request)
    else:
        reason = _divides_reason(machine, request)
    return Infeasible(
        system_id=machine.system.id,
        devices_count=machine.devices_count,
        reasons=(reason,),
        rejected=counted(tried.rejected),
        divided_count=tried.divided_count,
        beyond_layout=not machine.system.chip.has_peak(request.precision),
    )


def _memory_reason(machine: Machine, request: TrainingRequest) -> str:
    """What the layout that needs the least memory lacks, everything computed again where that is not decided."""
    wanted = layout_request(request, machine, machine.devices_count)
    again = {} if "recompute" in request.pins else {"recompute": "full"}
    plans = (replace(plan, **again) for plan in candidates(wanted))  # type: ignore[arg-type]
    sized = (
        (peak_memory(request.model, plan, wanted.software).value, plan)
        for plan in plans
        if not check_plan(request.model, machine.system, plan)
    )
    needed, plan = min(sized, key=lambda item: item[0])
    available = machine.system.chip.memory_bytes()
    return (
        f"out of memory: the least that any layout needs is {show(needed, 'bytes')} a device ({plan.label()}),"
        f" {machine.system.chip.id} has {show(available, 'bytes')}"
    )


def _divides_reason(machine: Machine, request: TrainingRequest) -> str:
    """Why no layout divides: what no layout can mend, else a broken rule about what is pinned, else about the batch."""
    wanted = layout_request(request, machine, machine.devices_count)
    first = ""
    seen = 0
    for plan in candidates(wanted):
        seen += 1
        for problem in check_plan(request.model, machine.system, plan):
            if problem.code == "precision" or any(name in request.pins for name in problem.fields):
                return problem.text
            first = first or problem.text
    if seen == 0:
        pinned = ", ".join(
            f"{name.removesuffix('_count')} {request.pins[name]}" for name in _DEGREES if name in request.pins
        )
        return f"{pinned or 'no layout'} does not divide {machine.devices_count} devices"
    return f"no layout divides {machine.devices_count} devices and a batch of {request.global_batch_count}; {first}"
