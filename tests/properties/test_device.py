"""What must hold for any kernel on any device, whatever the parameters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.core import FrozenMap
from ridgeline.device import KernelContext, op_time
from ridgeline.device.attention import (
    DecodeLaw,
    PrefillLaw,
    Scores,
    attention_bytes,
    attention_flop,
    decode_s,
    prefill_s,
    visible_keys,
)
from ridgeline.device.elementwise import ElementwiseLaw, Stream, elementwise_s
from ridgeline.device.gemm import Product, TileLaw, tiled_gemm_s
from ridgeline.device.rates import Rates
from ridgeline.specs import Calibration, Chip, Law
from ridgeline.workload.ops import Gemm

COUNT = st.floats(1, 2**16).map(round)
SHARE = st.floats(0.3, 1.0)


@st.composite
def tile_laws(draw: st.DrawFn) -> TileLaw:
    return TileLaw(
        launch_cycles=draw(st.floats(0, 1e4)),
        ramp_cycles=draw(st.floats(0, 1e4)),
        compute_frac=draw(SHARE),
        memory_frac=draw(SHARE),
        feed_flop_per_byte=draw(st.floats(10, 200)),
        wave_k_count=draw(st.floats(0, 500)),
        split_s=draw(st.floats(0, 1e-5)),
        cache_bytes_per_cycle=draw(st.floats(2, 64)),
        sustained_frac=draw(SHARE),
        sustained_s=1e-3,
        soft_frac=draw(st.floats(0, 1)),
        smooth_count=draw(st.floats(1, 8)),
        output_weight=draw(st.floats(1, 2)),
        split_count_max=draw(st.sampled_from([1.0, 32.0])),
    )


@st.composite
def all_rates(draw: st.DrawFn) -> Rates:
    return Rates(
        peak_flop_per_s=draw(st.floats(1e13, 5e15)),
        bandwidth_bytes_per_s=draw(st.floats(1e11, 1e13)),
        unit_count=draw(st.integers(8, 304)),
        clock_hz=draw(st.floats(1e9, 3e9)),
        cache_bytes=draw(st.floats(4e6, 2e8)),
    )


def gemm_s(m: float, n: float, k: float, law: TileLaw, rates: Rates, resident: bool = False) -> float:
    return float(tiled_gemm_s(Product(m, n, k), law, rates, math.inf, resident).time_s)


@given(m=COUNT, n=COUNT, k=COUNT, law=tile_laws(), rates=all_rates())
def test_product_takes_at_least_each_roof(m: int, n: int, k: int, law: TileLaw, rates: Rates) -> None:
    time_s = gemm_s(m, n, k, law, rates)
    assert time_s >= 2.0 * m * n * k / rates.peak_flop_per_s * (1 - 1e-9)
    # with operands from memory; what stays in the cache may be faster than memory
    assert time_s >= 2.0 * (m * k + k * n + m * n) / rates.bandwidth_bytes_per_s * (1 - 1e-9)
    assert time_s >= law.launch_cycles / rates.clock_hz * (1 - 1e-9)


@given(m=COUNT, n=COUNT, k=COUNT, law=tile_laws(), rates=all_rates(), factor=st.floats(1, 4))
def test_more_bandwidth_or_cache_is_never_slower(
    m: int, n: int, k: int, law: TileLaw, rates: Rates, factor: float
) -> None:
    before = gemm_s(m, n, k, law, rates, resident=True)
    wider = replace(rates, bandwidth_bytes_per_s=rates.bandwidth_bytes_per_s * factor)
    larger = replace(rates, cache_bytes=rates.cache_bytes * factor)
    # the sustained clock makes a kernel that computes more of the time a little slower: at most what the cap takes
    slack = 1 / law.sustained_frac if law.sustained_frac < 1 else 1 + 1e-9
    assert gemm_s(m, n, k, law, wider, resident=True) <= before * slack
    assert gemm_s(m, n, k, law, larger, resident=True) <= before * slack
    uncapped = replace(law, sustained_frac=1.0)
    assert gemm_s(m, n, k, uncapped, wider, True) <= gemm_s(m, n, k, uncapped, rates, True) * (1 + 1e-9)


@given(m=COUNT, n=COUNT, k=COUNT, law=tile_laws(), rates=all_rates(), which=st.sampled_from("mnk"))
def test_larger_product_is_not_faster(m: int, n: int, k: int, law: TileLaw, rates: Rates, which: str) -> None:
    law = replace(law, sustained_frac=1.0)
    larger = {"m": m, "n": n, "k": k}
    larger[which] = larger[which] * 2
    assert gemm_s(**larger, law=law, rates=rates) >= gemm_s(m, n, k, law, rates) * (1 - 1e-9)


@given(m=COUNT, n=COUNT, k=COUNT, law=tile_laws(), rates=all_rates(), speed=st.floats(0.2, 5))
def test_a_chip_faster_in_everything_is_faster_by_that(
    m: int, n: int, k: int, law: TileLaw, rates: Rates, speed: float
) -> None:
    """Scale invariance: every rate times x and every time of the law over x give 1/x of the time."""
    fast = replace(
        rates,
        peak_flop_per_s=rates.peak_flop_per_s * speed,
        bandwidth_bytes_per_s=rates.bandwidth_bytes_per_s * speed,
        clock_hz=rates.clock_hz * speed,
    )
    scaled = replace(law, split_s=law.split_s / speed, sustained_s=law.sustained_s / speed)
    assert gemm_s(m, n, k, scaled, fast) == pytest.approx(gemm_s(m, n, k, law, rates) / speed, rel=1e-9)


@given(m=COUNT, n=COUNT, k=COUNT, batch=st.integers(1, 64), law=tile_laws(), rates=all_rates())
def test_arrays_and_scalars_agree(m: int, n: int, k: int, batch: int, law: TileLaw, rates: Rates) -> None:
    alone = tiled_gemm_s(Product(m, n, k, batch), law, rates, 6.0, True).time_s
    shapes = (np.array([m, 2.0 * m]), n, k, np.array([batch, 1.0]))
    together = tiled_gemm_s(Product(*shapes), law, rates, 6.0, True).time_s
    assert together[0] == pytest.approx(float(alone), rel=1e-12)


@st.composite
def score_shapes(draw: st.DrawFn) -> Scores:
    keys = draw(st.integers(1, 2**15))
    kv = draw(st.sampled_from([1, 2, 8]))
    width = draw(st.sampled_from([64, 128, 192]))
    return Scores(
        draw(st.integers(1, 64)),
        draw(st.integers(1, keys)),
        keys,
        kv * draw(st.sampled_from([1, 4, 8])),
        kv,
        width,
        width,
        draw(st.sampled_from([math.inf, 128, 4096])),
        draw(st.booleans()),
    )


@st.composite
def prefill_laws(draw: st.DrawFn) -> PrefillLaw:
    return PrefillLaw(
        launch_cycles=draw(st.floats(0, 1e4)),
        block_cycles=draw(st.floats(0, 1e4)),
        compute_frac=draw(SHARE),
        score_cycles=draw(st.floats(0, 0.3)),
        memory_frac=draw(SHARE),
        pack_groups=draw(st.sampled_from([0.0, 1.0])),
        backward_flop_ratio=2.5,
        backward_rate_ratio=0.86,
        smooth_count=draw(st.floats(1, 8)),
        tile_queries=draw(st.sampled_from([64.0, 128.0])),
        balance_count=draw(st.floats(1, 8)),
    )


@given(scores=score_shapes(), law=prefill_laws(), rates=all_rates(), factor=st.floats(1, 4))
def test_prefill_takes_at_least_each_roof(scores: Scores, law: PrefillLaw, rates: Rates, factor: float) -> None:
    time_s = float(prefill_s(scores, law, rates).time_s)
    assert time_s >= float(attention_flop(scores)) / rates.peak_flop_per_s * (1 - 1e-9)
    assert time_s >= float(attention_bytes(scores)) / rates.bandwidth_bytes_per_s * (1 - 1e-9)
    wider = replace(rates, bandwidth_bytes_per_s=rates.bandwidth_bytes_per_s * factor)
    assert float(prefill_s(scores, law, wider).time_s) <= time_s * (1 + 1e-9)


@given(queries=st.integers(1, 200), extra=st.integers(0, 200), window=st.integers(1, 300))
def test_visible_keys_counts_the_mask(queries: int, extra: int, window: int) -> None:
    keys = queries + extra
    counted = sum(min(window, keys - queries + i + 1) for i in range(queries)) / queries
    assert float(visible_keys(queries, keys, window, True)) == pytest.approx(counted)


@st.composite
def decode_laws(draw: st.DrawFn) -> DecodeLaw:
    return DecodeLaw(
        launch_cycles=draw(st.floats(0, 1e4)),
        feed_bytes_per_cycle=draw(st.floats(5, 200)),
        block_cycles=draw(st.floats(0, 1e4)),
        split_s=draw(st.floats(0, 1e-5)),
        memory_frac=draw(SHARE),
        cache_gain=draw(st.floats(1, 8)),
        head_s=draw(st.floats(0, 1e-9)),
        compute_frac=draw(SHARE),
        split_groups_only=draw(st.sampled_from([0.0, 1.0])),
        smooth_count=draw(st.floats(1, 8)),
    )


@given(scores=score_shapes(), law=decode_laws(), rates=all_rates(), factor=st.floats(1, 4))
def test_decode_reads_the_cache_and_gains_from_bandwidth(
    scores: Scores, law: DecodeLaw, rates: Rates, factor: float
) -> None:
    scores = scores._replace(queries=1.0, window=math.inf)
    read = 2.0 * scores.batch * scores.keys * scores.kv_heads * (scores.key_dim + scores.value_dim)
    time_s = float(decode_s(scores, read, law, rates, False).time_s)
    assert time_s >= read / rates.bandwidth_bytes_per_s * (1 - 1e-9)
    wider = replace(rates, bandwidth_bytes_per_s=rates.bandwidth_bytes_per_s * factor)
    assert float(decode_s(scores, read, law, wider, False).time_s) <= time_s * (1 + 1e-9)
    longer = scores._replace(keys=2 * scores.keys)
    assert float(decode_s(longer, 2 * read, law, rates, False).time_s) >= time_s * (1 - 1e-9)


@given(
    moved=st.floats(1, 1e11),
    launches=st.integers(1, 50),
    share=SHARE,
    unit=st.floats(1, 50),
    floor_s=st.floats(0, 1e-5),
    factor=st.floats(1, 4),
)
def test_elementwise_roofs(
    moved: float, launches: int, share: float, unit: float, floor_s: float, factor: float
) -> None:
    law = ElementwiseLaw(memory_frac=share, unit_bytes_per_cycle=unit, cached_bytes_per_cycle=20.0, launch_s=floor_s)
    bare = Stream(1e12, 0.0, 2e11)
    time_s = float(elementwise_s(moved, launches, law, bare).time_s)
    assert time_s >= moved / 1e12 * (1 - 1e-9)
    assert time_s >= launches * floor_s * (1 - 1e-9)
    assert float(elementwise_s(moved, launches, law, Stream(1e12 * factor, 0.0, 2e11)).time_s) <= time_s * (1 + 1e-9)
    # a cache never slows anything down
    assert float(elementwise_s(moved, launches, law, Stream(1e12, 5e7, 2e11)).time_s) <= time_s * (1 + 1e-9)


@settings(max_examples=30)
@given(m=COUNT, n=COUNT, k=COUNT, law=tile_laws(), host=st.floats(0, 1e-4))
def test_op_time_keeps_its_roofs_and_the_host_floor(m: int, n: int, k: int, law: TileLaw, host: float) -> None:
    parameters = {name: getattr(law, name) for name in law.__slots__ if name != "tiles"}
    record = Law(
        kind="gemm.bf16",
        level="device",
        parameters=FrozenMap(parameters),
        ape_p50_frac=0.05,
        ape_p90_frac=0.15,
        fact="test.gemm",
    )
    chip = Chip(
        id="any",
        peak_dense_flop_per_s=FrozenMap({"bf16": 1e15}),
        memory_bandwidth_bytes_per_s=3e12,
        unit_count=132,
        clock_hz=1.8e9,
        l2_bytes=5e7,
    )
    calibration = Calibration(chip="any", laws=FrozenMap({"gemm.bf16": record}))
    op = Gemm(name="x", m=m, n=n, k=k)
    free = op_time(op, chip, calibration)
    assert free.time_s >= max(free.compute_s, free.memory_s, free.launch_s) * (1 - 1e-9)
    held = op_time(op, chip, calibration, KernelContext(host_launch_s=host))
    assert held.time_s == pytest.approx(max(free.time_s, host))
