"""What a mixture of experts adds to a training layer: routing, permutation, dispatch and combine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ridgeline.specs.software import SoftwareProfile
from ridgeline.workload.ops import Collective, Elementwise, GroupedGemm, Op, Repeated
from ridgeline.workload.training_shapes import LayerShape, Projection


def touched_experts(experts_count: float, rows: float) -> float:
    """Expected experts with at least one row, for rows spread evenly at random: E (1 - (1 - 1/E)^rows).

    >>> touched_experts(8.0, 0.0), round(touched_experts(8.0, 8.0), 3)
    (0.0, 5.251)
    """
    if experts_count <= 1:
        return min(1.0, rows) * experts_count
    missed: float = (1.0 - 1.0 / experts_count) ** rows
    return experts_count * (1.0 - missed)


def copies_per_token(top: float, ranks_count: int, deduplicated: bool) -> float:
    """Copies of a token that leave for the experts: one for each chosen expert, or one for each device that holds any.

    >>> copies_per_token(8.0, 64, False), round(copies_per_token(8.0, 8, True), 3)
    (8.0, 5.251)
    """
    return touched_experts(float(ranks_count), top) if deduplicated else top


def grouped(item: Projection, shape: LayerShape, name: str, out: str, *, transposed: bool = False) -> GroupedGemm:
    """The experts' GEMM of one device; every device gets as many token-expert pairs as it sends (balanced routing)."""
    rows = shape.routed_rows * item.active_count
    precision = shape.gemm_precision(item.role)
    n, k = (item.inputs_count, item.outputs_count) if transposed else (item.outputs_count, item.inputs_count)
    return GroupedGemm(
        name=name,
        rows_count=rows,
        experts_count=item.experts_count,
        touched_count=touched_experts(item.experts_count, rows),
        n=n,
        k=k,
        math_precision=precision,
        weight_precision=precision,
        activation_precision=precision,
        output_precision=out,
    )


def routing_forward(
    hidden: int, items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile
) -> list[Repeated]:
    """Sorting tokens by expert, the exchange with the experts' devices, and the weighted sum on the way back."""
    routes = _chosen(items)
    ops = [*_biases(items, shape, software, 0), *_routing(hidden, routes, shape, software, "")] if routes else []
    return [Repeated(op=op) for op in ops]


def routing_backward(
    hidden: int, items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile
) -> list[Repeated]:
    """The same way for gradients: each permutation and exchange has its mirror."""
    routes = _chosen(items)
    ops = (
        [*_biases(items, shape, software, 1), *_routing(hidden, routes, shape, software, " backward")] if routes else []
    )
    return [Repeated(op=op) for op in ops]


class _Routes(NamedTuple):
    """Experts of each token, the width that they read (a latent's where they read one), and experts of a device."""

    top: float
    width: float
    local_count: float


def _chosen(items: Sequence[Projection]) -> _Routes | None:
    """What routing works with; None in a dense layer."""
    experts = [item for item in items if item.role == "expert"]
    if not experts:
        return None
    top = max(item.active_count for item in experts)
    return _Routes(top, experts[0].inputs_count, max(item.experts_count for item in experts)) if top > 0 else None


def sent_copies(top: float, shape: LayerShape, software: SoftwareProfile) -> float:
    """Copies of a token on the slowest wire of the exchange.

    One for each chosen expert; deduplicated, one for each device that holds any of them, and, where the experts are
    spread over several nodes, one for each node (which passes it on inside).
    """
    if not software.deduplicated_dispatch:
        return top
    nodes = -(-shape.expert_count // shape.domain_count)
    return copies_per_token(top, nodes if nodes > 1 else shape.expert_count, deduplicated=True)


def _routing(hidden: int, routes: _Routes, shape: LayerShape, software: SoftwareProfile, suffix: str) -> list[Op]:
    """Permutation: rows written out by expert (read, write), sorted again on arrival where experts are spread (read,
    write), and back; the sum reads each copy and writes a token. Fused permutation sorts while it sends and receives.
    """
    wide, (top, width, local) = shape.stream_bytes, routes
    rows = shape.routed_rows * top
    scores = sum_scores(shape.routed_rows, local * shape.expert_count, bool(suffix))
    sorts = 2.0 if shape.expert_count > 1 and not software.fused_permute else 1.0
    moved = sorts * 2 * (2 * rows * width * wide) + shape.routed_rows * hidden * wide
    ops: list[Op] = [
        Elementwise(name=f"routing{suffix}", kind="softmax", bytes=scores, launches_count=_ROUTING_LAUNCHES),
        Elementwise(name=f"permutation{suffix}", kind="other", bytes=moved, launches_count=2 * sorts),
    ]
    if shape.expert_count > 1:
        size = shape.routed_rows * sent_copies(top, shape, software) * width * wide
        for way in ("dispatch", "combine"):
            ops.append(
                Collective(
                    name=f"expert {way}{suffix}",
                    kind="token_exchange" if software.deduplicated_dispatch else "all_to_all",
                    message_bytes=size,
                    group=shape.expert_group,
                )
            )
    return ops


# Bias times weight of the token in fp32, added expert by expert, joined and narrowed; backward its gradient times the
# weight and times the bias, each summed, and the experts' parts joined again. Accesses of 2 and of 4 bytes.
_BIAS_ACCESSES = ((2.0, 6.0), (5.0, 8.0))  # src: megatron-core-experts
_BIAS_LAUNCHES = (2.0, 5.0)  # src: megatron-core-experts (for each expert)
_FP32_BYTES = 4.0  # src: ieee-754


def _biases(items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile, backward: int) -> list[Op]:
    """Biases of the experts' last product where it does not add them itself: each is weighted as its token is."""
    if software.fused_expert_bias:
        return []
    biased = [item for item in items if item.role == "expert" and item.split == "row" and item.bias_count > 0]
    narrow, wide = _BIAS_ACCESSES[backward]
    each = narrow * shape.stream_bytes + wide * _FP32_BYTES
    return [
        Elementwise(
            name="expert biases backward" if backward else "expert biases",
            kind="other",
            bytes=shape.routed_rows * item.active_count * item.outputs_count * each,
            launches_count=_BIAS_LAUNCHES[backward] * item.experts_count,
        )
        for item in biased
    ]


_ROUTING_LAUNCHES = 6.0  # src: megatron-core-router (softmax, top-k, scatter, two counts, auxiliary loss)
# Passes over the scores of all experts in fp32: forward softmax (2), top-k (1), the map and the weights written by
# expert (2), counts (1), auxiliary loss (3); backward of weights, softmax and loss.
_SCORE_PASSES = (9.0, 6.0)  # src: megatron-core-router
_SCORE_BYTES = 4.0  # src: ieee-754


def sum_scores(rows: float, experts_count: float, backward: bool) -> float:
    """Bytes that routing kernels move for `rows` tokens over `experts_count` experts.

    >>> sum_scores(1.0, 128.0, False)
    4608.0
    """
    return rows * experts_count * _SCORE_BYTES * _SCORE_PASSES[backward]
