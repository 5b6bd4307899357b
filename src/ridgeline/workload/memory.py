"""Memory of one device in training, by what is kept: states of parameters, activations, logits.

Bytes follow from the same local shapes as time does. What is kept of a layer between its forward and its backward
pass is counted tensor by tensor (Korthikanti et al. 2022): for a GPT layer with 16-bit activations, dropout and
unfused attention that gives 34 s b h + 5 a s^2 b.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.core import model as formula
from ridgeline.specs import Layer, Recurrence, SoftmaxAttention, TrainingPlan, Transformer
from ridgeline.specs.software import SoftwareProfile
from ridgeline.workload.remember import remembered
from ridgeline.workload.stages import Stage
from ridgeline.workload.training_shapes import (
    LayerShape,
    Projection,
    branches_count,
    heads_on_device,
    layer_shape,
    projection,
    projections,
)
from ridgeline.workload.training_streams import buffer_bytes, norm_stream_bytes, rows_of

_MASK_BYTES = 1.0  # one byte an element, as frameworks store a dropout mask
_FP32_BYTES = 4.0  # src: ieee-754
_BYTE = 1.0  # one byte; weights in 4 bit always stay beside wide ones
# Bytes held for one logit at the peak: 16-bit logits, fp32 copies, gradient in 16 bit. See `training_ends.LOSS_BYTES`.
LOGIT_BYTES: dict[str, float] = {
    "eager": 14.0,  # src: pytorch-cross-entropy-accesses (2 + 4 + 4 + 4)
    "split": 8.0,  # src: megatron-vocab-parallel-loss (2 + 4 + 2)
    "fused": 8.0,  # src: megatron-fused-loss (2 + 4 + 2)
    "in-place": 2.0,  # src: transformer-engine-loss (logits become their gradient)
    "chunked": 0.0,  # src: liger-fused-linear-loss (pieces only)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes per parameter before sharding: compute copy of weights, gradient, fp32 master, both moments."""

    weights: float
    gradients: float
    master: float
    moments: float

    @property
    def total(self) -> float:
        """All of them: 16 for mixed precision with Adam and 16-bit gradients."""
        return self.weights + self.gradients + self.master + self.moments


