"""Layouts of a serving system: which there are, why one cannot be, the best of them, the fewest devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from ridgeline.errors import BadPlan, MissingFact, NoFeasiblePlan, OutOfMemory, nearest_names
from ridgeline.serving.answer import ServingEstimate
from ridgeline.serving.estimate import estimate_serving
from ridgeline.serving.job import ServingJob
from ridgeline.specs import (
    BITS_PER_ELEMENT,
    Chip,
    ServingPlan,
    SoftmaxAttention,
    System,
    Transformer,
)
from ridgeline.workload.placement import weight_bytes_per_device

_WIDE = ("bf16", "fp16", "fp32")
_WIDE_BITS = BITS_PER_ELEMENT["bf16"]
# Narrow formats whose kernels usually take activations in the same format; the others expand weights on the fly.
_NARROW_MATH = ("fp8", "mxfp8", "int8", "nvfp4")
_MAX_STAGES_COUNT = 16  # src: ridgeline-layouts
_MEMORY = "weights do not fit"
_POOL = "no room for one request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a layout is out: a short code for counting, and the sentence."""

    code: str
    text: str


def serving_layouts(
    model: Transformer,
    system: System,
    devices_count: int,
    *,
    weight_precision: str = "",
    activation_precision: str = "",
    kv_precision: str = "",
    pins: Mapping[str, int] | None = None,
) -> Iterator[ServingPlan]:
    """Every layout of `model` on `devices_count` devices of `system` that divides, most replicas first.

    Tensor groups stay within the fastest level unless experts are spread wider; pipelines are tried where the weights
    of a stage need them or the widest tensor group is used up; mixtures also with experts spread over the tensor
    group, with attention split or replicated. `pins` fixes fields of `ServingPlan`. Empty precisions follow
    `precisions_on`.
    """
    pinned = dict(pins or {})
    known = {item.name for item in fields(ServingPlan)}
    for name in pinned:
        if name not in known:
            raise BadPlan(f"unknown part of a layout {name!r}; nearest: {', '.join(nearest_names(name, known))}")
    formats = precisions_on(model, system.chip, weight_precision, activation_precision, kv_precision)
    base = replace(ServingPlan(), weight_precision=formats[0], activation_precision=formats[1], kv_precision=formats[2])
    seen: set[ServingPlan] = set()
    for tensor, pipeline in _degrees(model, system, devices_count, base, pinned):
        for expert, groups in _expert_splits(model, tensor):
            free = {
                "tensor_count": tensor,
                "pipeline_count": pipeline,
                "expert_count": expert,
                "attention_data_count": groups,
                "replica_count": max(1, devices_count // (tensor * pipeline)),
            }
            plan = replace(base, **(free | pinned))  # type: ignore[arg-type]
            if plan in seen or plan.devices_count > devices_count or layout_problems(model, plan, system):
                continue
            seen.add(plan)
            yield plan


def precisions_on(
    model: Transformer, chip: Chip, weight: str = "", activation: str = "", kv: str = ""
) -> tuple[str, str, str]:
    """Formats of weights, activations and cache: as asked, else as the checkpoint has them and the chip can.

    Weights: those of the checkpoint, wide (bf16, else fp16, else fp32) where it names none. Activations: those of the
    narrowest weights if the chip has that rate and such kernels are usual, else wide (weights are expanded on the
    fly). Cache: wide; narrowing it is a decision about accuracy that is left to the user.
    """
    wide = next((name for name in _WIDE if chip.has_peak(name)), "bf16")
    stored = weight or wide
    held = {stored, *model.precisions.values()} if not weight or model.precisions else {stored}
    if not activation:
        narrow = sorted((x for x in held if x in _NARROW_MATH and chip.has_peak(x)), key=BITS_PER_ELEMENT.__getitem__)
        activation = narrow[0] if narrow else (stored if stored in _WIDE else wide)
    return stored, activation, kv or (stored if stored in _WIDE else wide)


def _degrees(
    model: Transformer, system: System, devices_count: int, base: ServingPlan, pinned: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    """Tensor and pipeline degrees, small groups first."""
    domain = system.levels[0].size_count if system.levels and system.levels[0].size_count else None
    domain = min(domain or system.devices_per_node_count, devices_count)
    host_links = bool(system.levels) and system.levels[0].kind == "pcie"
    room = system.chip.memory_bytes()
    widest = devices_count if _experts_count(model) else max(domain, 1)
    tensors = [pinned["tensor_count"]] if "tensor_count" in pinned else _powers(widest)
    stages = [pinned["pipeline_count"]] if "pipeline_count" in pinned else _powers(_MAX_STAGES_COUNT)
    for tensor in tensors:
        fitted = False
        for pipeline in stages:
            if tensor * pipeline > devices_count or pipeline > max(1, model.layers_count):
                break
            spread = min(tensor, max(1, _experts_count(model)))
            plan = replace(base, tensor_count=tensor, pipeline_count=pipeline, expert_count=spread)
            fits = weight_bytes_per_device(model, plan) < room
            if "pipeline_count" in pinned or not fitted or host_links or tensor >= domain:
                yield tensor, pipeline
            if fits and fitted and not host_links:
                break
            fitted = fitted or fits


def _powers(limit: int) -> list[int]:
    """1, 2, 4 ... up to `limit`, and `limit` itself."""
    found = []
    value = 1
    while value < limit:
        found.append(value)
        value *= 2
    return [*found, limit]


def _experts_count(model: Transformer) -> int:
    return max((run.layer.experts_count for run in model.main.runs), default=0)


def _expert_splits(model: Transformer, tensor: int) -> list[tuple[int, int]]:
    """(expert degree, attention groups) for one tensor degree."""
    if _experts_count(model) == 0 or tensor == 1:
        return [(1, 1)]
    return [(1, 1), (tensor, 1), (tensor, tensor)]


def layout_problems(model: Transformer, plan: ServingPlan, system: System) -> tuple[Rejection, ...]:
    """Why `plan` cannot be a layout of `model` on `system`, without any timing; empty where it can."""
    found: list[Rejection] = []
    if plan.tensor_count % plan.attention_data_count or plan.tensor_count % plan.expert_count:
        text = f"groups of {plan.attention_data_count} and {plan.expert_count} do not divide tensor {plan.tensor_count}"
        found.append(Rejection(code="groups do not divide", text=text))
        return tuple(found)
    degree = plan.tensor_count // plan.attention_data_count
    for heads in sorted(_heads(model)):
        if heads % degree:
            text = f"{heads} attention heads do not divide over {degree} devices"
            found.append(Rejection(code="heads do not divide", text=text))
    experts = _experts_count(model)
    if plan.expert_count > 1 and (experts == 0 or experts % plan.expert_count):
        text = f"{experts} experts do not divide over {plan.expert_count} devices"
        found.append(Rejection(code="experts do not divide", text=text))
    if plan.pipeline_count > max(1, model.layers_count):
        text = f"{plan.pipeline_count} stages for {model.layers_count} layers"
        found.append(Rejection(code="more stages than layers", text=text))
    if not system.chip.has_peak(plan.activation_precision):
        text = f"{system.chip.id} has no {plan.activation_precision} arithmetic"
        found.append(Rejection(code="precision unsupported by the chip", text=text))
    return tuple(found)


def _heads(model: Transformer) -> set[int]:
    return {
        mixer.heads_count
        for run in model.main.runs
        for mixer in run.layer.mixers
        if isinstance(mixer, SoftmaxAttention)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Layouts that were estimated: those that keep all limits, and how many fell out for what."""

    kept: tuple[ServingEstimate, ...]
    rejected: Mapping[str, int]


def try_layouts(job: ServingJob, plans: Iterable[ServingPlan]) -> Tried:
    """Estimate `job` under each of `plans`; what cannot be is counted by reason."""
    kept: list[ServingEstimate] = []
    rejected: dict[str, int] = {}
    for plan in plans:
        problems = layout_problems(job.model, plan, job.system)
        code = problems[0].code if problems else ""
        if not code:
            try:
                estimate = estimate_serving(replace(job, plan=plan))
            except OutOfMemory as error:
                code = _POOL if "pool" in str(error) else _MEMORY
            except MissingFact as error:
                code = f"missing fact {error.fact_id}"
            else:
                code = "" if estimate.feasible else _short(estimate.reasons[0])
                if not code:
                    kept.append(estimate)
        if code:
            rejected[code] = rejected.get(code, 0) + 1
    return Tried(kept=tuple(kept), rejected=rejected)


def _short(reason: str) -> str:
    """The name of a broken limit without its figures."""
    for name in ("time to first token", "time per output token", "latency", "rate", "a batch"):
        if reason.startswith(name):
            return f"{name} limit" if name not in ("rate", "a batch") else f"{name} above capacity"
    return reason


Value = Callable[[ServingEstimate], float]


def throughput_a_device(estimate: ServingEstimate) -> float:
    """Requests a second that one device could serve: the capacity, not the load that is offered."""
    used = max(estimate.utilisation_frac, 1e-9)  # src: rl-numerics
    return estimate.requests_per_s.best / used / estimate.devices_count


def quickness(estimate: ServingEstimate) -> float:
    """Inverse of the 95th-percentile latency."""
    return 1.0 / estimate.e2e_p95_s


def best_layout(
    job: ServingJob, devices_count: int, value: Value = throughput_a_device, pins: Mapping[str, int] | None = None
) -> ServingEstimate:
    """The feasible layout on `devices_count` devices with the highest `value`; `NoFeasiblePlan` with the reasons.

    Precisions are those of the job's plan.
    """
    plans = serving_layouts(
        job.model,
        job.system,
        devices_count,
        weight_precision=job.plan.weight_precision,
        activation_precision=job.plan.activation_precision,
        kv_precision=job.plan.kv_precision,
        pins=pins,
    )
    tried = try_layouts(job, plans)
    if not tried.kept:
        counts = ", ".join(f"{count} {code}" for code, count in tried.rejected.items()) or "none divides"
        raise NoFeasiblePlan(
            f"no layout of {job.model.id} on {devices_count} {job.system.chip.id} keeps the limits: {counts}",
            dict(tried.rejected),
        )
    return max(tried.kept, key=value)


def fewest_devices(job: ServingJob, counts: Iterable[int], value: Value = throughput_a_device) -> ServingEstimate:
    """The best layout on the smallest of `counts` devices where one keeps the load and its limits.

    Raises the `NoFeasiblePlan` of the largest count where none does.
    """
    last: NoFeasiblePlan | None = None
    for count in sorted(counts):
        try:
            return best_layout(job, count, value)
        except NoFeasiblePlan as error:
            last = error
    raise last if last is not None else NoFeasiblePlan("no device counts were given", {})
