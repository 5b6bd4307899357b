"""What an unstated part of a training plan means: the framework's habits, and the least that fits memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.core import Note
from ridgeline.errors import BadPlan
from ridgeline.specs import Calibration, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.specs.plan import Recompute, Sharding
from ridgeline.training.job import TrainingJob
from ridgeline.training.layouts import least_recompute
from ridgeline.training.memory import peak_bytes
from ridgeline.training.step import estimate_step
from ridgeline.workload.stages import divides
from ridgeline.workload.training_adapters import adapter_parameters_count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDraft:
    """A layout as somebody describes it; None for what they do not say."""

    devices_count: int
    sequence_tokens: int
    tensor_count: int | None = None
    pipeline_count: int | None = None
    context_count: int | None = None
    expert_count: int | None = None
    interleave_count: int | None = None
    data_count: int | None = None
    micro_batch_count: int | None = None
    global_batch_count: int | None = None
    precision: str | None = None
    sequence_parallel: bool | None = None
    sharding: Sharding | None = None
    shard_group_count: int | None = None
    recompute: Recompute | None = None
    offload_optimizer: bool = False
    trainable_frac: float = 1.0
    ahead_count: int = 0
    recompute_layers_frac: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a draft is completed for."""

    model: Transformer
    system: System
    calibration: Calibration
    software: SoftwareProfile


def complete_plan(draft: PlanDraft, setting: Setting) -> tuple[TrainingPlan, tuple[Note, ...]]:
    """The whole plan that `draft` stands for, and a note for each fill.

    In order: precision bf16; degrees of 1 where some are stated, else the smallest tensor, then pipeline degree with
    which a micro-batch of one fits; sharding and sequence parallelism as the framework does by default; the
    micro-batch that fills memory (one in a pipeline); interleaving that runs fastest where the framework
    interleaves; recompute as the framework's default, else the least that fits. Raises `BadPlan` where degrees do
    not multiply to the devices or no batch is known.
    """
    notes: list[Note] = []
    plan = _degrees(draft, setting, notes)
    plan = _batch(draft, plan, setting, notes)
    if draft.sharding is None:
        plan = _sharded(plan, setting, notes)
    if draft.recompute is None:
        plan = _recompute(plan, setting, notes)
    if draft.interleave_count is None and plan.pipeline_count > 1:
        plan = _interleave(plan, setting, notes)
    return plan, tuple(notes)


def _fill(notes: list[Note], text: str) -> None:
    notes.append(Note("fill", text))


def _degrees(draft: PlanDraft, setting: Setting, notes: list[Note]) -> TrainingPlan:
    """Degrees, precision and sharding; batches stay open."""
    software = setting.software
    if draft.precision is None:
        _fill(notes, "precision not stated: bf16")
    base = TrainingPlan(
        sequence_tokens=draft.sequence_tokens,
        precision=draft.precision or "bf16",
        context_count=draft.context_count or 1,
        expert_count=draft.expert_count or 1,
        interleave_count=draft.interleave_count or 1,
        shard_group_count=draft.shard_group_count,
        recompute=draft.recompute or "none",
        offload_optimizer=draft.offload_optimizer,
        ahead_count=draft.ahead_count,
        recompute_layers_frac=draft.recompute_layers_frac,
        **{"trainable_frac": draft.trainable_frac, **_adapters(draft, setting, notes)},
    )
    if draft.tensor_count is None and draft.pipeline_count is None and draft.data_count is None:
        plan = _smallest(draft, base, setting)
        if draft.devices_count > 1:
            _fill(notes, f"degrees not stated: the smallest that fit, {plan.label()}")
    else:
        tensor, pipeline = draft.tensor_count or 1, draft.pipeline_count or 1
        plan = _shaped(base, draft, setting, tensor, pipeline)
    if draft.sharding is None and draft.devices_count > 1:
        _fill(notes, f"sharding not stated: {plan.sharding}, the default of {software.name or software.id}")
    if draft.sequence_parallel is None and plan.tensor_count > 1:
        state = "on" if plan.sequence_parallel else "off"
        _fill(notes, f"sequence parallelism not stated: {state}, as {software.name or software.id} does")
    return plan


def _adapters(draft: PlanDraft, setting: Setting, notes: list[Note]) -> dict[str, Any]:
    """Adapters of the framework's recipe, where next to nothing is trained and nobody says what."""
    software = setting.software
    if draft.trainable_frac > 0 or not software.adapter_rank:
        return {}
    rank, where = int(software.adapter_rank), "all matrices"
    if software.adapter_targets == "qkv":
        where = "query, key and value"
    _fill(notes, f"adapters not stated: rank {rank} beside {where}, as in recipes of {software.name}")
    share = adapter_parameters_count(setting.model, rank, software.adapter_targets)
    return {
        "adapter_rank": rank,
        "adapter_targets": software.adapter_targets,
        "trainable_frac": share / setting.model.parameters_count,
    }


def _shaped(base: TrainingPlan, draft: PlanDraft, setting: Setting, tensor: int, pipeline: int) -> TrainingPlan:
    """`base` with these degrees, the data degree that is left, and the habits of the software."""
    each = tensor * pipeline * base.context_count
    if draft.devices_count % each:
        raise BadPlan(f"{tensor} x {pipeline} x {base.context_count} ranks do not divide {draft.devices_count} devices")
    usual = setting.software.sharding
    if usual in ("zero2", "zero3") and pipeline > 1:
        usual = "zero1"
    parallel = setting.software.sequence_parallel if draft.sequence_parallel is None else draft.sequence_parallel
    return replace(
        base,
        tensor_count=tensor,
        pipeline_count=pipeline,
        data_count=draft.devices_count // each,
        global_batch_count=draft.global_batch_count or draft.devices_count // each,
        sharding=draft.sharding or usual,
        sequence_parallel=parallel and tensor > 1,
    )


