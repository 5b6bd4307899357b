from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from ridgeline.core import FrozenMap
from ridgeline.device import KernelContext, op_time
from ridgeline.errors import MissingFact
from ridgeline.specs import Calibration, Chip
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, Elementwise, Gemm, GroupedGemm

BIG = Gemm(name="big", m=8192, n=8192, k=8192)
THIN = Gemm(name="thin", m=1, n=16384, k=16384)
TINY = Gemm(name="tiny", m=16, n=64, k=64)


def prefill(**changes: object) -> AttentionPrefill:
    values: dict[str, object] = {
        "name": "a",
        "batch_count": 4,
        "query_tokens": 4096,
        "key_tokens": 4096,
        "heads_count": 32,
        "kv_heads_count": 8,
        "key_dim_count": 128,
        "value_dim_count": 128,
    }
    return AttentionPrefill(**{**values, **changes})  # type: ignore[arg-type]


def decode(**changes: object) -> AttentionDecode:
    values: dict[str, object] = {
        "name": "d",
        "batch_count": 64,
        "context_tokens": 4096,
        "heads_count": 32,
        "kv_heads_count": 8,
        "key_dim_count": 128,
        "value_dim_count": 128,
        "cached_per_token_count": 2 * 8 * 128,
    }
    return AttentionDecode(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "bound", "limiter"),
    [
        (BIG, "compute", "round.peak_dense_flop_per_s.bf16"),
        (THIN, "memory", "round.memory_bandwidth_bytes_per_s"),
        (TINY, "latency", "test.gemm.bf16.launch"),
    ],
)
def test_each_operation_says_what_bounds_it(
    op: Gemm, bound: str, limiter: str, chip: Chip, calibration: Calibration
) -> None:
    found = op_time(op, chip, calibration)
    assert (found.bound, found.limiter) == (bound, limiter)
    assert found.time_s >= max(found.compute_s, found.memory_s, found.launch_s) * 0.99
    assert found.level == "device"
    assert "test.gemm.bf16" in found.uses


def test_big_product_is_near_its_peak(chip: Chip, calibration: Calibration) -> None:
    achieved = BIG.flop / op_time(BIG, chip, calibration).time_s
    assert 0.7 < achieved / 1000e12 < 0.9


def test_precision_without_a_law_uses_its_own_peak_and_a_wider_interval(chip: Chip, calibration: Calibration) -> None:
    fp8 = Gemm(
        name="fp8", m=8192, n=8192, k=8192, math_precision="fp8", weight_precision="fp8", activation_precision="fp8"
    )
    wide, narrow = op_time(BIG, chip, calibration), op_time(fp8, chip, calibration)
    assert narrow.time_s == pytest.approx(wide.time_s / 2, rel=0.1)
    assert narrow.sigma > wide.sigma


def test_missing_figures_are_named(chip: Chip, calibration: Calibration, array_chip: Chip) -> None:
    with pytest.raises(MissingFact, match=r"round\.peak_dense\.int4"):
        op_time(Gemm(name="i", m=8, n=8, k=8, math_precision="int4"), chip, calibration)
    with pytest.raises(MissingFact, match=r"array\.unit_count"):
        op_time(BIG, array_chip, calibration)
    with pytest.raises(MissingFact, match=r"nothing\.efficiency\.gemm\.bf16"):
        op_time(BIG, chip, Calibration(chip="nothing"))
    with pytest.raises(MissingFact, match=r"efficiency\.attention-prefill\.fa1"):
        op_time(prefill(), chip, calibration, KernelContext(attention="fa1"))


def test_part_with_published_rates_only(array_chip: Chip, array_calibration: Calibration) -> None:
    found = op_time(BIG, array_chip, array_calibration)
    assert found.model == "systolic-gemm"
    assert found.level == "published"
    assert BIG.flop / found.time_s == pytest.approx(0.85 * 200e12, rel=0.02)
    assert op_time(prefill(), array_chip, array_calibration).model == "flat-attention"
    assert op_time(decode(), array_chip, array_calibration).memory_s == pytest.approx(decode().bytes / 0.8e12)


def test_causal_prefill_is_about_half_of_the_square(chip: Chip, calibration: Calibration) -> None:
    half = op_time(prefill(query_tokens=16384, key_tokens=16384), chip, calibration).time_s
    full = op_time(prefill(query_tokens=16384, key_tokens=16384, causal=False), chip, calibration).time_s
    assert half / full == pytest.approx(0.5, abs=0.03)


