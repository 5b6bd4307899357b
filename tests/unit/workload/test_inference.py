"""Operations of one engine step, with shapes worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.specs import (
    EngineProfile,
    Layer,
    LayerRun,
    Linear,
    Recurrence,
    ServingPlan,
    SoftmaxAttention,
    Stack,
    Transformer,
)
from ridgeline.workload.engine_step import Step
from ridgeline.workload.inference import inference_ops
from ridgeline.workload.inference_moe import fullest_rows_frac, fullest_touched_count, touched_experts_count
from ridgeline.workload.mixers import keys_read
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, Collective, Elementwise, Gemm, GroupedGemm
from ridgeline.workload.placement import (
    cache_bytes_per_device,
    local_linear,
    math_precision,
    role_precision,
    weight_bytes_per_device,
)

BARE = EngineProfile(id="bare")
HIDDEN, HEADS, KV, DIM, INNER, VOCAB, LAYERS = 1024, 16, 4, 64, 4096, 32000, 6


def attention(**changes):
    values = {
        "heads_count": HEADS,
        "kv_heads_count": KV,
        "key_dim_count": DIM,
        "value_dim_count": DIM,
        "cached_per_token_count": 2 * KV * DIM,
    }
    return SoftmaxAttention(**(values | changes))


def linears(role="mlp", **more):
    return (
        Linear(name="q", role="attention", inputs_count=HIDDEN, outputs_count=HEADS * DIM, head_count=HEADS),
        Linear(name="k", role="attention", inputs_count=HIDDEN, outputs_count=KV * DIM, head_count=KV),
        Linear(name="v", role="attention", inputs_count=HIDDEN, outputs_count=KV * DIM, head_count=KV),
        Linear(name="o", role="attention", inputs_count=HEADS * DIM, outputs_count=HIDDEN, split="row"),
        Linear(name="gate", role=role, inputs_count=HIDDEN, outputs_count=INNER, **more),
        Linear(name="up", role=role, inputs_count=HIDDEN, outputs_count=INNER, **more),
        Linear(name="down", role=role, inputs_count=INNER, outputs_count=HIDDEN, split="row", **more),
    )


def model(layer=None, **changes):
    layer = layer or Layer(linears=linears(), mixers=(attention(),), activation_count=INNER)
    values = {
        "id": "m",
        "family": "test",
        "main": Stack(role="decoder", hidden_count=HIDDEN, runs=(LayerRun(layer=layer, repeat_count=LAYERS),)),
        "hidden_count": HIDDEN,
        "vocab_count": VOCAB,
        "embedding_parameters_count": HIDDEN * VOCAB,
        "head": Linear(name="head", role="head", inputs_count=HIDDEN, outputs_count=VOCAB),
    }
    return Transformer(**(values | changes))


def found(ops, kind):
    return [(item.op, item.count) for item in ops if isinstance(item.op, kind)]


def shapes(ops):
    return {op.name: (op.m, op.n, op.k, count) for op, count in found(ops, Gemm)}


def test_projections_of_one_input_run_as_one_product():
    ops = inference_ops(model(), ServingPlan(), BARE, Step(decode_count=8, context_tokens=100))
    assert shapes(ops) == {
        "q+k+v": (8, (HEADS + 2 * KV) * DIM, HIDDEN, LAYERS),
        "o": (8, HIDDEN, HEADS * DIM, LAYERS),
        "gate+up": (8, 2 * INNER, HIDDEN, LAYERS),
        "down": (8, HIDDEN, INNER, LAYERS),
        "head": (8, VOCAB, HIDDEN, 1),
    }
    apart = inference_ops(model(), ServingPlan(), EngineProfile(id="e", fused_projections=False), Step(decode_count=8))
    assert {"q", "k", "v", "gate", "up"} <= set(shapes(apart))


@pytest.mark.parametrize(("degree", "q_heads", "kv_heads"), [(2, 8, 2), (4, 4, 1), (8, 2, 1)])
def test_tensor_parallelism_cuts_heads_and_replicates_key_heads_below_one(degree, q_heads, kv_heads):
    ops = inference_ops(model(), ServingPlan(tensor_count=degree), BARE, Step(decode_count=8, context_tokens=100))
    sizes = shapes(ops)
    assert sizes["q+k+v"][1] == (q_heads + 2 * kv_heads) * DIM
    assert sizes["o"][1:3] == (HIDDEN, HEADS * DIM / degree)
    assert sizes["gate+up"][1] == 2 * INNER / degree
    ((decode, count),) = found(ops, AttentionDecode)
    assert (decode.heads_count, decode.kv_heads_count, count) == (q_heads, kv_heads, LAYERS)
    assert decode.bytes == 8 * 100 * 2 * kv_heads * DIM * 2


def test_two_all_reduces_a_layer_of_the_hidden_state():
    ops = inference_ops(model(), ServingPlan(tensor_count=4), BARE, Step(decode_count=8, context_tokens=100))
    reduces = [(op, count) for op, count in found(ops, Collective) if op.kind == "all_reduce"]
    ((op, count),) = reduces
    assert count == 2 * LAYERS
    assert op.message_bytes == 8 * HIDDEN * 2
    assert not found(inference_ops(model(), ServingPlan(), BARE, Step(decode_count=8)), Collective)


def test_a_parallel_block_reduces_once():
    layer = Layer(linears=linears(), mixers=(attention(),), activation_count=INNER, norms_count=1)
    ops = inference_ops(model(layer), ServingPlan(tensor_count=4), BARE, Step(decode_count=8))
    assert [count for op, count in found(ops, Collective) if op.kind == "all_reduce"] == [LAYERS]


def test_head_sees_only_last_tokens_and_matrices_all():
    step = Step(decode_count=8, context_tokens=100, prompt_count=2, prompt_tokens=50, finishing_count=2)
    sizes = shapes(inference_ops(model(), ServingPlan(), BARE, step))
    assert sizes["head"][0] == 8 + 2
    assert sizes["q+k+v"][0] == 8 + 2 * 50


def test_half_a_prompt_a_step_is_a_prompt_in_half_of_the_steps():
    step = Step(prompt_count=0.5, prompt_tokens=64, cached_tokens=64, finishing_count=0.5)
    ((op, count),) = found(inference_ops(model(), ServingPlan(), BARE, step), AttentionPrefill)
    assert (op.batch_count, op.query_tokens, op.key_tokens, count) == (1.0, 64, 128, 0.5 * LAYERS)


def test_experts_touched_are_the_expected_distinct_ones():
    assert touched_experts_count(8, 2, 1) == 2
    assert touched_experts_count(64, 4, 16) == pytest.approx(64 * (1 - (60 / 64) ** 16))
    assert touched_experts_count(64, 4, 10**6) == pytest.approx(64)


def test_experts_are_spread_or_cut():
    layer = Layer(
        linears=linears("expert", experts_count=8, active_count=2.0), mixers=(attention(),), activation_count=2 * INNER
    )
    step = Step(decode_count=16, context_tokens=10)
    cut = found(inference_ops(model(layer), ServingPlan(tensor_count=4), BARE, step), GroupedGemm)
    wide = cut[0][0]
    assert (wide.n, wide.k, wide.experts_count, wide.rows_count) == (2 * INNER / 4, HIDDEN, 8, 32)
    spread_plan = ServingPlan(tensor_count=4, expert_count=4)
    spread = found(inference_ops(model(layer), spread_plan, BARE, step), GroupedGemm)[0][0]
    assert (spread.n, spread.experts_count) == (2 * INNER, 2)
    assert spread.rows_count == pytest.approx(32 / 4 * (1 + fullest_rows_frac(32, 8, 4)))
    assert cut[0][0].touched_count == pytest.approx(touched_experts_count(8, 2, 16))
    assert spread.touched_count == pytest.approx(fullest_touched_count(8, touched_experts_count(8, 2, 16), 4))
    assert touched_experts_count(8, 2, 16) / 4 <= spread.touched_count <= 2


@pytest.mark.parametrize(
    ("step", "rows", "touched"),
    [
        (Step(prompt_count=1, prompt_tokens=50, finishing_count=1), 50 * 8, 8),  # a prompt passes through all
        (Step(decode_count=4, context_tokens=10), 4 * 8, 8),  # eight choices are as many as the experts
        (Step(decode_count=3, context_tokens=10), 6, 6),  # six choices load an expert each
    ],
)
def test_engines_that_mask_experts_compute_all_of_them(step: Step, rows: float, touched: float) -> None:
    layer = Layer(
        linears=linears("expert", experts_count=8, active_count=2.0), mixers=(attention(),), activation_count=2 * INNER
    )
    engine = EngineProfile(id="masks", all_experts=True)
    product = found(inference_ops(model(layer), ServingPlan(), engine, step), GroupedGemm)[0][0]
    assert (product.rows_count, product.touched_count) == (rows, touched)


def test_cores_that_hold_whole_heads_read_more_of_the_cache() -> None:
    step = Step(decode_count=8, context_tokens=100)
    plans = [ServingPlan(tensor_count=KV, head_units_count=units) for units in (1, 2)]
    whole, cores = (found(inference_ops(model(), plan, BARE, step), AttentionDecode) for plan in plans)
    assert cores[0][0].bytes == 2 * whole[0][0].bytes


def test_data_parallel_attention_exchanges_tokens_twice_a_layer():
    layer = Layer(
        linears=linears("expert", experts_count=8, active_count=2.0), mixers=(attention(),), activation_count=2 * INNER
    )
    plan = ServingPlan(tensor_count=4, expert_count=4, attention_data_count=4)
    ops = inference_ops(model(layer), plan, BARE, Step(decode_count=16, context_tokens=10))
    exchanges = [(op.name, op.message_bytes, count) for op, count in found(ops, Collective)]
    # 4 tokens of a device, each to 2 experts, 1024 elements of 2 bytes.
    assert exchanges == [
        ("expert dispatch", 4 * 2 * HIDDEN * 2, LAYERS),
        ("expert combine", 4 * 2 * HIDDEN * 2, LAYERS),
    ]
    ((decode, _),) = found(ops, AttentionDecode)
    assert (decode.batch_count, decode.heads_count) == (4, HEADS)


def test_gathering_engines_send_all_tokens_to_every_device_and_reduce_after() -> None:
    layer = Layer(
        linears=linears("expert", experts_count=8, active_count=2.0), mixers=(attention(),), activation_count=2 * INNER
    )
    plan = ServingPlan(tensor_count=4, expert_count=4, attention_data_count=2)
    engine = EngineProfile(id="gathers", gather_exchange=True)
    ops = inference_ops(model(layer), plan, engine, Step(decode_count=16, context_tokens=10))
    exchanges = [
        (op.kind, op.message_bytes, op.group.size_count, op.group.stride_count) for op, _ in found(ops, Collective)
    ]
    whole = 16 * HIDDEN * 2
    assert ("all_gather", whole, 2, 2) in exchanges
    assert ("reduce_scatter", whole, 2, 2) in exchanges
    assert all(kind != "all_to_all" for kind, *_ in exchanges)


def test_rows_of_experts_elsewhere_are_moved_by_engines_that_mask_them() -> None:
    layer = Layer(
        linears=linears("expert", experts_count=8, active_count=2.0), mixers=(attention(),), activation_count=2 * INNER
    )
    step, plan = Step(decode_count=64, context_tokens=10), ServingPlan(tensor_count=4, expert_count=4)
    engine = EngineProfile(id="masks", masked_experts=True)
    ops = inference_ops(model(layer), plan, engine, step)
    (masked,) = [op for op, _ in found(ops, Elementwise) if op.name == "rows of experts elsewhere"]
    others = 64 * 2 - found(ops, GroupedGemm)[0][0].rows_count
    # zeros of both products, gate and up read and the activation written, the sum's reads: 2 bytes each
    assert masked.bytes == pytest.approx(others * 2 * (2 * 2 * INNER + INNER + 2 * HIDDEN))
    assert masked.launches_count == 0
    alone = inference_ops(model(layer), ServingPlan(), engine, step)
    assert all(op.name != "rows of experts elsewhere" for op, _ in found(alone, Elementwise))


def test_ordering_choices_takes_its_chain_in_every_layer() -> None:
    layer = Layer(
        linears=linears("expert", experts_count=8, active_count=2.0), mixers=(attention(),), activation_count=2 * INNER
    )
    step, engine = Step(decode_count=4, context_tokens=10), EngineProfile(id="sorts", expert_sort_s=16e-6)
    ops = found(inference_ops(model(layer), ServingPlan(), engine, step), Elementwise)
    assert [(op.chain_s, count) for op, count in ops if op.chain_s > 0] == [(16e-6, LAYERS)]


def test_latent_attention_decodes_as_one_wide_key_head():
    latent = attention(cached_per_token_count=512 + 64, latent_dim_count=512, key_dim_count=192, value_dim_count=128)
    layer = Layer(linears=linears(), mixers=(latent,))
    ops = inference_ops(model(layer), ServingPlan(tensor_count=4), BARE, Step(decode_count=3, context_tokens=1000))
    ((op, _),) = found(ops, AttentionDecode)
    assert (op.kv_heads_count, op.key_dim_count, op.value_dim_count, op.heads_count) == (1, 576, 512, HEADS / 4)
    assert op.bytes == 3 * 1000 * 576 * 2  # whole on every device of the tensor group
    assert cache_bytes_per_device(model(layer), ServingPlan(tensor_count=4), 1000) == LAYERS * 1000 * 576 * 2


@pytest.mark.parametrize(
    ("changes", "context", "read"),
    [({}, 1000, 1000), ({"window_tokens": 128}, 1000, 128), ({"selected_tokens": 256}, 1000, 256)],
)
def test_keys_that_a_query_reads(changes, context, read):
    assert keys_read(attention(**changes), context) == read


def test_engines_without_grouped_kernels_read_keys_again():
    step = Step(decode_count=1, context_tokens=100)
    plain = found(inference_ops(model(), ServingPlan(), BARE, step), AttentionDecode)[0][0]
    old = EngineProfile(id="old", query_reread_frac=0.5)
    again = found(inference_ops(model(), ServingPlan(), old, step), AttentionDecode)[0][0]
    assert again.bytes == plain.bytes * (1 + 0.5 * (HEADS / KV - 1))


def test_a_scan_moves_its_state_both_ways_in_decode():
    scan = Recurrence(kind="mamba2", state_per_sequence_count=10_000, per_token_flop=1e6, tail_per_sequence_count=100)
    layer = Layer(linears=linears(), mixers=(scan,))
    ops = inference_ops(model(layer), ServingPlan(), BARE, Step(decode_count=4, context_tokens=100))
    ((op, count),) = [(o, c) for o, c in found(ops, Elementwise) if o.kind == "scan"]
    assert op.bytes == 2 * 4 * (10_000 * 4 + 100 * 2)
    assert op.flop == 4 * 1e6
    assert count == LAYERS
    assert cache_bytes_per_device(model(layer), ServingPlan(), 10**6) == LAYERS * (10_000 * 4 + 100 * 2)


def test_encoder_runs_once_a_prompt_and_cross_attention_reads_its_keys():
    encoder = Stack(
        role="encoder",
        hidden_count=HIDDEN,
        runs=(LayerRun(layer=Layer(linears=linears(), mixers=(attention(causal=False),)), repeat_count=2),),
    )
    cross = Layer(
        linears=(
            *linears(),
            Linear(name="cross k", role="attention", inputs_count=HIDDEN, outputs_count=KV * DIM, from_encoder=True),
        ),
        mixers=(attention(), attention(cross=True)),
    )
    whole = model(cross, others=(encoder,))
    decoding = Step(decode_count=5, context_tokens=20, encoder_tokens=300)
    step = replace(decoding, prompt_count=1, prompt_tokens=1, finishing_count=1)
    ops = inference_ops(whole, ServingPlan(), BARE, step)
    assert shapes(ops)["cross k"][0] == 300
    decode = {op.name: op.context_tokens for op, _ in found(ops, AttentionDecode)}
    assert decode == {"attention decode": 20, "cross-attention decode": 300}
    lengths = {(op.query_tokens, op.key_tokens, op.causal) for op, _ in found(ops, AttentionPrefill)}
    assert lengths == {(300, 300, False), (1, 1, True), (1, 300, False)}
    assert "cross k" not in shapes(inference_ops(whole, ServingPlan(), BARE, decoding))


def test_weights_of_one_device():
    whole = model()
    assert weight_bytes_per_device(whole, ServingPlan()) == 2 * whole.parameters_count
    half = weight_bytes_per_device(whole, ServingPlan(tensor_count=2))
    assert half == whole.parameters_count  # everything divides: half of the weights, 2 bytes each
    fp8 = weight_bytes_per_device(whole, ServingPlan(weight_precision="fp8", activation_precision="fp8"))
    ends = 2 * HIDDEN * VOCAB
    assert fp8 == (whole.parameters_count - ends) + 2 * ends  # embedding and head stay wide
    staged = weight_bytes_per_device(whole, ServingPlan(pipeline_count=4))  # 6 layers on 4 stages: 2 on the fullest
    assert staged == 2 * (whole.main.parameters_count * 2 / 6 + HIDDEN * VOCAB)


def test_cache_of_windows_and_pipelines():
    windowed = Layer(linears=linears(), mixers=(attention(window_tokens=100),))
    token = 2 * KV * DIM * 2
    assert cache_bytes_per_device(model(), ServingPlan(), 1000) == LAYERS * 1000 * token
    assert cache_bytes_per_device(model(windowed), ServingPlan(), 1000) == LAYERS * 100 * token
    assert cache_bytes_per_device(model(windowed), ServingPlan(), 1000, window_cache=False) == LAYERS * 1000 * token
    assert cache_bytes_per_device(model(), ServingPlan(kv_precision="fp8"), 1000) == LAYERS * 1000 * token / 2
    assert cache_bytes_per_device(model(), ServingPlan(pipeline_count=2), 1000) == LAYERS / 2 * 1000 * token
    # 4 key heads over 8 devices: one whole head on each.
    assert cache_bytes_per_device(model(), ServingPlan(tensor_count=8), 1000) == LAYERS * 1000 * token / 4


@pytest.mark.parametrize(
    ("stored", "activation", "used"),
    [
        ("bf16", "bf16", "bf16"),
        ("bf16", "fp8", "bf16"),
        ("fp8", "fp8", "fp8"),
        ("fp8", "bf16", "bf16"),
        ("fp8", "nvfp4", "fp8"),
        ("int4", "fp16", "fp16"),
        ("nvfp4", "nvfp4", "nvfp4"),
        ("q4_k_m", "fp16", "fp16"),
    ],
)
def test_precision_of_the_product(stored, activation, used):
    assert math_precision(stored, ServingPlan(activation_precision=activation)) == used


def test_checkpoint_precisions_go_before_the_plan():
    quantised = model(precisions={"expert": "mxfp4", "default": "bf16"})
    plan = ServingPlan(weight_precision="fp8")
    assert role_precision("expert", quantised, plan) == "mxfp4"
    assert role_precision("attention", quantised, plan) == "bf16"
    assert role_precision("attention", model(), plan) == "fp8"
    assert role_precision("head", model(), plan) == "bf16"


def test_formats_of_whole_files_narrow_both_ends_but_no_router():
    plan = ServingPlan(weight_precision="q4_k_m", activation_precision="fp16")
    assert [role_precision(role, model(), plan) for role in ("head", "embedding", "mlp")] == ["q4_k_m"] * 3
    assert role_precision("router", model(), plan) == "fp16"


def test_uneven_heads_go_to_the_widest_device():
    odd = Linear(name="q", role="attention", inputs_count=8, outputs_count=10 * 64, head_count=10)
    assert local_linear(odd, ServingPlan(tensor_count=4)).outputs_count == 3 * 64


def test_pipeline_sends_between_stages():
    ops = inference_ops(model(), ServingPlan(pipeline_count=3), BARE, Step(decode_count=8, context_tokens=10))
    ((op, count),) = found(ops, Collective)
    assert (op.kind, op.message_bytes, count, op.group.stride_count) == ("send", 8 * HIDDEN * 2, 2, 1)


def test_fused_epilogues_leave_norms_alone():
    plain = Layer(linears=linears(), mixers=(attention(),), activation_count=INNER, gated=False)
    fused = EngineProfile(id="e", fused_epilogues=True)
    step = Step(decode_count=8, context_tokens=10)
    moved = {op.name: op.bytes for op, _ in found(inference_ops(model(plain), ServingPlan(), fused, step), Elementwise)}
    whole = {op.name: op.bytes for op, _ in found(inference_ops(model(plain), ServingPlan(), BARE, step), Elementwise)}
    assert "activation" not in moved
    assert whole["activation"] == 2 * 8 * INNER * 2
    assert moved["norm"] == whole["norm"] / 2


def test_activations_are_narrowed_before_each_product_unless_fused():
    plan = ServingPlan(weight_precision="fp8", activation_precision="fp8")
    step = Step(decode_count=8, context_tokens=10)
    apart = inference_ops(model(), plan, EngineProfile(id="e", fused_quantisation=False), step)
    casts = {op.bytes: count for op, count in found(apart, Elementwise) if op.kind == "cast"}
    # Inputs of q+k+v, o, gate+up are as wide as the hidden state, that of down as the inner width; 2 bytes in, 1 out.
    assert casts == {8 * HIDDEN * 3: 3 * LAYERS, 8 * INNER * 3: LAYERS}
    assert not [op for op, _ in found(inference_ops(model(), plan, BARE, step), Elementwise) if op.kind == "cast"]


def test_norms_and_activations_write_what_the_next_product_reads():
    plan = ServingPlan(weight_precision="fp8", activation_precision="fp8")
    step = Step(decode_count=8, context_tokens=10)
    moved = {op.name: op.bytes for op, _ in found(inference_ops(model(), plan, BARE, step), Elementwise)}
    assert moved["norm"] == 2 * 8 * HIDDEN * (3 * 2 + 1)  # hidden state and residual in, residual out, 8 bits out
    assert moved["activation"] == 8 * INNER * (2 * 2 + 1)


def test_disentangled_attention_looks_up_positions_for_every_pair():
    mixer = attention(
        kv_heads_count=HEADS,
        causal=False,
        cached_per_token_count=0,
        relative_products_count=2,
        relative_positions_count=64,
    )
    net = model(Layer(linears=linears(), mixers=(mixer,), activation_count=INNER))
    step = Step(prompt_count=2.0, prompt_tokens=100.0)
    ops = inference_ops(net, ServingPlan(), replace(BARE, launches_frac=1.0), step)
    found = {item.op.name: item for item in ops}
    scores = found["position scores"]
    assert (scores.op.m, scores.op.n, scores.op.k) == (100.0, 64.0, float(DIM))
    assert scores.op.batch_count == 2 * HEADS
    assert scores.count == 2 * LAYERS  # queries times positions and keys times positions
    table = found["position table"].op
    assert (table.m, table.n, table.k) == (64.0, float(HEADS * DIM), float(HEADS * DIM))
    # an index of 8 bytes, an element read and one written, two read and one written by the addition
    assert found["position look-up"].op.bytes == 2 * HEADS * 100 * 100 * (8 + 5 * 2)
    assert not found["attention prefill"].op.fused
    fused = inference_ops(net, ServingPlan(), replace(BARE, fused_relative=True), step)
    (look_up,) = [item.op for item in fused if item.op.name == "position look-up"]
    assert look_up.bytes == 2 * HEADS * 100 * 100 * 2 * (2 + 2 + 4)  # and the scaling and the mask beside it
