"""Traffic of layers as frameworks without fused kernels run them, and of what trainers do beside them, by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ridgeline.specs import Layer, Linear, SoftmaxAttention, SoftwareProfile
from ridgeline.training.per_step import host_optimizer_bytes
from ridgeline.workload.layers import training_layer_ops
from ridgeline.workload.memory import kept_by_layer
from ridgeline.workload.ops import Elementwise, Repeated
from ridgeline.workload.training_ends import optimizer_ops
from ridgeline.workload.training_shapes import LayerShape

H, HEADS, S, B = 1024, 16, 512, 4
T = B * S
SCORES = B * HEADS * S * S
EAGER = SoftwareProfile(
    id="eager",
    attention="unfused",
    fused_kernels=False,
    fused_softmax=False,
    fused_bias=False,
    joined_projections=False,
    fused_wgrad_accumulation=False,
    gradient_precision="fp32",
    dropout=True,
)


def bert_layer() -> Layer:
    names = ("q", "k", "v")
    attention = [Linear(name=name, role="attention", inputs_count=H, outputs_count=H, bias=True) for name in names]
    out = Linear(name="o", role="attention", inputs_count=H, outputs_count=H, split="row", bias=True)
    up = Linear(name="up", role="mlp", inputs_count=H, outputs_count=4 * H, bias=True)
    down = Linear(name="down", role="mlp", inputs_count=4 * H, outputs_count=H, split="row", bias=True)
    scores = SoftmaxAttention(
        heads_count=HEADS,
        kv_heads_count=HEADS,
        key_dim_count=H // HEADS,
        value_dim_count=H // HEADS,
        cached_per_token_count=2 * H,
        causal=False,
    )
    return Layer(linears=(*attention, out, up, down), mixers=(scores,), activation_count=4 * H, gated=False, rope=False)


SHAPE = LayerShape(sequences_count=float(B), query_tokens=float(S), sequence_tokens=float(S), precision="fp16")


def moved(ops: Iterable[Repeated]) -> dict[str, float]:
    return {item.op.name: item.count * item.op.bytes for item in ops if isinstance(item.op, Elementwise)}


def test_automatic_mixed_precision_makes_the_softmax_wide() -> None:
    wide = training_layer_ops(bert_layer(), H, SHAPE, EAGER)
    narrow = training_layer_ops(bert_layer(), H, SHAPE, replace(EAGER, wide_softmax=False))
    assert moved(wide.forward)["softmax"] == (2 + 4) * SCORES
    assert moved(wide.forward)["softmax scale and mask"] == (2 * 4 + (4 + 2)) * SCORES
    assert moved(wide.forward)["attention dropout"] == (4 + 4 + 1) * SCORES
    assert moved(narrow.forward)["softmax"] == (2 + 2) * SCORES
    assert moved(narrow.forward)["softmax scale and mask"] == 2 * 4 * SCORES
    assert moved(narrow.forward)["attention dropout"] == (2 + 2 + 1) * SCORES
    assert moved(narrow.backward)["softmax backward"] == 3 * 2 * SCORES


def test_heads_biases_and_gradient_sums_of_layers_that_nothing_fuses() -> None:
    eager = training_layer_ops(bert_layer(), H, SHAPE, EAGER)
    fused = training_layer_ops(bert_layer(), H, SHAPE, replace(EAGER, fused_bias=True, joined_projections=True))
    assert moved(eager.forward)["head order"] == 4 * T * H * 2 * 2  # q, k, v there, the result back; read and written
    assert moved(eager.forward)["bias"] == 3 * T * H * 2 * 2  # of q, k and v; that of "up" belongs to the activation
    assert moved(eager.backward)["input gradient sums"] == 2 * 3 * T * H * 2  # two sums of two inputs and one result
    assert not {"bias", "input gradient sums"} & {*moved(fused.forward), *moved(fused.backward)}


def test_gradients_are_cast_and_weights_made_narrow_in_every_micro_batch() -> None:
    weights = 12 * H * H
    plain = moved(training_layer_ops(bert_layer(), H, SHAPE, EAGER).backward)
    cast = replace(EAGER, casts_gradients=True, casts_weights=True)
    apart = moved(training_layer_ops(bert_layer(), H, SHAPE, cast).backward)
    assert plain["gradient accumulation"] == (2 + 4 + 4) * weights
    assert apart["gradient accumulation"] == (2 + 4 + 4 + 4 + 4) * weights
    assert apart["weights made narrow"] == (4 + 2) * weights
    assert "weights made narrow" not in plain


def test_an_optimizer_on_the_host_moves_48_bytes_a_parameter() -> None:
    software = SoftwareProfile(id="offload", reduce_precision="same")
    assert host_optimizer_bytes(SHAPE, software) == (2 + 4) + (4 + 4 + 4) + (4 + 12 + 12) + 2
    assert host_optimizer_bytes(replace(SHAPE, precision="fp32"), software) == 12 + 28 + 4


def test_a_loop_over_parameters_touches_every_intermediate() -> None:
    wide = replace(SHAPE, precision="fp32")
    loop = optimizer_ops(1000.0, 1000.0, wide, replace(EAGER, fused_optimizer=False))
    narrow = optimizer_ops(1000.0, 1000.0, SHAPE, replace(EAGER, fused_optimizer=False))
    assert moved(loop)["optimizer"] == 34 * 4 * 1000
    assert moved(narrow)["optimizer"] == (3 * 4 + (4 + 2 * 4 + 2 * 8) + 2) * 1000


def test_recompute_that_stops_early_leaves_the_last_product_out() -> None:
    whole = training_layer_ops(bert_layer(), H, SHAPE, EAGER)
    early = training_layer_ops(bert_layer(), H, SHAPE, replace(EAGER, recompute_stops_early=True))
    left_out = [item.op.name for item in whole.full_recompute if item not in early.full_recompute]
    assert left_out == ["down"]
    assert len(early.full_recompute) == len(whole.full_recompute) - 1
    assert early.forward == whole.forward


def test_random_numbers_of_a_kernel_of_their_own_are_written_and_read() -> None:
    drawn = training_layer_ops(bert_layer(), H, SHAPE, replace(EAGER, random_bytes=4.0))
    plain, names = moved(training_layer_ops(bert_layer(), H, SHAPE, EAGER).forward), moved(drawn.forward)
    elements = SCORES + 2 * T * H  # scores of attention, and what both branches add to the stream
    read = sum(names[name] - plain[name] for name in ("attention dropout", "residuals"))
    assert names["random numbers"] + names["attention random numbers"] == read == 4 * elements
    assert not {"random numbers", "attention random numbers"} & set(plain)
    assert moved(drawn.backward) == moved(training_layer_ops(bert_layer(), H, SHAPE, EAGER).backward)


def test_a_stream_that_mixed_precision_keeps_in_fp32_is_read_and_written_so() -> None:
    software = replace(EAGER, wide_stream=True, fused_dropout_add=True, fused_norm_gradient=True)
    ops = training_layer_ops(bert_layer(), H, SHAPE, software)
    forward, backward = moved(ops.forward), moved(ops.backward)
    norms, branches = bert_layer().norms_count, 2
    assert forward["norms"] == norms * T * H * (4 + 4 + 2)  # the stream read and written, and what products read
    assert forward["residuals"] == branches * T * H * (2 + 4 + 4 + 1)  # branch and stream read, sum and mask written
    assert backward["norms backward"] == norms * T * H * 3 * 4
    assert backward["residuals backward"] == branches * T * H * (2 + 4 + 4)
    wide = replace(SHAPE, precision="fp32")
    same = training_layer_ops(bert_layer(), H, wide, software), training_layer_ops(bert_layer(), H, wide, EAGER)
    assert moved(same[0].forward)["norms"] == moved(same[1].forward)["norms"]
    more = kept_by_layer(bert_layer(), H, SHAPE, software).whole - kept_by_layer(bert_layer(), H, SHAPE, EAGER).whole
    assert more == norms * T * H * (4 - 2)


def test_reductions_before_a_norm_read_what_it_is_of() -> None:
    software = replace(EAGER, fused_norm_gradient=True)
    apart = training_layer_ops(bert_layer(), H, SHAPE, replace(software, norm_reductions_count=2))
    whole = training_layer_ops(bert_layer(), H, SHAPE, software)
    tensors = bert_layer().norms_count * T * H * 2
    assert moved(whole.forward)["norms"] == 2 * tensors
    assert moved(apart.forward)["norms"] == (2 + 2) * tensors  # mean, variance, then the norm itself
    assert moved(apart.backward)["norms backward"] == (3 + 2) * tensors  # sums of rows read gradient and input first
