"""Memory of training against the formulas of the papers that count it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.specs import LayerRun, Linear, SoftwareProfile, Stack, TrainingPlan, Transformer
from ridgeline.workload.memory import (
    gradients_at_work,
    in_flight_frac,
    kept_by_layer,
    layer_parameters,
    local_parameters,
    logits_bytes,
    sharded_states,
    state_recipe,
)
from ridgeline.workload.stages import counts, divides, stages
from ridgeline.workload.training_shapes import LayerShape

from .test_layers import HEADS, NEW, OLD, B, H, S, gpt_layer, moe_layer, shape

SBH = S * B * H
SCORES = HEADS * S * S * B


def model(layers: int = 8, tied: bool = False) -> Transformer:
    stack = Stack(role="decoder", hidden_count=H, runs=(LayerRun(layer=gpt_layer(), repeat_count=layers),))
    return Transformer(
        id="m",
        family="gpt",
        main=stack,
        hidden_count=H,
        vocab_count=5000,
        embedding_parameters_count=5000 * H,
        head=Linear(name="head", role="head", inputs_count=H, outputs_count=5000),
        tied_embeddings=tied,
    )


def test_gpt_layer_keeps_34_sbh_and_5_as2b() -> None:
    """Korthikanti et al. 2022, equation 1: sbh (34 + 5 a s / h)."""
    assert kept_by_layer(gpt_layer(), H, shape(), OLD).whole == 34 * SBH + 5 * SCORES


def test_tensor_parallelism_divides_all_but_norms_and_their_inputs() -> None:
    """Equation 2: sbh (10 + 24 / t + 5 a s / (h t))."""
    kept = kept_by_layer(gpt_layer(), H, shape(tensor_count=4), OLD).whole
    assert kept == 10 * SBH + 24 * SBH / 4 + 5 * SCORES / 4


def test_sequence_parallelism_divides_everything() -> None:
    """Equation 4: sbh / t (34 + 5 a s / h)."""
    kept = kept_by_layer(gpt_layer(), H, shape(tensor_count=4, sequence_parallel=True), OLD).whole
    assert kept == (34 * SBH + 5 * SCORES) / 4


def test_selective_recompute_keeps_34_sbh_and_full_the_input() -> None:
    """Table 2 of the paper: selective 34 sbh / t, full 2 sbh (2 sbh / t where it is in shards)."""
    kept = kept_by_layer(gpt_layer(), H, shape(), OLD)
    assert kept.selective == 34 * SBH
    assert kept.entry == 2 * SBH


def test_fused_attention_has_no_square() -> None:
    """One fp32 statistic a query and head in place of the scores; no dropout: 32 sbh."""
    kept = kept_by_layer(gpt_layer(), H, shape(), NEW)
    assert kept.whole == 32 * SBH + 4 * B * S * HEADS
    assert kept.selective == 32 * SBH


def test_eight_bit_inputs_are_kept_in_eight_bit() -> None:
    # four inputs (H, H, H, 4 H) in one byte instead of two
    wide, narrow = (kept_by_layer(gpt_layer(), H, shape(precision=p), NEW).whole for p in ("bf16", "fp8"))
    assert wide - narrow == 7 * SBH


@pytest.mark.parametrize(
    ("sharding", "gigabytes"), [("none", 120.0), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.88)]
)
def test_zero_states_of_the_paper(sharding: str, gigabytes: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5 B parameters on 64 devices, 16 bytes a parameter."""
    recipe = state_recipe("fp16", SoftwareProfile(id="x", gradient_precision="same"))
    total = sharded_states(7.5e9, 1.0, 64.0, recipe, sharding).total
    assert total / 1e9 == pytest.approx(gigabytes, rel=0.005)


@pytest.mark.parametrize(
    ("precision", "software", "bytes_per_parameter"),
    [
        ("bf16", SoftwareProfile(id="a", gradient_precision="fp32"), 2 + 4 + 4 + 8),
        ("fp16", SoftwareProfile(id="b", gradient_precision="same"), 2 + 2 + 4 + 8),
        ("fp32", SoftwareProfile(id="c", gradient_precision="same"), 4 + 4 + 8),
        ("tf32", SoftwareProfile(id="c2", gradient_precision="bf16"), 4 + 4 + 8),
        ("bf16", SoftwareProfile(id="d", gradient_precision="same", master_bytes=0.0, moment_bytes=4.0), 2 + 2 + 4),
        ("fp8", SoftwareProfile(id="e", gradient_precision="fp32"), 2 + 2 + 4 + 4 + 8),
        ("fp8", SoftwareProfile(id="f", gradient_precision="fp32", narrow_weights=True), 2 + 4 + 4 + 8),
        ("bf16", SoftwareProfile(id="g", states="master-only"), 4 + 4 + 8),
    ],
)
def test_recipes(precision: str, software: SoftwareProfile, bytes_per_parameter: float) -> None:
    assert state_recipe(precision, software).total == bytes_per_parameter


