from __future__ import annotations

import math

import numpy as np
import pytest

from ridgeline.device.gemm import Product, SystolicLaw, TileLaw, sustained_stretch, systolic_gemm_s, tiled_gemm_s
from ridgeline.device.rates import Rates

RATES = Rates(peak_flop_per_s=1024e12, bandwidth_bytes_per_s=4e12, unit_count=128, clock_hz=2e9, cache_bytes=50e6)


def bare(**changes: float) -> TileLaw:
    """A law without overheads: ideal rates, hard waves."""
    values: dict[str, float] = {
        "launch_cycles": 0.0,
        "ramp_cycles": 0.0,
        "compute_frac": 1.0,
        "memory_frac": 1.0,
        "feed_flop_per_byte": 1.0,
        "wave_k_count": 0.0,
        "split_s": 0.0,
        "cache_bytes_per_cycle": 0.0,
        "sustained_frac": 1.0,
        "sustained_s": 1e-3,
        "soft_frac": 0.0,
        "smooth_count": 16.0,
        "output_weight": 1.0,
    }
    return TileLaw(**{**values, **changes}, split_count_max=1.0, tiles=((128, 128),) * 4)


def time(m: float, n: float, k: float, law: TileLaw, resident: bool = False) -> float:
    return float(tiled_gemm_s(Product(m, n, k), law, RATES, math.inf, resident).time_s)


def test_one_wave_by_hand() -> None:
    # 16 x 8 tiles of 128 x 128 on 128 units: one wave of 2*128*128*4096 FLOP at 1024e12/128 = 8e12 FLOP/s a unit:
    # 134217728 / 8e12 = 16.777 us
    assert time(16 * 128, 8 * 128, 4096, bare()) == pytest.approx(16.777e-6, rel=1e-3)


def test_one_more_tile_makes_another_wave_unless_waves_are_soft() -> None:
    one, hard = time(2048, 1024, 8192, bare()), time(2049, 1024, 8192, bare())
    soft = time(2049, 1024, 8192, bare(soft_frac=1.0))
    assert hard == pytest.approx(2 * one, rel=1e-3)
    assert soft == pytest.approx(one * 17 / 16, rel=1e-3)


def test_feed_bound_by_hand() -> None:
    # A unit gets 8e12/200 = 40e9 B/s; a step in k of a 128x128 tile is 512 B: 12.8 ns against 4.096 ns of math.
    found = tiled_gemm_s(Product(2048, 1024, 4096), bare(feed_flop_per_byte=200.0), RATES, math.inf, False)
    assert float(found.compute_s) == pytest.approx(4096 * 12.8e-9, rel=1e-6)
    assert bool(found.feed)


def test_memory_bound_by_hand_and_output_weight() -> None:
    # m = 1: the weights of 8192 x 8192 at 4 TB/s
    bytes_moved = 2 * (8192 * 8192 + 8192 + 8192)
    law = bare(feed_flop_per_byte=1e-6)
    assert time(1, 8192, 8192, law) >= bytes_moved / 4e12
    found = tiled_gemm_s(Product(1, 8192, 8192), law, RATES, math.inf, False)
    assert float(found.memory_s) == pytest.approx(bytes_moved / 4e12)


def test_weights_come_from_memory_in_a_model_and_from_cache_in_a_benchmark_of_few_copies() -> None:
    law = bare(cache_bytes_per_cycle=64.0)  # 64 * 128 * 2e9 = 16 TB/s, four times memory
    product = Product(8, 1024, 1024)  # 2 MB of weights, six copies stay in 50 MB
    cold = tiled_gemm_s(product, law, RATES, math.inf, False)
    warm = tiled_gemm_s(product, law, RATES, 6.0, False)
    assert float(cold.memory_s) / float(warm.memory_s) == pytest.approx(4, rel=0.05)


def test_activations_that_fit_the_cache_are_faster_only_where_they_may_stay() -> None:
    law = bare(cache_bytes_per_cycle=64.0)
    product = Product(4096, 1024, 16)
    there = tiled_gemm_s(product, law, RATES, math.inf, True)
    away = tiled_gemm_s(product, law, RATES, math.inf, False)
    assert float(there.memory_s) < 0.5 * float(away.memory_s)


def test_split_k_fills_idle_units() -> None:
    whole = bare(launch_cycles=2000.0)
    split = TileLaw(**{f: getattr(whole, f) for f in whole.__slots__ if f != "split_count_max"}, split_count_max=32.0)
    assert time(128, 128, 65536, split) < 0.1 * time(128, 128, 65536, whole)


def test_scalar_and_array_paths_agree() -> None:
    law = bare(launch_cycles=4000.0, soft_frac=0.5, smooth_count=4.0, sustained_frac=0.8, cache_bytes_per_cycle=16.0)
    m = np.array([1.0, 33.0, 4096.0])
    together = tiled_gemm_s(Product(m, 4096.0, 2048.0, 2.0), law, RATES, 6.0, True)
    for index, rows in enumerate(m):
        alone = tiled_gemm_s(Product(float(rows), 4096.0, 2048.0, 2.0), law, RATES, 6.0, True)
        for one, many in zip(alone, together, strict=True):
            assert np.broadcast_to(many, m.shape)[index] == pytest.approx(one, rel=1e-12)


def test_sustained_clock_only_in_long_busy_kernels() -> None:
    assert float(sustained_stretch(1e-6, 1e-6, 0.5, 1e-3)) == pytest.approx(1.0, abs=2e-3)
    assert float(sustained_stretch(1.0, 1.0, 0.5, 1e-3)) == pytest.approx(2.0, rel=2e-3)
    assert float(sustained_stretch(1.0, 0.1, 0.5, 1e-3)) == pytest.approx(1.01, abs=1e-3)


def test_systolic_padding_by_hand() -> None:
    law = SystolicLaw(
        compute_frac=0.5, memory_frac=1.0, launch_s=1e-6, smooth_count=64.0, edge_count=128.0, row_count=8.0
    )
    # m 1 -> 8, n 129 -> 256, k 1 -> 128: 2*8*256*128 = 524288 FLOP at 0.5e9
    found = systolic_gemm_s(Product(1, 129, 1), law, 1e9, 1e12)
    assert float(found.compute_s) == pytest.approx(524288 / 0.5e9)
    assert float(found.time_s) == pytest.approx(524288 / 0.5e9 + 1e-6, rel=1e-6)
