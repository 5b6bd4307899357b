"""Memory of a training job: every stage by part, and the fullest one."""

from __future__ import annotations

from ridgeline.core import Breakdown, leaf, total
from ridgeline.specs import SoftwareProfile, TrainingPlan, Transformer
from ridgeline.workload.memory import (
    LOGIT_BYTES,
    StateBytes,
    in_flight_frac,
    kept_by_layer,
    local_parameters,
    logits_bytes,
    shard_ranks,
    sharded_states,
    state_recipe,
)
from ridgeline.workload.stages import Stage, cross_tokens, stack_tokens, stages_of
from ridgeline.workload.training_shapes import layer_shape, projection


def peak_memory(model: Transformer, plan: TrainingPlan, software: SoftwareProfile) -> Breakdown:
    """Memory of one device of the fullest pipeline stage [bytes], by part."""
    trees = [stage_memory(model, stage, plan, software) for stage in stages_of(model, plan)]
    return max(trees, key=lambda tree: tree.value)


def stage_memory(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> Breakdown:
    """Memory of one device of `stage` [bytes], by part."""
    parts = [*_states(model, stage, plan, software), *_activations(model, stage, plan, software)]
    loose = sum(part.value for part in parts) * software.fragmentation_frac
    if loose > 0:
        parts.append(leaf("allocator slack", loose, "B", uses=(software.fact_id("fragmentation_frac"),)))
    if software.context_bytes > 0:
        facts = (software.fact_id("context_bytes"),)
        parts.append(leaf("context and communication buffers", software.context_bytes, "B", uses=facts))
    return total(f"memory of stage {stage.index}", "B", [part for part in parts if part.value > 0])


def _states(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> list[Breakdown]:
    local = local_parameters(model, stage, plan)
    ranks, expert_ranks = shard_ranks(plan)
    recipe = state_recipe(plan.precision, software)
    dense = sharded_states(local.dense_count, plan.trainable_frac, ranks, recipe, plan.sharding)
    expert = sharded_states(local.expert_count, plan.trainable_frac, expert_ranks, recipe, plan.sharding)
    facts = (software.fact_id("gradient_precision"), software.fact_id("states"))
    kept = {"weights": _sum(dense, expert, "weights"), "gradients": _sum(dense, expert, "gradients")}
    if not plan.offload_optimizer:
        kept["master weights"] = _sum(dense, expert, "master")
        kept["optimizer moments"] = _sum(dense, expert, "moments")
    if plan.sharding == "zero3":
        kept["gathered layers"] = _gathered(local.widest_layer_count, plan, software)
    elif software.states == "master-only" and recipe.weights == 0:
        kept["16-bit copies"] = local.total_count * layer_shape(plan).stream_bytes
    return [
        leaf(name, value, "B", model="training-states", uses=facts if name == "gradients" else ())
        for name, value in kept.items()
    ]


def _sum(dense: StateBytes, expert: StateBytes, name: str) -> float:
    return float(getattr(dense, name) + getattr(expert, name))


def _gathered(widest_count: float, plan: TrainingPlan, software: SoftwareProfile) -> float:
    """Whole weights of the layer at work and of those gathered ahead, and the whole gradient of one layer."""
    wide = layer_shape(plan).stream_bytes
    ahead = 1 + software.prefetch_layers_count
    return widest_count * wide * (ahead + plan.trainable_frac)


def _activations(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> list[Breakdown]:
    """What is kept between passes for all micro-batches in flight, what one layer needs at work, and the logits."""
    alive = in_flight_frac(stage.index, plan)
    part = plan.recompute_layers_frac if plan.recompute != "none" else 0.0
    kept = working = 0.0
    for share in stage.shares:
        tokens = stack_tokens(model, share.stack, plan.sequence_tokens)
        shape = layer_shape(plan, tokens, cross_tokens(model, plan.sequence_tokens))
        one = kept_by_layer(share.layer, share.hidden, shape, software)
        again = one.selective if plan.recompute == "selective" else one.entry
        kept += share.count * (part * again + (1.0 - part) * one.whole)
        if part > 0:
            working = max(working, one.whole - again)
    shape = layer_shape(plan)
    stream = shape.residual_rows * model.hidden_count * shape.stream_bytes
    found = [leaf("activations", alive * kept, "B", model="activation-memory")]
    if working > 0:
        found.append(leaf("layer computed again", working, "B", model="activation-memory"))
    if stage.embedding:
        found.append(leaf("embedding output", alive * stream, "B", model="activation-memory"))
    if stage.head and model.head is not None:
        rows = shape.rows * (model.head.rows_per_token or 1.0)
        vocab = projection(model.head, plan.tensor_count).outputs_count
        size = logits_bytes(rows, vocab, LOGIT_BYTES[software.loss])
        found.append(leaf("input of the head", 2 * stream, "B", model="activation-memory"))
        found.append(leaf("logits", size, "B", model="logits-memory", uses=(software.fact_id("loss"),)))
    return found