def test_frozen_parameters_keep_only_weights() -> None:
    recipe = state_recipe("bf16", SoftwareProfile(id="x"))
    assert sharded_states(100.0, 0.0, 1.0, recipe, "none").total == 200.0


def test_in_flight_of_plain_and_interleaved_schedules() -> None:
    """Narayanan et al. 2021; Korthikanti et al. 2022 section 4.2.3: interleaving costs 1 + (p - 1)/(p v)."""
    plain = TrainingPlan(pipeline_count=4, global_batch_count=16, sequence_tokens=S)
    assert [in_flight_frac(stage, plain) for stage in range(4)] == [4, 3, 2, 1]
    folded = TrainingPlan(pipeline_count=4, interleave_count=3, global_batch_count=16, sequence_tokens=S)
    assert in_flight_frac(0, folded) == pytest.approx(4 * (1 + 3 / 12))
    few = TrainingPlan(pipeline_count=4, global_batch_count=2, sequence_tokens=S)
    assert in_flight_frac(0, few) == 2
    gpipe = TrainingPlan(pipeline_count=4, global_batch_count=16, sequence_tokens=S, schedule="gpipe")
    assert in_flight_frac(3, gpipe) == 16


def test_stages_hold_every_parameter_once() -> None:
    whole = model()
    plan = TrainingPlan(pipeline_count=4, sequence_tokens=S)
    held = sum(local_parameters(whole, stage, plan).total_count for stage in stages(whole, 4))
    assert held == whole.parameters_count


def test_tied_tables_are_on_both_ends_of_a_pipeline() -> None:
    whole = model(tied=True)
    plan = TrainingPlan(pipeline_count=2, sequence_tokens=S)
    held = sum(local_parameters(whole, stage, plan).total_count for stage in stages(whole, 2))
    assert held == whole.parameters_count + 5000 * H
    alone = local_parameters(whole, stages(whole, 1)[0], TrainingPlan(sequence_tokens=S))
    assert alone.total_count == whole.parameters_count


def test_expert_parallelism_divides_experts_alone() -> None:
    cut = LayerShape(query_tokens=S, sequence_tokens=S, expert_count=4, tensor_count=2, expert_tensor_count=1)
    dense, experts = layer_parameters(moe_layer(), cut)
    _, whole = layer_parameters(moe_layer(), shape())
    assert experts == whole / 4
    assert dense < layer_parameters(moe_layer(), shape())[0]


def test_uneven_layers() -> None:
    assert divides(126, 16)  # 126 layers, embedding and head: 128 / 16
    assert counts(126, 16)[0] == 7
    assert sum(counts(126, 16)) == 126
    assert not divides(126, 5)
    assert sum(counts(126, 5)) == 126


def test_interleaved_stages_take_every_pth_piece() -> None:
    held = stages(model(8), 2, 2)
    assert [stage.layers_count for stage in held] == [4, 4]
    assert [(stage.embedding, stage.head) for stage in held] == [(True, False), (False, True)]


def test_gradients_at_work() -> None:
    # fused: around `up` or `down`, H in and 4 H out; unfused: two gradients of all scores
    assert gradients_at_work(gpt_layer(), shape(), NEW) == 5 * SBH * 2
    long = shape(query_tokens=8192.0, sequence_tokens=8192.0)
    assert gradients_at_work(gpt_layer(), long, OLD) == 2 * B * HEADS * 8192**2 * 2


def test_logits() -> None:
    assert logits_bytes(10.0, 20.0, 4.0) == 800.0


def test_four_bit_weights_stay_wide_beside_their_narrow_copy() -> None:
    narrow = SoftwareProfile(id="f", gradient_precision="fp32", narrow_weights=True)
    wide = replace(narrow, narrow_weights=False)
    assert state_recipe("nvfp4", narrow).total == state_recipe("nvfp4", wide).total
    assert state_recipe("fp8", narrow).total < state_recipe("fp8", wide).total
