"""Memory of a training job: every stage by part, and the fullest one."""

from __future__ import annotations

from typing import NamedTuple

from ridgeline.core import Breakdown, leaf, total
from ridgeline.errors import BadPlan
from ridgeline.specs import SoftwareProfile, TrainingPlan, Transformer
from ridgeline.workload.memory import (
    LOGIT_BYTES,
    gradients_at_work,
    in_flight_frac,
    kept_by_layer,
    local_parameters,
    logits_bytes,
    shard_ranks,
    sharded_states,
    state_recipe,
)
from ridgeline.workload.remember import remembered
from ridgeline.workload.stages import Stage, cross_tokens, stack_tokens, stages_of
from ridgeline.workload.training_shapes import layer_shape, projection


class _Part(NamedTuple):
    """One line of a stage's memory: bytes, the formula, and the field of the software that it leans on."""

    name: str
    bytes: float
    model: str = ""
    field: str = ""


def peak_memory(model: Transformer, plan: TrainingPlan, software: SoftwareProfile) -> Breakdown:
    """Memory of one device of the fullest pipeline stage [bytes], by part."""
    _, stage, parts = _fullest(model, plan, software)
    return _tree(stage, parts, software)


def peak_bytes(model: Transformer, plan: TrainingPlan, software: SoftwareProfile) -> float:
    """As `peak_memory`, the total alone."""
    return _fullest(model, plan, software)[0]


@remembered()
def _fullest(model: Transformer, plan: TrainingPlan, software: SoftwareProfile) -> tuple[float, Stage, list[_Part]]:
    best: tuple[float, Stage, list[_Part]] | None = None
    for stage in stages_of(model, plan):
        if stage.like < stage.index:  # holds the same as an earlier one, with fewer micro-batches in flight
            continue
        parts = _parts(model, stage, plan, software)
        whole = sum([part.bytes for part in parts])
        if best is None or whole > best[0]:
            best = (whole, stage, parts)
    if best is None:
        raise BadPlan(f"{plan.label()}: a pipeline without stages")
    return best


def stage_memory(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> Breakdown:
    """Memory of one device of `stage` [bytes], by part."""
    return _tree(stage, _parts(model, stage, plan, software), software)


def _tree(stage: Stage, parts: list[_Part], software: SoftwareProfile) -> Breakdown:
    leaves = [
        leaf(name, size, "B", model=model, uses=(software.fact_id(field),) if field else ())
        for name, size, model, field in parts
        if size > 0
    ]
    return total(f"memory of stage {stage.index}", "B", leaves)


def _parts(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> list[_Part]:
    parts = [*_states(model, stage, plan, software), *_activations(model, stage, plan, software)]
    loose = sum(part.bytes for part in parts) * software.fragmentation_frac
    parts.append(_Part("allocator slack", loose, "", "fragmentation_frac"))
    parts.append(_Part("context and communication buffers", software.context_bytes, "", "context_bytes"))
    return parts


def _states(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> list[_Part]:
    local = local_parameters(model, stage, plan)
    ranks, expert_ranks = shard_ranks(plan)
    recipe = state_recipe(plan.precision, software)
    dense = sharded_states(local.dense_count, plan.trainable_frac, ranks, recipe, plan.sharding)
    expert = sharded_states(local.expert_count, plan.trainable_frac, expert_ranks, recipe, plan.sharding)
    formula = "training-states"
    found = [
        _Part("weights", dense.weights + expert.weights, formula, "states"),
        _Part("gradients", dense.gradients + expert.gradients, formula, "gradient_precision"),
    ]
    if not plan.offload_optimizer:
        found.append(_Part("master weights", dense.master + expert.master, formula))
        found.append(_Part("optimizer moments", dense.moments + expert.moments, formula))
    if plan.sharding == "zero3":
        found.append(_Part("gathered layers", _gathered(local.widest_layer_count, plan, software), formula))
    elif software.states == "master-only" and recipe.weights == 0:
        found.append(_Part("16-bit copies", local.total_count * layer_shape(plan).stream_bytes, formula, "states"))
    return found


def _gathered(widest_count: float, plan: TrainingPlan, software: SoftwareProfile) -> float:
    """Whole weights of the layer at work and of those gathered ahead, and the whole gradient of one layer."""
    wide = layer_shape(plan).stream_bytes
    ahead = 1 + software.prefetch_layers_count
    return widest_count * wide * (ahead + plan.trainable_frac)


def _activations(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> list[_Part]:
    """What is kept between passes for all micro-batches in flight, what one layer needs at work, and the logits."""
    alive = in_flight_frac(stage.index, plan)
    part = plan.recompute_layers_frac if plan.recompute != "none" else 0.0
    kept = working = moving = 0.0
    for share in stage.shares:
        tokens = stack_tokens(model, share.stack, plan.sequence_tokens)
        shape = layer_shape(plan, tokens, cross_tokens(model, plan.sequence_tokens))
        one = kept_by_layer(share.layer, share.hidden, shape, software)
        again = one.selective if plan.recompute == "selective" else one.entry
        kept += share.count * (part * again + (1.0 - part) * one.whole)
        moving = max(moving, gradients_at_work(share.layer, shape, software))
        if part > 0:
            working = max(working, one.whole - again)
    shape = layer_shape(plan)
    stream = shape.residual_rows * model.hidden_count * shape.stream_bytes
    formula = "activation-memory"
    found = [
        _Part("activations", alive * kept, formula),
        _Part("layer computed again", working, formula),
        _Part("gradients at work", moving, formula),
        _Part("embedding output", alive * stream if stage.embedding else 0.0, formula),
    ]
    if stage.head and model.head is not None:
        rows = shape.rows * (model.head.rows_per_token or 1.0)
        vocab = projection(model.head, plan.tensor_count).outputs_count
        size = logits_bytes(rows, vocab, LOGIT_BYTES[software.loss])
        found.append(_Part("input of the head", 2 * stream, formula))
        found.append(_Part("logits", size, "logits-memory", "loss"))
    return found
