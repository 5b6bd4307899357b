"""Memory of a training job: every stage by part, and the fullest one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ridgeline.core import Breakdown, leaf, total
from ridgeline.errors import BadPlan
from ridgeline.specs import SoftwareProfile, TrainingPlan, Transformer, bytes_per_element
from ridgeline.training.host import held_activations, kept_share, layers_parameters_count, resident_frac
from ridgeline.workload.memory import (
    LOGIT_BYTES,
    LocalParameters,
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

# Names of parts that others ask for: what holds the states of the parameters, what the allocator keeps above live
# tensors, and what lies outside it.
STATES = ("weights", "gradients", "master weights", "optimizer moments")
SLACK = "allocator slack"
CONTEXT = "context and communication buffers"


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
    parts.append(_Part(SLACK, loose, "", "fragmentation_frac"))
    if plan.devices_count > 1:
        parts.append(_Part("communication buckets", software.exchange_buffer_bytes, "", "exchange_buffer_bytes"))
    parts.append(_Part(CONTEXT, software.context_bytes, "", "context_bytes"))
    return parts


@dataclass(frozen=True, slots=True)
class StateTerms:
    """States of a stage's parameters on one device [bytes]: as they would be with everything on the device.

    `optimizer` is master weights and moments; `copies` the 16-bit weights beside a master alone; `resident_frac` the
    share of weights and copies that stays on the device under `offload_weights`.
    """

    weights: float
    gradients: float
    master: float
    moments: float
    gathered: float
    copies: float
    resident_frac: float


def state_terms(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> StateTerms:
    """States of the parameters of `stage` on one device."""
    local = local_parameters(model, stage, plan)
    ranks, expert_ranks = shard_ranks(plan)
    recipe = state_recipe(plan.precision, software)
    dense = sharded_states(local.dense_count, plan.trainable_frac, ranks, recipe, plan.sharding)
    expert = sharded_states(local.expert_count, plan.trainable_frac, expert_ranks, recipe, plan.sharding)
    gathered = copies = 0.0
    if plan.sharding == "zero3":
        gathered = _gathered(local, plan, software)
    elif software.states == "master-only" and recipe.weights == 0:
        copies = plan.trainable_frac * local.total_count * layer_shape(plan).stream_bytes
    weights = plan.trainable_frac * (dense.weights + expert.weights)
    return StateTerms(
        weights=weights + _frozen_bytes(stage, plan, local, recipe.weights),
        gradients=dense.gradients + expert.gradients,
        master=dense.master + expert.master,
        moments=dense.moments + expert.moments,
        gathered=gathered,
        copies=copies,
        resident_frac=resident_frac(stage, plan, local),
    )


def _frozen_bytes(stage: Stage, plan: TrainingPlan, local: LocalParameters, copy_bytes: float) -> float:
    """Weights of frozen parameters: the layers in the format of the plan, embedding and head as `copy_bytes` each.

    Frameworks without a 16-bit copy of trained parameters (`copy_bytes` 0) keep frozen ones as they are computed with.
    """
    share = 1.0 - plan.trainable_frac
    if share <= 0:
        return 0.0
    ranks, expert_ranks = shard_ranks(plan) if plan.sharding == "zero3" else (1, 1)
    layers = layers_parameters_count(stage, plan)
    ends = local.total_count - layers
    each = copy_bytes or layer_shape(plan).stream_bytes
    of_layer = bytes_per_element(plan.frozen_precision) if plan.frozen_precision else each
    held = (layers - local.expert_count) / ranks + local.expert_count / expert_ranks
    return share * (held * of_layer + ends / ranks * each)


def _states(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> list[_Part]:
    terms = state_terms(model, stage, plan, software)
    formula = "training-states"
    found = [
        _Part("weights", terms.weights * terms.resident_frac, formula, "states"),
        _Part("gradients", terms.gradients, formula, "gradient_precision"),
    ]
    if not plan.offload_optimizer:
        found.append(_Part("master weights", terms.master, formula))
        found.append(_Part("optimizer moments", terms.moments, formula))
    found.append(_Part("gathered layers", terms.gathered, formula))
    found.append(_Part("16-bit copies", terms.copies * terms.resident_frac, formula, "states"))
    return found


def _gathered(local: LocalParameters, plan: TrainingPlan, software: SoftwareProfile) -> float:
    """Whole weights of the layer at work and of those gathered ahead, and the whole gradient of one layer.

    Some software lets go of gathered weights only beyond `live_parameters_count`.
    """
    wide = layer_shape(plan).stream_bytes
    ahead = local.widest_layer_count * (1 + software.prefetch_layers_count)
    live = max(ahead, min(software.live_parameters_count, local.total_count))
    return wide * (live + local.widest_layer_count * plan.trainable_frac)


@dataclass(frozen=True, slots=True)
class ActivationTerms:
    """Activations of a stage on one device for one micro-batch [bytes].

    `kept` between the passes by all layers, `largest` by the largest one; `working`: a layer that is computed again;
    `moving`: gradients of a layer at work; `stream`: output of the embedding, and half of what the head's input takes.
    """

    kept: float
    largest: float
    working: float
    moving: float
    stream: float
    logits: float

    def beside(self, head: bool) -> float:
        """Most that lives beside what is kept: a layer at work, or the loss with its logits and the head's input.

        Logits and their gradient are gone when the last layer's backward pass begins.
        """
        return max(self.working + self.moving, self.logits + 2 * self.stream if head else 0.0)


def activation_terms(
    model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile
) -> ActivationTerms:
    """Activations of one micro-batch on one device of `stage`."""
    kept = largest = working = moving = 0.0
    for share in stage.shares:
        tokens = stack_tokens(model, share.stack, plan.sequence_tokens)
        shape = layer_shape(plan, tokens, cross_tokens(model, plan.sequence_tokens))
        one = kept_by_layer(share.layer, share.hidden, shape, software)
        each = kept_share(one, plan)
        kept += share.count * each
        largest = max(largest, each)
        moving = max(moving, gradients_at_work(share.layer, shape, software))
        if plan.recompute != "none" and plan.recompute_layers_frac > 0:
            working = max(working, one.whole - (one.selective if plan.recompute == "selective" else one.entry))
    shape = layer_shape(plan)
    logits = 0.0
    if stage.head and model.head is not None:
        rows = shape.rows * (model.head.rows_per_token or 1.0)
        vocab = projection(model.head, plan.tensor_count).outputs_count
        heads = 1 + (plan.ahead_count if model.ahead else 0)
        logits = heads * logits_bytes(rows, vocab, LOGIT_BYTES[software.loss])
    stream = shape.residual_rows * model.hidden_count * shape.stream_bytes
    return ActivationTerms(kept, largest, working, moving, stream, logits)


def _activations(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> list[_Part]:
    """What is kept between passes for all micro-batches in flight, and the larger of a layer at work and the loss."""
    alive = in_flight_frac(stage.index, plan)
    terms = activation_terms(model, stage, plan, software)
    held = held_activations(alive, terms.kept, terms.largest, offloaded=plan.offload_activations)
    formula = "activation-memory"
    found = [
        _Part("activations", held, formula),
        _Part("embedding output", alive * terms.stream if stage.embedding else 0.0, formula),
    ]
    if terms.beside(stage.head and model.head is not None) > terms.working + terms.moving:
        found.append(_Part("input of the head", 2 * terms.stream, formula))
        found.append(_Part("logits", terms.logits, "logits-memory", "loss"))
    else:
        found.append(_Part("layer computed again", terms.working, formula))
        found.append(_Part("gradients at work", terms.moving, formula))
    return found


def host_bytes(model: Transformer, plan: TrainingPlan, software: SoftwareProfile) -> float:
    """Bytes that one device of the fullest stage keeps in the memory of its host."""
    return max((_stage_host_bytes(model, stage, plan, software) for stage in stages_of(model, plan)), default=0.0)


def _stage_host_bytes(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> float:
    states = state_terms(model, stage, plan, software)
    found = (states.weights + states.copies) * (1.0 - states.resident_frac)
    if plan.offload_optimizer:
        found += states.master + states.moments
    if plan.offload_activations:
        one = activation_terms(model, stage, plan, software)
        alive = in_flight_frac(stage.index, plan)
        found += alive * one.kept - held_activations(alive, one.kept, one.largest, offloaded=True)
    return found