def test_window_makes_prefill_linear(chip: Chip, calibration: Calibration) -> None:
    times = [
        op_time(prefill(query_tokens=s, key_tokens=s, window_tokens=1024), chip, calibration).time_s
        for s in (16384, 32768)
    ]
    assert times[1] / times[0] == pytest.approx(2, rel=0.05)


def test_backward_is_five_products_at_its_own_rate(chip: Chip, calibration: Calibration) -> None:
    long = {"query_tokens": 16384, "key_tokens": 16384}
    forward = op_time(prefill(**long), chip, calibration)
    gradient = op_time(prefill(**long, backward=True), chip, calibration)
    assert gradient.compute_s / forward.compute_s == pytest.approx(2.5 / 0.8)


@pytest.mark.parametrize(
    ("change", "bound", "limiter"),
    [
        ({}, "memory", "round.memory_bandwidth_bytes_per_s"),
        ({"memory_bandwidth_bytes_per_s": 1e15}, "memory", "test.attention-decode.fa3.feed_bytes_per_cycle"),
        (
            {"memory_bandwidth_bytes_per_s": 1e15, "peak_dense_flop_per_s": FrozenMap({"bf16": 1e12})},
            "compute",
            "round.peak_dense_flop_per_s.bf16",
        ),
    ],
)
def test_decode_attention_waits_for_memory_the_feed_or_the_matrix_unit(
    change: dict[str, Any], bound: str, limiter: str, chip: Chip, calibration: Calibration
) -> None:
    found = op_time(decode(), replace(chip, **change), calibration)
    assert (found.bound, found.limiter) == (bound, limiter)
    assert found.time_s >= max(found.compute_s, found.memory_s, found.launch_s) * 0.99


def test_a_short_decode_waits_for_its_launch(chip: Chip, calibration: Calibration) -> None:
    found = op_time(decode(batch_count=1, context_tokens=16), chip, calibration)
    assert (found.bound, found.limiter) == ("latency", "test.attention-decode.fa3.launch")


def test_unfused_attention_is_bound_by_its_scores(chip: Chip, calibration: Calibration) -> None:
    fused = op_time(prefill(), chip, calibration)
    unfused = op_time(prefill(), chip, calibration, KernelContext(attention="unfused"))
    scores = 4 * 32 * 4096 * 4096
    # two products write and read the scores, softmax and dropout pass over them four times, dropout writes a mask
    assert unfused.memory_s > scores * (2 * 2 + 4 * 2 + 1) / 3e12
    assert unfused.time_s > 2 * fused.time_s


def test_decode_reads_the_cache_at_achieved_bandwidth(chip: Chip, calibration: Calibration) -> None:
    op = decode(batch_count=256, context_tokens=8192)
    found = op_time(op, chip, calibration)
    assert found.bound == "memory"
    assert op.bytes / 3e12 < found.time_s < 2 * op.bytes / 3e12


def test_decode_of_one_long_sequence_splits_its_keys(chip: Chip, calibration: Calibration) -> None:
    op = decode(batch_count=1, context_tokens=131072)
    alone = 131072 * 2 * 128 * 2 / (30 * 2e9)  # one unit a key head takes its keys in without split
    assert op_time(op, chip, calibration).time_s < 0.25 * alone


def test_experts_pad_rows_and_read_touched_weights_once(chip: Chip, calibration: Calibration) -> None:
    few = GroupedGemm(name="e", rows_count=8, experts_count=8, touched_count=8, n=4096, k=4096)
    found = op_time(few, chip, calibration)
    # eight experts of 4096 x 4096 in bf16 and 8 rows in and out (C counts 1.25), at 0.7 of 3 TB/s
    assert found.memory_s == pytest.approx((8 * 4096 * 4096 * 2 + 2.25 * 8 * 4096 * 2) / (0.7 * 3e12), rel=1e-3)
    assert found.bound == "memory"
    # one row an expert is computed as a tile of 16 rows
    assert found.compute_s > 16 * few.flop / 1000e12


def test_unequal_experts_waste_half_a_tile_each(chip: Chip, calibration: Calibration) -> None:
    equal = GroupedGemm(name="e", rows_count=8 * 4096, experts_count=8, touched_count=8, n=4096, k=4096)
    ragged = replace(equal, imbalance_frac=0.5)
    ratio = op_time(ragged, chip, calibration).compute_s / op_time(equal, chip, calibration).compute_s
    assert 1.0 < ratio < 1.05


