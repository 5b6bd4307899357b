"""How a serving plan lays weights and caches on devices: local shapes, stored precisions, bytes of one device.

The same rules serve time (shapes of GEMMs) and memory, so the two cannot disagree about what a device holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.core import model as formula
from ridgeline.specs import (
    BITS_PER_ELEMENT,
    WHOLE_FILE_FORMATS,
    Layer,
    Linear,
    Recurrence,
    ServingPlan,
    SoftmaxAttention,
    Stack,
    Transformer,
    bytes_per_element,
)

_WIDE_BITS = BITS_PER_ELEMENT["bf16"]
# Roles that post-training recipes leave in the wide format when a plan narrows the weights.
_KEPT_WIDE = frozenset({"head", "embedding", "router", "other"})
_ENDS = frozenset({"head", "embedding"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLinear:
    """One matrix as one device holds it: `experts_count` copies of (inputs, outputs)."""

    inputs_count: float
    outputs_count: float
    experts_count: float

    @property
    def parameters_count(self) -> float:
        """Elements held."""
        return self.experts_count * self.inputs_count * self.outputs_count


def attention_tensor_count(plan: ServingPlan) -> int:
    """Devices over which the attention (and all that is no routed expert) of one group is split."""
    return plan.tensor_count // plan.attention_data_count


def local_linear(linear: Linear, plan: ServingPlan) -> LocalLinear:
    """The share of `linear` on one device of `plan`.

    Column splits divide outputs, row splits inputs; a column split with `head_count` cannot go below one head, and
    an uneven one is as wide as its widest device. Experts are spread over `expert_count` devices first and cut over
    the rest of the tensor group.

    >>> k = Linear(name="k", role="attention", inputs_count=8192, outputs_count=1024, head_count=8)
    >>> local_linear(k, ServingPlan(tensor_count=16)).outputs_count
    128.0
    """
    if linear.role == "expert":
        degree = max(1, plan.tensor_count // plan.expert_count)
        experts = linear.experts_count / plan.expert_count
    else:
        degree = attention_tensor_count(plan)
        experts = float(linear.experts_count)
    inputs, outputs = float(linear.inputs_count), float(linear.outputs_count)
    if linear.split == "column":
        outputs *= head_frac(linear.head_count, degree, plan.head_units_count)
    elif linear.split == "row":
        inputs /= degree
    return LocalLinear(inputs_count=inputs, outputs_count=outputs, experts_count=experts)


def column_frac(head_count: int | None, degree: int) -> float:
    """Share of a column-split matrix on the fullest of `degree` devices, in whole heads where it has heads.

    >>> column_frac(8, 4), column_frac(8, 16), column_frac(10, 4), column_frac(None, 4)
    (0.25, 0.125, 0.3, 0.25)
    """
    if head_count is None or head_count <= 0:
        return 1.0 / degree
    return math.ceil(head_count / degree) / head_count


def head_frac(head_count: int | None, degree: int, units_count: int) -> float:
    """Share of heads, keys or matrices cut by heads on one of `degree` devices whose units each hold whole heads.

    >>> head_frac(8, 12, 1), head_frac(8, 12, 2), head_frac(None, 12, 2)
    (0.125, 0.25, 0.08333333333333333)
    """
    if head_count is None or units_count <= 1:
        return column_frac(head_count, degree)
    return min(1.0, units_count * column_frac(head_count, degree * units_count))


def weight_precision(linear: Linear, model: Transformer, plan: ServingPlan) -> str:
    """Stored precision of one matrix: its own, else the checkpoint's for its role, else the plan's.

    Where the plan narrows a wide checkpoint, head, embedding, router and odd matrices keep the wide format; formats of
    whole files narrow head and embedding too.
    """
    if linear.precision:
        return linear.precision
    return role_precision(linear.role, model, plan)


def role_precision(role: str, model: Transformer, plan: ServingPlan) -> str:
    """As `weight_precision`, for a role."""
    if model.precisions:
        if role in model.precisions:
            return model.precisions[role]
        if "default" in model.precisions:
            return model.precisions["default"]
    if role in _ENDS and plan.weight_precision in WHOLE_FILE_FORMATS:
        return plan.weight_precision
    if role in _KEPT_WIDE and BITS_PER_ELEMENT[plan.weight_precision] < _WIDE_BITS:
        return wide_precision(plan)
    return plan.weight_precision


def wide_precision(plan: ServingPlan) -> str:
    """The format of hidden states: the plan's activations where they are 16 or 32 bits wide, else bf16."""
    return plan.activation_precision if BITS_PER_ELEMENT[plan.activation_precision] >= _WIDE_BITS else "bf16"


