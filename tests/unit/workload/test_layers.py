"""Operations of one training layer on one device, against counts made by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from ridgeline.specs import Layer, Linear, SoftmaxAttention, SoftwareProfile
from ridgeline.workload.layers import training_layer_ops
from ridgeline.workload.ops import AttentionPrefill, Collective, Elementwise, Gemm, GroupedGemm, Repeated
from ridgeline.workload.training_experts import copies_per_token, touched_experts
from ridgeline.workload.training_shapes import LayerShape, keys_of, projections
from ridgeline.workload.training_streams import accumulate

OLD = SoftwareProfile(
    id="old", attention="unfused", dropout=True, fused_norm_gradient=False, fused_wgrad_accumulation=False
)
NEW = SoftwareProfile(id="new", attention="fa2")
H, HEADS, S, B = 1024, 16, 512, 4


def gpt_layer(hidden: int = H, heads: int = HEADS, kv_heads: int | None = None, bias: bool = True) -> Layer:
    kv, width = kv_heads or heads, hidden // heads
    attention = [
        Linear(name="q", role="attention", inputs_count=hidden, outputs_count=hidden, head_count=heads, bias=bias),
        Linear(name="k", role="attention", inputs_count=hidden, outputs_count=kv * width, head_count=kv, bias=bias),
        Linear(name="v", role="attention", inputs_count=hidden, outputs_count=kv * width, head_count=kv, bias=bias),
        Linear(name="o", role="attention", inputs_count=hidden, outputs_count=hidden, split="row", bias=bias),
    ]
    mlp = [
        Linear(name="up", role="mlp", inputs_count=hidden, outputs_count=4 * hidden, bias=bias),
        Linear(name="down", role="mlp", inputs_count=4 * hidden, outputs_count=hidden, split="row", bias=bias),
    ]
    scores = SoftmaxAttention(
        heads_count=heads,
        kv_heads_count=kv,
        key_dim_count=width,
        value_dim_count=width,
        cached_per_token_count=2 * kv * width,
    )
    return Layer(linears=(*attention, *mlp), mixers=(scores,), activation_count=4 * hidden, gated=False, rope=False)


def moe_layer(hidden: int = H, width: int = 512, experts: int = 8, top: float = 2.0) -> Layer:
    base = gpt_layer(hidden)
    linears = (
        *base.linears[:4],
        Linear(name="router", role="router", inputs_count=hidden, outputs_count=experts, split="replicated"),
        *(
            Linear(
                name=name,
                role="expert",
                inputs_count=hidden,
                outputs_count=width,
                experts_count=experts,
                active_count=top,
            )
            for name in ("gate", "up")
        ),
        Linear(
            name="down",
            role="expert",
            inputs_count=width,
            outputs_count=hidden,
            split="row",
            experts_count=experts,
            active_count=top,
        ),
    )
    return Layer(linears=linears, mixers=base.mixers, activation_count=int(top * width), gated=True)


def shape(**changes: object) -> LayerShape:
    base = {"sequences_count": float(B), "query_tokens": float(S), "sequence_tokens": float(S)}
    return LayerShape(**(base | changes))  # type: ignore[arg-type]


def flop(ops: Iterable[Repeated], *types: type) -> float:
    wanted = types or (Gemm, GroupedGemm)
    return sum(item.count * item.op.flop for item in ops if isinstance(item.op, wanted))  # type: ignore[union-attr]


def collectives(ops: Iterable[Repeated], prefix: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in ops:
        if isinstance(item.op, Collective) and item.op.name.startswith(prefix):
            found[item.op.kind] += int(item.count)
    return found


def bytes_of(ops: Iterable[Repeated], name: str) -> float:
    return sum(item.op.bytes for item in ops if isinstance(item.op, Elementwise) and item.op.name == name)


def test_matrices_of_a_gpt_layer_cost_24_b_s_h2_forward_and_twice_that_backward() -> None:
    ops = training_layer_ops(gpt_layer(), H, shape(), NEW)
    assert flop(ops.forward) == 24 * B * S * H**2
    assert flop(ops.backward) == 2 * flop(ops.forward)


def test_query_key_and_value_run_as_one_product() -> None:
    names = [item.name for item in projections(gpt_layer(), shape())]
    assert names == ["q+k+v", "o", "up", "down"]


def test_tensor_parallelism_divides_the_work() -> None:
    whole, cut = (training_layer_ops(gpt_layer(), H, shape(tensor_count=t), NEW) for t in (1, 8))
    assert flop(cut.forward) == flop(whole.forward) / 8
    assert flop(cut.backward) == flop(whole.backward) / 8


def test_key_and_value_heads_are_copied_beyond_their_number() -> None:
    # 2 key heads of 64 over 8 ranks: each rank keeps one whole head of K and of V beside 2 of 16 query heads.
    (fused, *_) = projections(gpt_layer(kv_heads=2), shape(tensor_count=8))
    assert fused.outputs_count == 2 * 64 + 64 + 64


def test_four_all_reduces_a_layer_and_step_without_sequence_parallelism() -> None:
    ops = training_layer_ops(gpt_layer(), H, shape(tensor_count=8), NEW)
    assert collectives(ops.forward, "tensor") == Counter({"all_reduce": 2})
    assert collectives(ops.backward, "tensor") == Counter({"all_reduce": 2})
    sizes = {item.op.message_bytes for item in ops.forward if isinstance(item.op, Collective)}
    assert sizes == {B * S * H * 2}


def test_with_sequence_parallelism_each_all_reduce_is_a_gather_and_a_scatter() -> None:
    ops = training_layer_ops(gpt_layer(), H, shape(tensor_count=8, sequence_parallel=True), NEW)
    assert collectives(ops.forward, "tensor") == Counter({"all_gather": 2, "reduce_scatter": 2})
    assert collectives(ops.backward, "tensor gather again") == Counter({"all_gather": 2})
    backward = collectives(ops.backward, "tensor")
    assert backward == Counter({"all_gather": 4, "reduce_scatter": 2})


def test_no_exchange_on_one_device() -> None:
    ops = training_layer_ops(gpt_layer(), H, shape(), NEW)
    assert not any(isinstance(item.op, Collective) for item in (*ops.forward, *ops.backward))


@pytest.mark.parametrize("context", [1, 2, 4, 8])
def test_context_ranks_share_the_causal_triangle(context: int) -> None:
    # q queries that are the last of k keys see q k - q^2 / 2 of them (large-number form).
    layer, cut = gpt_layer(), shape(query_tokens=S / context, context_count=context)
    queries, keys = S / context, keys_of(layer.mixers[0], cut)  # type: ignore[arg-type]
    assert context * (queries * keys - queries**2 / 2) == pytest.approx(S**2 / 2)


def test_context_ranks_pass_keys_and_values_around() -> None:
    cut = shape(query_tokens=S / 4, context_count=4, tensor_count=2)
    ops = training_layer_ops(gpt_layer(kv_heads=4), H, cut, NEW)
    gather = next(i.op for i in ops.forward if isinstance(i.op, Collective) and i.op.name.startswith("context"))
    # 2 of 4 key heads a rank, keys and values of 64 each, the whole sequence, 2 bytes
    assert gather.message_bytes == B * S * 2 * (64 + 64) * 2
    assert (gather.group.size_count, gather.group.stride_count) == (4, 2)
    assert collectives(ops.backward, "context") == Counter({"all_gather": 1, "reduce_scatter": 1})


def test_unfused_scores_move_9_bytes_forward_and_11_backward() -> None:
    # forward: softmax in and out (2 + 2), dropout in and out (2 + 2) and its mask (1); backward: gradient of dropout
    # (2 + 2, mask 1), of softmax (2 + 2 + 2)
    scores = B * HEADS * S * S
    ops = training_layer_ops(gpt_layer(), H, shape(), OLD)
    assert bytes_of(ops.forward, "softmax") + bytes_of(ops.forward, "attention dropout") == 9 * scores
    back = bytes_of(ops.backward, "softmax backward") + bytes_of(ops.backward, "attention dropout backward")
    assert back == 11 * scores
    products = [i.op for i in ops.forward if isinstance(i.op, Gemm) and i.op.batch_count > 1]
    assert sum(op.flop for op in products) == 4 * B * S * S * H


def test_fused_scores_are_one_kernel_each_way() -> None:
    ops = training_layer_ops(gpt_layer(), H, shape(), NEW)
    forward = [i.op for i in ops.forward if isinstance(i.op, AttentionPrefill)]
    backward = [i.op for i in ops.backward if isinstance(i.op, AttentionPrefill)]
    assert [op.backward for op in (*forward, *backward)] == [False, True]
    assert ops.selective_recompute == tuple(i for i in ops.forward if isinstance(i.op, AttentionPrefill))


def test_norms_and_residuals_of_a_fused_layer() -> None:
    # two norms read and write the stream; two additions read two and write one
    ops = training_layer_ops(gpt_layer(), H, shape(), NEW)
    assert bytes_of(ops.forward, "norms") == 2 * 2 * B * S * H * 2
    assert bytes_of(ops.forward, "residuals") == 2 * 3 * B * S * H * 2
    assert bytes_of(ops.forward, "activation") == 2 * B * S * 4 * H * 2
    sharded = training_layer_ops(gpt_layer(), H, shape(tensor_count=4, sequence_parallel=True), NEW)
    assert bytes_of(sharded.forward, "norms") == bytes_of(ops.forward, "norms") / 4


def test_weight_gradients_are_added_by_the_product_or_by_a_kernel() -> None:
    items = projections(gpt_layer(), shape())
    weights = 12 * H**2
    fused = SoftwareProfile(id="x", gradient_precision="fp32", fused_wgrad_accumulation=True)
    apart = SoftwareProfile(id="x", gradient_precision="fp32", fused_wgrad_accumulation=False)
    sharded = SoftwareProfile(id="x", states="master-only")
    assert bytes_of(accumulate(items, shape(), fused), "gradient accumulation") == 4 * weights
    assert bytes_of(accumulate(items, shape(), apart), "gradient accumulation") == (2 + 4 + 4) * weights
    assert accumulate(items, shape(), sharded) == []


def test_frozen_matrices_have_no_weight_gradient() -> None:
    ops = training_layer_ops(gpt_layer(), H, shape(trainable_frac=0.0), NEW)
    assert flop(ops.backward) == flop(ops.forward)


def test_eight_bit_products_cast_what_no_norm_casts() -> None:
    # forward: inputs of o (H) and down (4 H) are read (2) and written twice (1 + 1); norms feed the other two.
    # backward: gradients of all four outputs (3 H, H, 4 H, H). Weights once a step.
    ops = training_layer_ops(gpt_layer(), H, shape(precision="fp8"), NEW)
    assert bytes_of(ops.forward, "casts") == B * S * (H + 4 * H) * 4
    assert bytes_of(ops.backward, "casts backward") == B * S * 9 * H * 4
    assert bytes_of(ops.per_step, "weight casts") == 12 * H**2 * 4
    assert {i.op.math_precision for i in ops.forward if isinstance(i.op, Gemm)} == {"fp8"}


def test_experts_take_their_tokens_by_all_to_all() -> None:
    cut = shape(tensor_count=2, expert_count=4, expert_tensor_count=1, sequence_parallel=True)
    ops = training_layer_ops(moe_layer(), H, cut, SoftwareProfile(id="x"))
    sends = [i.op for i in ops.forward if isinstance(i.op, Collective) and i.op.kind == "all_to_all"]
    # half of the tokens on each tensor rank, 2 experts each, 2 bytes
    assert [op.message_bytes for op in sends] == [B * S / 2 * 2 * H * 2] * 2
    assert {(op.group.size_count, op.group.stride_count) for op in sends} == {(4, 1)}
    experts = [i.op for i in ops.forward if isinstance(i.op, GroupedGemm)]
    assert [(op.rows_count, op.experts_count, op.n, op.k) for op in experts] == [
        (B * S / 2 * 2, 2, 1024, H),
        (B * S / 2 * 2, 2, H, 512),
    ]
    assert collectives(ops.forward, "tensor") == Counter({"all_gather": 1, "reduce_scatter": 1})


def test_active_work_of_a_mixture_is_that_of_its_chosen_experts() -> None:
    ops = training_layer_ops(moe_layer(), H, shape(), NEW)
    dense = 2 * B * S * (4 * H**2 + H * 8)
    assert flop(ops.forward) == dense + 2 * B * S * 2 * 3 * H * 512
    assert flop(ops.backward) == 2 * flop(ops.forward)


def test_touched_experts_and_copies() -> None:
    assert touched_experts(8, 1) == pytest.approx(1.0)
    assert touched_experts(8, 1e4) == pytest.approx(8.0)
    assert copies_per_token(8, 64, deduplicated=True) < copies_per_token(8, 64, deduplicated=False) == 8
