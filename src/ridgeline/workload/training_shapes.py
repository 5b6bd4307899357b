"""How a training layout cuts a layer: what one device sees, and which matrices run as one GEMM there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from ridgeline.specs import BITS_PER_ELEMENT, Layer, Linear, RankGroup, SoftmaxAttention, TrainingPlan
from ridgeline.workload.placement import column_frac
from ridgeline.workload.remember import remembered

# Matrices that narrow-precision recipes run in 8 or 4 bit; head, router and odd matrices stay wide.
_NARROWED = frozenset({"attention", "mixer", "mlp", "expert", "shared-expert"})
_MLP = frozenset({"mlp", "expert", "shared-expert"})
_WIDE_BITS = BITS_PER_ELEMENT["bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """What one device sees of a layer in one micro-batch.

    `sequences_count` sequences, `query_tokens` tokens of each on this device (the sequence over the context degree),
    `sequence_tokens` in all. `cross_tokens` is the length that cross-attention looks at. Experts are spread over
    `expert_count` devices and each expert is cut over `expert_tensor_count`. `domain_count` devices share the innermost
    level of the machine. `keep_gathered`: inputs that sequence parallelism gathers stay whole until the backward pass.
    `documents_count` documents are packed in a sequence and see themselves alone. `adapter_rank`: rank of the trained
    pair beside the matrices `adapter_targets` (0: none); `frozen_bytes`: bytes of a stored element of a frozen matrix
    where it has to be widened before each use (0: it is stored as it is computed with).
    """

    sequences_count: float = 1.0
    query_tokens: float
    sequence_tokens: float
    cross_tokens: float = 0.0
    tensor_count: int = 1
    context_count: int = 1
    expert_count: int = 1
    expert_tensor_count: int = 1
    domain_count: int = 1
    sequence_parallel: bool = False
    precision: str = "bf16"
    trainable_frac: float = 1.0
    keep_gathered: bool = False
    documents_count: float = 1.0
    adapter_rank: int = 0
    adapter_targets: str = "all"
    frozen_bytes: float = 0.0

    @property
    def rows(self) -> float:
        """Tokens of the micro-batch on this device (those that enter its GEMMs)."""
        return self.sequences_count * self.query_tokens

    @property
    def residual_rows(self) -> float:
        """Tokens whose norms and residuals this device works on: sequence parallelism divides them."""
        return self.rows / self.tensor_count if self.sequence_parallel else self.rows

    @property
    def routed_rows(self) -> float:
        """Tokens that this device routes to experts: whole experts take them from the sequence-parallel shards."""
        return self.rows / self.tensor_count if self.expert_tensor_count < self.tensor_count else self.rows

    @property
    def stream_precision(self) -> str:
        """Precision of hidden states: the plan's where it is 16 or 32 bits wide, else bf16."""
        return self.precision if BITS_PER_ELEMENT[self.precision] >= _WIDE_BITS else "bf16"

    @property
    def stream_bytes(self) -> float:
        """Bytes of one element of a hidden state."""
        return BITS_PER_ELEMENT[self.stream_precision] / 8  # src: bits-per-byte

    @property
    def narrow_bytes(self) -> float:
        """Bytes of one element of a GEMM operand in a narrow recipe; 0 where operands are hidden states as they are."""
        if self.stream_precision == self.precision:
            return 0.0
        return BITS_PER_ELEMENT[self.precision] / 8  # src: bits-per-byte

    @property
    def tensor_group(self) -> RankGroup:
        """Ranks that share a layer's matrices: consecutive devices."""
        return RankGroup(size_count=self.tensor_count, stride_count=1)

    @property
    def context_group(self) -> RankGroup:
        """Ranks that share a sequence."""
        return RankGroup(size_count=self.context_count, stride_count=self.tensor_count)

    @property
    def expert_group(self) -> RankGroup:
        """Ranks that share the experts of a layer."""
        return RankGroup(size_count=self.expert_count, stride_count=self.expert_tensor_count)

    def gemm_precision(self, role: str) -> str:
        """Precision of the operands of a matrix of `role`."""
        return self.precision if role in _NARROWED else self.stream_precision


def expert_tensor_count(plan: TrainingPlan) -> int:
    """Devices over which one expert is cut: whole experts where there is expert parallelism, else the tensor group.

    Megatron-Core's recipes set the expert tensor degree to 1 whenever experts are spread, so that expert ranks run
    over tensor, context and data ranks; without expert parallelism experts are cut as every other matrix.
    """
    return 1 if plan.expert_count > 1 else plan.tensor_count


@lru_cache(maxsize=8192)  # src: rl-numerics
def layer_shape(
    plan: TrainingPlan, tokens: float | None = None, cross_tokens: float = 0.0, domain_count: int = 1
) -> LayerShape:
    """What a device of `plan` sees of a layer that runs over sequences of `tokens` (None: the plan's sequence)."""
    whole = float(plan.sequence_tokens if tokens is None else tokens)
    return LayerShape(
        sequences_count=float(plan.micro_batch_count),
        query_tokens=whole / plan.context_count,
        sequence_tokens=whole,
        cross_tokens=cross_tokens,
        tensor_count=plan.tensor_count,
        context_count=plan.context_count,
        expert_count=plan.expert_count,
        expert_tensor_count=expert_tensor_count(plan),
        domain_count=domain_count,
        sequence_parallel=plan.sequence_parallel and plan.tensor_count > 1,
        precision=plan.precision,
        trainable_frac=plan.trainable_frac,
        keep_gathered=plan.keep_gathered and plan.sequence_parallel and plan.tensor_count > 1,
        documents_count=max(1.0, whole / plan.document_tokens) if plan.document_tokens > 0 else 1.0,
        adapter_rank=plan.adapter_rank,
        adapter_targets=plan.adapter_targets,
        frozen_bytes=_frozen_bytes(plan),
    )