def math_precision(stored: str, plan: ServingPlan) -> str:
    """Precision of the operands' multiplication, which is that of the activations fed to this matrix.

    Wide weights are multiplied in the wide format; narrow weights in the plan's activation format, but never in one
    narrower than the weights themselves. Narrow weights under wide activations are expanded on the fly.

    >>> math_precision("int4", ServingPlan(activation_precision="fp16"))
    'fp16'
    >>> math_precision("fp8", ServingPlan(activation_precision="nvfp4"))
    'fp8'
    """
    if BITS_PER_ELEMENT[stored] >= _WIDE_BITS:
        return stored if stored == "fp32" and plan.activation_precision == "fp32" else wide_precision(plan)
    if BITS_PER_ELEMENT[plan.activation_precision] < BITS_PER_ELEMENT[stored]:
        return stored
    return plan.activation_precision


def stage_layers(stack: Stack, stage_count: int) -> list[tuple[Layer, float]]:
    """Layers of the fullest of `stage_count` pipeline stages, as (layer, how many), in the stack's own mix."""
    share = math.ceil(stack.layers_count / stage_count) / max(1, stack.layers_count)
    return [(run.layer, run.repeat_count * share) for run in stack.runs]


def stored_layers(stack: Stack, stage_count: int) -> list[tuple[Layer, float]]:
    """As `stage_layers`, counting layers that share one set of weights once."""
    pairs = zip(stack.runs, stage_layers(stack, stage_count), strict=True)
    return [(layer, 1.0 if run.shared else count) for run, (layer, count) in pairs]


@formula(id="serving-weight-bytes", sources=("megatron-2021", "rl-derivation"))
def weight_bytes_per_device(model: Transformer, plan: ServingPlan) -> float:
    """Bytes of weights on the fullest device of one replica.

    Sum over matrices of local elements * stored width; norms and other small parameters are whole on every device;
    embedding and head are split over the tensor group and sit on the first and the last pipeline stage. The fullest
    stage is taken (layers rounded up), with the larger of embedding and head.
    """
    wide_bytes = bytes_per_element(wide_precision(plan))
    whole = sum(_stack_bytes(stack, model, plan, wide_bytes) for stack in model.stacks)
    degree = attention_tensor_count(plan)
    embedding = model.embedding_parameters_count * bytes_per_element(role_precision("embedding", model, plan)) / degree
    head = 0.0
    if model.head is not None and not (model.tied_embeddings and plan.pipeline_count == 1):
        stored = weight_precision(model.head, model, plan)
        head = local_linear(model.head, plan).parameters_count * bytes_per_element(stored)
    ends = embedding + head if plan.pipeline_count == 1 else max(embedding, head)
    return whole + ends + model.other_parameters_count * wide_bytes


def _stack_bytes(stack: Stack, model: Transformer, plan: ServingPlan, wide_bytes: float) -> float:
    stages = plan.pipeline_count if stack is model.main else 1
    held = sum(count * _layer_bytes(layer, model, plan, wide_bytes) for layer, count in stored_layers(stack, stages))
    for linear in stack.linears:
        held += local_linear(linear, plan).parameters_count * bytes_per_element(weight_precision(linear, model, plan))
    return held + stack.other_parameters_count * wide_bytes


def _layer_bytes(layer: Layer, model: Transformer, plan: ServingPlan, wide_bytes: float) -> float:
    held = layer.other_parameters_count * wide_bytes
    for linear in layer.linears:
        local = local_linear(linear, plan)
        held += local.parameters_count * bytes_per_element(weight_precision(linear, model, plan))
        if linear.bias:
            held += local.experts_count * local.outputs_count * wide_bytes
    return held


def local_cached_count(mixer: SoftmaxAttention, plan: ServingPlan) -> float:
    """Cache elements a token of one layer on one device: whole heads of K and V; a latent is whole everywhere."""
    return mixer.cached_per_token_count * cached_frac(mixer, plan)


def cached_frac(mixer: SoftmaxAttention, plan: ServingPlan) -> float:
    """Share of a layer's cache that one device of the attention group holds."""
    if mixer.latent_dim_count is not None:
        return 1.0
    return head_frac(mixer.kv_heads_count, attention_tensor_count(plan), plan.head_units_count)


@formula(id="kv-cache-bytes", sources=("rl-derivation", "pagedattention-2023"))
def cache_bytes_per_device(
    model: Transformer, plan: ServingPlan, context_tokens: float, encoder_tokens: float = 0.0, window_cache: bool = True
) -> float:
    """Cache bytes of one sequence of `context_tokens` on one device of its attention group.

    Layers with a window keep that many tokens where the engine can (`window_cache`); cross-attention keeps the
    encoder's tokens; recurrent layers keep a state of fixed size. The fullest pipeline stage counts.
    """
    held = 0.0
    for layer, count in stage_layers(model.main, plan.pipeline_count):
        for mixer in layer.mixers:
            if isinstance(mixer, Recurrence):
                held += count * mixer.state_per_sequence_bytes / attention_tensor_count(plan)
                continue
            tokens = encoder_tokens if mixer.cross else context_tokens
            if window_cache and mixer.window_tokens is not None:
                tokens = min(tokens, float(mixer.window_tokens))
            held += count * tokens * mixer.cached_bytes_per_token(plan.kv_precision) * cached_frac(mixer, plan)
    return held