def _smallest(draft: PlanDraft, base: TrainingPlan, setting: Setting) -> TrainingPlan:
    """The least model parallelism that fits: tensor up to the inner level of the machine, then pipeline."""
    available = setting.system.chip.memory_bytes()
    last: TrainingPlan | None = None
    for tensor, pipeline in _growing(draft, base, setting):
        last = _shaped(base, draft, setting, tensor, pipeline)
        tried = replace(last, recompute=draft.recompute or "full", global_batch_count=last.data_count)
        if peak_bytes(setting.model, tried, setting.software) <= available:
            return last
    if last is None:
        raise BadPlan(f"no degrees divide {draft.devices_count} devices")
    return last


def _growing(draft: PlanDraft, base: TrainingPlan, setting: Setting) -> Iterator[tuple[int, int]]:
    levels = setting.system.levels
    inner = (levels[0].size_count if levels else 1) or setting.system.devices_per_node_count
    tensors = [2**power for power in range(inner.bit_length()) if 2**power <= inner]
    layers = setting.model.layers_count
    pairs = [(tensor, 1) for tensor in tensors]
    pairs += [(tensors[-1], depth) for depth in range(2, layers + 1) if divides(layers, depth)]
    for tensor, pipeline in pairs:
        if draft.devices_count % (tensor * pipeline * base.context_count) == 0:
            yield tensor, pipeline


def _batch(draft: PlanDraft, plan: TrainingPlan, setting: Setting, notes: list[Note]) -> TrainingPlan:
    """Micro-batch and global batch."""
    if draft.global_batch_count is None and draft.micro_batch_count is None:
        raise BadPlan("no batch size: neither the global nor the micro-batch is stated")
    if draft.global_batch_count is None:
        micro = draft.micro_batch_count or 1
        _fill(notes, f"global batch not stated: one micro-batch of {micro} on each of {plan.data_count} data ranks")
        return replace(plan, micro_batch_count=micro, global_batch_count=plan.data_count * micro)
    plan = replace(plan, global_batch_count=draft.global_batch_count)
    if draft.micro_batch_count is not None:
        return replace(plan, micro_batch_count=draft.micro_batch_count)
    micro = 1 if plan.pipeline_count > 1 else _largest_micro_batch(draft, plan, setting)
    _fill(notes, f"micro-batch not stated: {micro}")
    return replace(plan, micro_batch_count=micro)


def _largest_micro_batch(draft: PlanDraft, plan: TrainingPlan, setting: Setting) -> int:
    """The largest divisor of the local batch that fits with the stated (or the framework's) recompute."""
    local = max(1, plan.global_batch_count // plan.data_count)
    recompute = draft.recompute or setting.software.recompute
    available = setting.system.chip.memory_bytes()
    for micro in sorted((count for count in range(1, local + 1) if local % count == 0), reverse=True):
        tried = replace(plan, micro_batch_count=micro, recompute=recompute)
        if peak_bytes(setting.model, tried, setting.software) <= available:
            return micro
    return 1


def _sharded(plan: TrainingPlan, setting: Setting, notes: list[Note]) -> TrainingPlan:
    """Full sharding where the default of the framework does not fit even with everything recomputed, and that does."""
    if plan.pipeline_count > 1 or plan.data_count == 1 or plan.sharding == "zero3":
        return plan
    available = setting.system.chip.memory_bytes()
    least = replace(plan, recompute="full")
    spread = replace(least, sharding="zero3")
    if peak_bytes(setting.model, least, setting.software) <= available:
        return plan
    if peak_bytes(setting.model, spread, setting.software) > available:
        return plan
    _fill(notes, f"{plan.sharding} does not fit even with full recompute by this estimate: zero3 taken")
    return replace(plan, sharding="zero3")


def _recompute(plan: TrainingPlan, setting: Setting, notes: list[Note]) -> TrainingPlan:
    usual = setting.software.recompute
    name = setting.software.name or setting.software.id
    if usual != "none":
        _fill(notes, f"recompute not stated: {usual}, the default of {name}")
        return replace(plan, recompute=usual)
    fitted = least_recompute(setting.model, setting.system, setting.software, plan)
    if fitted is None:
        _fill(notes, "recompute not stated: full, and even so it does not fit by this estimate")
        return replace(plan, recompute="full")
    share = f" of {fitted.recompute_layers_frac:.0%} of the layers" if fitted.recompute == "full" else ""
    _fill(notes, f"recompute not stated: {fitted.recompute}{share}, the least that fits")
    return fitted


def _interleave(plan: TrainingPlan, setting: Setting, notes: list[Note]) -> TrainingPlan:
    """Virtual stages: the fastest count where the framework interleaves and the micro-batches allow it."""
    layers, depth = setting.model.layers_count, plan.pipeline_count
    choices = [plan]
    if setting.software.interleaved and plan.micro_batches_count % depth == 0 and layers % depth == 0:
        each = layers // depth
        choices += [replace(plan, interleave_count=count) for count in range(2, each + 1) if each % count == 0]
    if len(choices) == 1:
        _fill(notes, "interleaving not stated: none")
        return plan

    def step_s(tried: TrainingPlan) -> float:
        job = TrainingJob(
            model=setting.model,
            plan=tried,
            system=setting.system,
            calibration=setting.calibration,
            software=setting.software,
        )
        return estimate_step(job).step_s.best

    best = min(choices, key=step_s)
    _fill(notes, f"interleaving not stated: {best.interleave_count} virtual stages, the fastest")
    return best