@remembered()
def state_recipe(precision: str, software: SoftwareProfile) -> StateBytes:
    """What one trained parameter costs under a precision and a framework's habits.

    >>> state_recipe("bf16", SoftwareProfile(id="x", gradient_precision="bf16")).total
    16.0
    >>> state_recipe("fp32", SoftwareProfile(id="x", gradient_precision="same")).total
    16.0
    """
    shape = LayerShape(query_tokens=0.0, sequence_tokens=0.0, precision=precision)
    wide = shape.stream_bytes
    narrow = 2 * shape.narrow_bytes
    if wide == _FP32_BYTES:
        return StateBytes(weights=wide, gradients=wide, master=0.0, moments=software.moment_bytes)
    eight_bit = shape.narrow_bytes >= _BYTE
    weights = narrow if eight_bit and software.narrow_weights else wide + narrow
    if software.states == "master-only":
        weights = narrow
        return StateBytes(
            weights=weights, gradients=_FP32_BYTES, master=software.master_bytes, moments=software.moment_bytes
        )
    return StateBytes(
        weights=weights,
        gradients=buffer_bytes(shape, software),
        master=software.master_bytes,
        moments=software.moment_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParameters:
    """Parameters that one device of a stage holds before sharding over data ranks, and the widest layer among them."""

    dense_count: float
    expert_count: float
    widest_layer_count: float

    @property
    def total_count(self) -> float:
        """All of them."""
        return self.dense_count + self.expert_count


def local_parameters(model: Transformer, stage: Stage, plan: TrainingPlan) -> LocalParameters:
    """Parameters of one device of `stage`: matrices cut over the tensor group, experts spread, the rest whole."""
    shape = layer_shape(plan)
    dense = expert = widest = 0.0
    for share in stage.shares:
        one_dense, one_expert = layer_parameters(share.layer, shape)
        dense += share.stored_count * one_dense
        expert += share.stored_count * one_expert
        widest = max(widest, one_dense + one_expert)
    if stage.embedding:
        dense += model.embedding_parameters_count / plan.tensor_count
        dense += sum(s.other_parameters_count + sum(x.parameters_count for x in s.linears) for s in model.stacks)
    if stage.head:
        dense += model.other_parameters_count
        shared = model.tied_embeddings and stage.embedding
        if model.head is not None and not shared:
            dense += projection(model.head, plan.tensor_count).parameters_count
    return LocalParameters(dense_count=dense, expert_count=expert, widest_layer_count=widest)


def layer_parameters(layer: Layer, shape: LayerShape) -> tuple[float, float]:
    """Parameters of one layer on one device: (all but routed experts, routed experts)."""
    return _layer_parameters(layer, shape.tensor_count, shape.expert_count, shape.expert_tensor_count)


@remembered()
def _layer_parameters(layer: Layer, tensor: int, expert_degree: int, expert_tensor: int) -> tuple[float, float]:
    dense, expert = float(layer.other_parameters_count), 0.0
    for linear in layer.linears:
        item = projection(linear, tensor, expert_degree, expert_tensor)
        if linear.role == "expert":
            expert += item.parameters_count
        else:
            dense += item.parameters_count
    return dense, expert


def shard_ranks(plan: TrainingPlan) -> tuple[int, int]:
    """Devices over which states of (ordinary, expert) parameters are sharded where the plan shards them."""
    ranks = plan.data_count * plan.context_count
    whole = ranks * plan.tensor_count
    cut = 1 if plan.expert_count > 1 else plan.tensor_count
    experts = max(1, whole // (plan.expert_count * cut))
    if plan.shard_group_count is not None:
        ranks = min(ranks, plan.shard_group_count)
        experts = min(experts, plan.shard_group_count)
    return ranks, experts


@formula(id="training-states", sources=("rajbhandari-2020-zero", "korthikanti-2022"))
def sharded_states(
    parameters_count: float, trainable_frac: float, ranks_count: float, recipe: StateBytes, sharding: str
) -> StateBytes:
    """Bytes of states of `parameters_count` parameters on one device.

    ZeRO-1 divides master and moments by `ranks_count`, ZeRO-2 gradients too, ZeRO-3 everything; frozen parameters
    keep only their weights. Returns bytes (not per parameter). Source: Rajbhandari et al. 2020, section 5.

    >>> r = StateBytes(weights=2.0, gradients=2.0, master=4.0, moments=8.0)
    >>> sharded_states(7.5e9, 1.0, 64.0, r, "zero1").total / 1e9      # figure 1 of the paper: 31.4 GB
    31.40625
    """
    trained = parameters_count * trainable_frac
    optimizer = 1.0 if sharding == "none" else 1.0 / ranks_count
    gradients = 1.0 / ranks_count if sharding in ("zero2", "zero3") else 1.0
    weights = 1.0 / ranks_count if sharding == "zero3" else 1.0
    return StateBytes(
        weights=parameters_count * recipe.weights * weights,
        gradients=trained * recipe.gradients * gradients,
        master=trained * recipe.master * optimizer,
        moments=trained * recipe.moments * optimizer,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBytes:
    """What one layer keeps for its backward pass on one device, per micro-batch, by policy.

    `whole`: no recompute. `selective`: scores are made again (or, fine-grained, norms and activations). `entry`: the
    layer's input alone (full recompute).
    """

    whole: float
    selective: float
    entry: float


@formula(id="activation-memory", sources=("korthikanti-2022",))
@remembered()
def kept_by_layer(layer: Layer, hidden: int, shape: LayerShape, software: SoftwareProfile) -> KeptBytes:
    """Activations that one layer keeps, tensor by tensor.

    Inputs of norms and of GEMMs (in the GEMM's own precision), queries, keys and values, inputs of the activation,
    dropout masks, and, unfused, scores after softmax, their mask and their masked copy; fused kernels keep one fp32
    statistic a query and head instead. Sequence parallelism divides what the tensor group would hold whole.
    Source: Korthikanti et al. 2022, section 4.
    """
    items = projections(layer, shape)
    wide = shape.stream_bytes
    kept = layer.norms_count * shape.residual_rows * hidden * norm_stream_bytes(shape, software)
    kept += sum(_kept_input(item, shape) for item in items)
    kept += shape.rows / shape.tensor_count * layer.activation_count * (2.0 if layer.gated else 1.0) * wide
    if software.dropout:
        kept += branches_count(items) * shape.residual_rows * hidden * _MASK_BYTES
    scores = 0.0
    for mixer in layer.mixers:
        if isinstance(mixer, Recurrence):
            kept += shape.rows / shape.tensor_count * mixer.elementwise_per_token_count * wide
            continue
        heads, kv_heads = heads_on_device(mixer, shape)
        kept += (
            shape.rows * wide * (heads * mixer.key_dim_count + kv_heads * (mixer.key_dim_count + mixer.value_dim_count))
        )
        scores += _kept_scores(mixer, heads, shape, software)
    again = sum(_kept_input(item, shape) for item in items if _made_cheaply(item, hidden))
    selective = kept + scores - again if software.cheap_recompute else kept
    return KeptBytes(whole=kept + scores, selective=selective, entry=shape.residual_rows * hidden * wide)


def _made_cheaply(item: Projection, hidden: int) -> bool:
    """Whether a projection's input comes from a norm or an activation, so that it can be made again for little."""
    return item.inputs_count == hidden if item.split == "column" else item.role in ("mlp", "expert", "shared-expert")


def _kept_input(item: Projection, shape: LayerShape) -> float:
    """Bytes of a projection's input: in shards where sequence parallelism gathers it, else whole."""
    element = shape.narrow_bytes if shape.gemm_precision(item.role) != shape.stream_precision else shape.stream_bytes
    rows = rows_of(item, shape)
    if item.split != "row" and item.role not in ("expert", "router") and not shape.keep_gathered:
        rows *= shape.residual_rows / shape.rows
    return rows * item.inputs_count * element


def _kept_scores(mixer: SoftmaxAttention, heads: float, shape: LayerShape, software: SoftwareProfile) -> float:
    if software.attention != "unfused":
        return shape.rows * heads * _FP32_BYTES
    keys = shape.cross_tokens if mixer.cross else shape.sequence_tokens
    each = 2 * shape.stream_bytes + _MASK_BYTES if software.dropout else shape.stream_bytes
    return shape.rows * heads * keys * each


@remembered()
def gradients_at_work(layer: Layer, shape: LayerShape, software: SoftwareProfile) -> float:
    """Bytes of the largest gradients that exist while one layer runs backward.

    Around a matrix: the gradient of its output and that of its input. Around scores through memory: the gradient of
    the weighted scores and that of the raw ones.
    """
    wide = shape.stream_bytes
    around = [rows_of(item, shape) * (item.inputs_count + item.outputs_count) for item in projections(layer, shape)]
    scores = 0.0
    for mixer in layer.mixers:
        if isinstance(mixer, SoftmaxAttention) and software.attention == "unfused":
            heads, _ = heads_on_device(mixer, shape)
            keys = shape.cross_tokens if mixer.cross else shape.sequence_tokens
            scores = max(scores, 2 * shape.rows * heads * keys)
    return max(max(around, default=0.0), scores) * wide


@formula(id="logits-memory", sources=("megatron-vocab-parallel-loss",))
def logits_bytes(tokens_count: float, vocab_count: float, logit_bytes: float) -> float:
    """Bytes of logits of `tokens_count` tokens over `vocab_count` entries at `logit_bytes` each.

    >>> round(logits_bytes(8192, 248_000, 4.0) / 2**30, 2)      # fp32 logits of 8k tokens
    7.57
    """
    return tokens_count * vocab_count * logit_bytes


@formula(id="in-flight-micro-batches", sources=("narayanan-2021", "korthikanti-2022"))
def in_flight_frac(stage_index: int, plan: TrainingPlan) -> float:
    """Activations of a stage that are alive at once, in units of one micro-batch through all its layers.

    1F1B: min(m, p - stage). Interleaved with v virtual stages: 2 (p - stage - 1) + (v - 1) p + 1 pieces of 1/v each,
    at most m v pieces; at the first stage that is 1 + (p - 1)/(p v) times the p of plain 1F1B. GPipe keeps all m.
    Schedules that split the backward pass keep what weight gradients need: ZB-H1 and ZB-V p on every stage, ZB-H2
    2p - 1 (Qi et al. 2023, table 2; Qi et al. 2024).

    >>> in_flight_frac(0, TrainingPlan(pipeline_count=4, global_batch_count=8, sequence_tokens=1))
    4.0
    >>> in_flight_frac(0, TrainingPlan(pipeline_count=4, interleave_count=2, global_batch_count=8, sequence_tokens=1))
    5.5
    """
    batches, depth, virtual = plan.micro_batches_count, plan.pipeline_count, plan.interleave_count
    if plan.schedule == "gpipe":
        return float(batches)
    if plan.splits_backward:
        return float(min(batches, 2 * depth - 1 if plan.schedule == "zb-h2" else depth))
    if virtual == 1:
        return float(min(batches, depth - stage_index))
    pieces = 2 * (depth - stage_index - 1) + (virtual - 1) * depth + 1
    return min(pieces, batches * virtual) / virtual