def _frozen_bytes(plan: TrainingPlan) -> float:
    """Bytes of a stored element where frozen matrices are narrower than what they are multiplied as."""
    if not plan.frozen_precision or BITS_PER_ELEMENT[plan.frozen_precision] >= BITS_PER_ELEMENT[plan.precision]:
        return 0.0
    return BITS_PER_ELEMENT[plan.frozen_precision] / 8  # src: bits-per-byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One or more matrices with the same input that run as one GEMM, as one device holds them."""

    name: str
    role: str
    split: str
    inputs_count: float
    outputs_count: float
    bias_count: float = 0.0
    experts_count: float = 1.0
    active_count: float = 1.0
    rows_per_token: float = 1.0
    from_encoder: bool = False

    @property
    def weights_count(self) -> float:
        """Elements held by the device, without biases."""
        return self.experts_count * self.inputs_count * self.outputs_count

    @property
    def parameters_count(self) -> float:
        """Elements held by the device."""
        return self.weights_count + self.experts_count * self.bias_count


def projection(linear: Linear, tensor_count: int, expert_count: int = 1, expert_tensor_count: int = 1) -> Projection:
    """The share of `linear` on one device.

    >>> gate = Linear(name="gate", role="mlp", inputs_count=4096, outputs_count=14336)
    >>> projection(gate, 8).outputs_count
    1792.0
    """
    routed = linear.role == "expert"
    degree = expert_tensor_count if routed else tensor_count
    inputs, outputs = float(linear.inputs_count), float(linear.outputs_count)
    if linear.split == "column":
        outputs *= column_frac(linear.head_count, degree)
    elif linear.split == "row":
        inputs /= degree
    return Projection(
        name=linear.name,
        role=linear.role,
        split=linear.split,
        inputs_count=inputs,
        outputs_count=outputs,
        bias_count=outputs if linear.bias else 0.0,
        experts_count=linear.experts_count / expert_count if routed else float(linear.experts_count),
        active_count=linear.active_count,
        rows_per_token=linear.rows_per_token,
        from_encoder=linear.from_encoder,
    )


def projections(layer: Layer, shape: LayerShape) -> tuple[Projection, ...]:
    """The GEMMs of a layer on one device, in order; neighbours that read the same input run as one.

    Query, key and value projections, and the two branches of a gated MLP, are one column-split GEMM each.
    """
    return _projections(layer, shape.tensor_count, shape.expert_count, shape.expert_tensor_count)


@remembered()
def _projections(layer: Layer, tensor: int, expert: int, expert_tensor: int) -> tuple[Projection, ...]:
    found: list[Projection] = []
    for linear in layer.linears:
        item = projection(linear, tensor, expert, expert_tensor)
        if found and _same_input(found[-1], item):
            last = found[-1]
            found[-1] = replace(
                last,
                name=f"{last.name}+{item.name}",
                outputs_count=last.outputs_count + item.outputs_count,
                bias_count=last.bias_count + item.bias_count,
            )
        else:
            found.append(item)
    return tuple(item for item in found if item.rows_per_token > 0)


def _same_input(one: Projection, other: Projection) -> bool:
    return one.split == other.split == "column" and all(
        getattr(one, name) == getattr(other, name)
        for name in ("role", "inputs_count", "experts_count", "active_count", "rows_per_token", "from_encoder")
    )


def branches_count(items: Iterable[Projection]) -> int:
    """Branches of a layer that are added to the residual stream: each attention or mixer, and the MLP as one."""
    outward = [item.role for item in items if item.split == "row"]
    return sum(role not in _MLP for role in outward) + (1 if any(role in _MLP for role in outward) else 0)


def heads_on_device(mixer: SoftmaxAttention, shape: LayerShape) -> tuple[float, float]:
    """Query and key heads of one device; latent attention trains with as many key heads as query heads."""
    heads = mixer.heads_count * column_frac(mixer.heads_count, shape.tensor_count)
    if mixer.latent_dim_count is not None:
        return heads, heads
    return heads, mixer.kv_heads_count * column_frac(mixer.kv_heads_count, shape.tensor_count)


def keys_of(mixer: SoftmaxAttention, shape: LayerShape) -> float:
    """Keys that the queries of this device look at.

    Context parallelism deals out the rows of the causal triangle evenly (first and last chunks to one device), so
    each device has s^2 / (2 c) pairs; as the last s/c queries of k keys have q k - q^2 / 2 pairs, k = (s + s/c) / 2.
    Compressed attention keeps one key for so many tokens; later stages of a pyramid have fewer rows than tokens. Packed
    documents are sequences of their own.

    >>> m = SoftmaxAttention(heads_count=1, kv_heads_count=1, key_dim_count=1, value_dim_count=1,
    ...                      cached_per_token_count=2)
    >>> keys_of(m, LayerShape(query_tokens=256, sequence_tokens=1024, context_count=4))
    640.0
    """
    if mixer.cross:
        return shape.cross_tokens
    seen = (shape.sequence_tokens + shape.query_tokens) / 2 if mixer.causal else shape.sequence_tokens
    return seen / shape.documents_count * mixer.rows_per_token / mixer.stride_tokens
