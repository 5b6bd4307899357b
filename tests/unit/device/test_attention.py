from __future__ import annotations

import math

import pytest

from ridgeline.core import FrozenMap
from ridgeline.device.attention import (
    AttentionTime,
    DecodeLaw,
    PrefillLaw,
    Scores,
    attention_bytes,
    attention_flop,
    backward,
    decode_s,
    prefill_s,
)
from ridgeline.device.optime import attention_law
from ridgeline.device.rates import Rates
from ridgeline.device.unfused import unfused_parts
from ridgeline.errors import MissingFact
from ridgeline.specs import Calibration, Chip, Law
from ridgeline.workload.ops import AttentionPrefill, Elementwise, Gemm

# 100 units at 1 GHz, 1000 FLOP a unit and cycle
RATES = Rates(peak_flop_per_s=1e14, bandwidth_bytes_per_s=1e12, unit_count=100, clock_hz=1e9, cache_bytes=1e7)
PREFILL = PrefillLaw(
    launch_cycles=0.0,
    block_cycles=0.0,
    compute_frac=1.0,
    score_cycles=0.0,
    memory_frac=1.0,
    pack_groups=0.0,
    backward_flop_ratio=2.5,
    backward_rate_ratio=0.5,
    smooth_count=16.0,
    tile_queries=128.0,
    balance_count=16.0,
)
DECODE = DecodeLaw(
    launch_cycles=1000.0,
    feed_bytes_per_cycle=10.0,
    block_cycles=0.0,
    split_s=0.0,
    memory_frac=0.5,
    cache_gain=4.0,
    head_s=0.0,
    compute_frac=1.0,
    split_groups_only=0.0,
    smooth_count=16.0,
)


def test_flop_and_bytes_by_hand() -> None:
    scores = Scores(2, 128, 128, 8, 2, 64, 64)
    # causal: 128 * 64.5 pairs, 2 * (64 + 64) FLOP each, 16 heads
    assert float(attention_flop(scores)) == 2 * 8 * 128 * 64.5 * 2 * 128
    # q and o of 8 heads, k and v of 2, two bytes
    assert float(attention_bytes(scores)) == 2 * 2 * 128 * (8 * 128 + 2 * 128)


def test_full_square_by_hand() -> None:
    # 100 heads of 16 tiles on 100 units: 16 tiles a unit, 32 blocks of 64 keys each; 128*64*256 FLOP a block at 1e12/s
    scores = Scores(1, 2048, 2048, 100, 100, 64, 64, causal=False)
    found = prefill_s(scores, PREFILL, RATES)
    assert float(found.compute_s) == pytest.approx(16 * 32 * 128 * 64 * 256 / 1e12, rel=1e-6)


def test_causal_does_the_diagonal_tiles_in_whole_blocks() -> None:
    scores = Scores(1, 2048, 2048, 100, 100, 64, 64)
    found = prefill_s(scores, PREFILL, RATES)
    # mean keys 1024.5 and half a tile of 128 in vain
    assert float(found.compute_s) == pytest.approx(16 * (1024.5 + 64) / 64 * 128 * 64 * 256 / 1e12, rel=1e-6)


def test_exponential_cost_adds_to_the_products() -> None:
    slow = PrefillLaw(
        **{name: getattr(PREFILL, name) for name in PREFILL.__slots__ if name != "score_cycles"}, score_cycles=0.256
    )
    scores = Scores(1, 2048, 2048, 100, 100, 64, 64)
    # 256 FLOP a score at 1000 FLOP a cycle are 0.256 cycles too
    ratio = prefill_s(scores, slow, RATES).compute_s / prefill_s(scores, PREFILL, RATES).compute_s
    assert float(ratio) == pytest.approx(2.0)


def test_backward_by_hand() -> None:
    found = backward(AttentionTime(0.0, 1.0, 0.1, 1e-6), 2.5, 0.5, 16.0)
    assert found.compute_s == 5.0
    assert found.memory_s == 0.25
    assert found.launch_s == 2e-6


def test_decode_by_hand() -> None:
    # 200 caches of 1 MB: memory 200e6 / (0.5 * 1e12) = 400 us; two waves of 1e6 / 1e10 = 100 us
    scores = Scores(200, 1, 1024, 1, 1, 64, 64)
    found = decode_s(scores, 200e6, DECODE, RATES, False)
    assert float(found.memory_s) == pytest.approx(400e-6)
    assert float(found.feed_s) == pytest.approx(200e-6)
    assert float(found.compute_s) <= 200e-6
    assert float(found.time_s) == pytest.approx(401e-6, rel=1e-3)
    # a small cache that stays resident is four times faster where a benchmark repeats it
    warm, cold = (decode_s(scores, 1e6, DECODE, RATES, resident).memory_s for resident in (True, False))
    assert float(cold / warm) == pytest.approx(4.0, rel=1e-3)


def test_unfused_attention_has_two_products_forward_and_four_backward() -> None:
    op = AttentionPrefill(
        name="a",
        batch_count=2,
        query_tokens=128,
        key_tokens=256,
        heads_count=4,
        kv_heads_count=4,
        key_dim_count=64,
        value_dim_count=32,
    )
    parts = unfused_parts(op)
    products = [part for part in parts if isinstance(part, Gemm)]
    assert sum(part.flop for part in products) == 2 * 8 * 128 * 256 * (64 + 32)
    softmax = next(part for part in parts if isinstance(part, Elementwise))
    assert softmax.bytes == 8 * 128 * 256 * (4 * 2 + 1)
    wide = next(part for part in unfused_parts(op, wide=True) if isinstance(part, Elementwise))
    assert wide.bytes == 8 * 128 * 256 * (2 + 4 + 4 + 4 + 4 + 2)  # widened, masked and soft-maxed, narrowed again
    gradient = unfused_parts(AttentionPrefill(**{**{f: getattr(op, f) for f in op.__slots__}, "backward": True}))
    assert sum(part.flop for part in gradient if isinstance(part, Gemm)) == 2 * 2 * 8 * 128 * 256 * (64 + 32)


def law(level: str) -> Law:
    return Law(
        kind="attention", level=level, parameters=FrozenMap(), ape_p50_frac=0.1, ape_p90_frac=0.2, fact=f"test.{level}"
    )


def test_the_family_measured_closest_is_taken_unless_one_is_asked_for() -> None:
    chip = Chip(id="any")
    laws = {
        "attention-decode.flashinfer": law("universal"),
        "attention-decode.fa3": law("architecture"),
        "attention-decode.fa2": law("device"),
        "attention-decode.fa2.fp8": law("architecture"),
        "attention-prefill": law("published"),
        "attention-prefill.fa1": law("published"),
    }
    calibration = Calibration(chip="any", laws=FrozenMap(laws))
    assert attention_law(calibration, chip, "decode", "", "bf16")[0] == "attention-decode.fa2"
    assert attention_law(calibration, chip, "decode", "fa3", "bf16")[0] == "attention-decode.fa3"
    assert attention_law(calibration, chip, "decode", "fa2", "fp8")[0] == "attention-decode.fa2.fp8"
    assert attention_law(calibration, chip, "prefill", "", "bf16")[0] == "attention-prefill"
    assert attention_law(calibration, chip, "prefill", "fa1", "bf16")[0] == "attention-prefill.fa1"
    with pytest.raises(MissingFact, match=r"attention-prefill\.fa3"):
        attention_law(calibration, chip, "prefill", "fa3", "bf16")
    assert math.isinf(Scores(1, 1, 1, 1, 1, 1, 1).window)