def test_experts_without_a_law_of_their_own_use_that_of_products(chip: Chip, calibration: Calibration) -> None:
    op = GroupedGemm(name="e", rows_count=8, experts_count=8, touched_count=8, n=4096, k=4096)
    plain = Calibration(chip="round", laws=FrozenMap({"gemm.bf16": calibration.laws["gemm.bf16"]}))
    assert op_time(op, chip, plain).sigma > op_time(op, chip, calibration).sigma


def test_elementwise_kinds_and_cache(chip: Chip, calibration: Calibration) -> None:
    norm = op_time(Elementwise(name="n", kind="norm", bytes=1e9), chip, calibration)
    other = op_time(Elementwise(name="o", kind="residual", bytes=1e9), chip, calibration)
    assert norm.memory_s == pytest.approx(1e9 / (0.35 * 3e12), rel=1e-3)
    assert other.memory_s == pytest.approx(1e9 / (0.75 * 3e12), rel=1e-3)
    small = op_time(Elementwise(name="s", kind="residual", bytes=1e6), chip, calibration)
    assert small.memory_s == pytest.approx(1e6 / (18 * 128 * 2e9), rel=1e-3)
    fused = op_time(Elementwise(name="n", kind="norm", bytes=1e9), chip, calibration, KernelContext(fused=True))
    assert fused.memory_s == pytest.approx(1e9 / (0.85 * 3e12), rel=1e-3)


def test_a_host_that_does_not_keep_ahead_sets_the_floor(chip: Chip, calibration: Calibration) -> None:
    slow_host = KernelContext(host_launch_s=10e-6)
    tiny = op_time(TINY, chip, calibration, slow_host)
    assert (tiny.time_s, tiny.bound, tiny.limiter) == (10e-6, "latency", "host_launch_s")
    assert op_time(BIG, chip, calibration, slow_host) == op_time(BIG, chip, calibration)


def test_benchmark_switch_finds_small_weights_in_the_cache(chip: Chip, calibration: Calibration) -> None:
    op = Gemm(name="w", m=8, n=2048, k=1024)
    cold = op_time(op, chip, calibration)
    warm = op_time(op, chip, calibration, KernelContext(weight_copies_count=6))
    assert warm.memory_s <= cold.memory_s
    assert math.isfinite(warm.time_s)


def test_products_of_few_rows_stream_their_matrix_where_the_engine_does(chip: Chip, calibration: Calibration) -> None:
    streaming = KernelContext(stream_rows_count=8)
    moved = Elementwise(name="copy", kind="residual", bytes=THIN.bytes, flop=THIN.flop)
    plain = op_time(moved, chip, calibration, KernelContext(resident_activations=False))
    assert op_time(THIN, chip, calibration, streaming).time_s == plain.time_s
    assert op_time(BIG, chip, calibration, streaming) == op_time(BIG, chip, calibration)
    nine = replace(THIN, m=9)
    assert op_time(nine, chip, calibration, streaming) == op_time(nine, chip, calibration)
    narrow = op_time(replace(THIN, weight_precision="int4_g128"), chip, calibration, streaming)
    assert narrow.sigma > op_time(THIN, chip, calibration, streaming).sigma


def test_narrow_weights_move_fewer_bytes_with_a_wider_interval(chip: Chip, calibration: Calibration) -> None:
    packed = replace(THIN, weight_precision="int4")
    wide, narrow = op_time(THIN, chip, calibration), op_time(packed, chip, calibration)
    assert narrow.memory_s == pytest.approx(wide.memory_s / 4, rel=0.01)
    assert narrow.sigma > wide.sigma


def test_another_precision_takes_in_the_same_bytes_per_cycle(chip: Chip, calibration: Calibration) -> None:
    # fp32 at 60 TFLOP/s against 1000 for bf16: no feed bound, the matrix unit is what waits for
    slow = Gemm(
        name="f", m=8192, n=8192, k=8192, math_precision="fp32", weight_precision="fp32", activation_precision="fp32"
    )
    found = op_time(slow, chip, calibration)
    assert found.limiter == "round.peak_dense_flop_per_s.fp32"
    assert slow.flop / found.time_s == pytest.approx(0.9 * 60e12 * 0.9, rel=0.1)
