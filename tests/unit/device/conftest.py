from __future__ import annotations

import pytest

from ridgeline.core import FrozenMap
from ridgeline.specs import Calibration, Chip, Law

GEMM = {
    "launch_cycles": 4000.0,
    "ramp_cycles": 3500.0,
    "compute_frac": 0.9,
    "memory_frac": 0.85,
    "feed_flop_per_byte": 50.0,
    "wave_k_count": 200.0,
    "split_s": 2.5e-6,
    "cache_bytes_per_cycle": 16.0,
    "sustained_frac": 0.9,
    "sustained_s": 1e-3,
    "soft_frac": 0.5,
    "smooth_count": 4.0,
    "output_weight": 1.25,
}
PREFILL = {
    "launch_cycles": 8000.0,
    "tile_queries": 128.0,
    "balance_count": 2.0,
    "block_cycles": 3000.0,
    "compute_frac": 0.75,
    "score_cycles": 0.02,
    "memory_frac": 0.8,
    "pack_groups": 1.0,
    "backward_flop_ratio": 2.5,
    "backward_rate_ratio": 0.8,
    "smooth_count": 4.0,
}
DECODE = {
    "launch_cycles": 8000.0,
    "feed_bytes_per_cycle": 30.0,
    "block_cycles": 1500.0,
    "split_s": 2e-6,
    "memory_frac": 0.8,
    "cache_gain": 2.0,
    "head_s": 0.0,
    "compute_frac": 0.7,
    "split_groups_only": 0.0,
    "smooth_count": 2.0,
}
MOE = {**GEMM, "compute_frac": 0.6, "memory_frac": 0.7, "split_count_max": 1.0}
ELEMENTWISE = {
    "default.memory_frac": 0.75,
    "default.unit_bytes_per_cycle": 1e3,
    "default.cached_bytes_per_cycle": 18.0,
    "default.launch_s": 2e-6,
    "norm.memory_frac": 0.35,
    "fused.memory_frac": 0.85,
}
SYSTOLIC = {
    "compute_frac": 0.85,
    "memory_frac": 0.8,
    "launch_s": 2e-6,
    "smooth_count": 4.0,
    "edge_count": 128.0,
    "row_count": 8.0,
}
FLAT = {
    "compute_frac": 0.5,
    "memory_frac": 0.8,
    "launch_s": 5e-6,
    "smooth_count": 4.0,
    "backward_flop_ratio": 2.5,
    "backward_rate_ratio": 0.8,
}


def law(kind: str, parameters: dict[str, float], level: str = "device") -> Law:
    return Law(
        kind=kind,
        level=level,
        parameters=FrozenMap(parameters),
        ape_p50_frac=0.05,
        ape_p90_frac=0.15,
        fact=f"test.{kind}",
    )


@pytest.fixture(scope="session")
def chip() -> Chip:
    """A round-numbered part with tensor cores."""
    return Chip(
        id="round",
        peak_dense_flop_per_s=FrozenMap({"bf16": 1000e12, "fp8": 2000e12, "fp32": 60e12}),
        memory_bandwidth_bytes_per_s=3e12,
        unit_count=128,
        clock_hz=2e9,
        l2_bytes=50e6,
    )


@pytest.fixture(scope="session")
def calibration() -> Calibration:
    laws = {
        "gemm.bf16": GEMM,
        "attention-prefill.fa3": PREFILL,
        "attention-decode.fa3": DECODE,
        "moe.bf16": MOE,
        "elementwise": ELEMENTWISE,
    }
    return Calibration(chip="round", laws=FrozenMap({kind: law(kind, values) for kind, values in laws.items()}))


@pytest.fixture(scope="session")
def array_chip() -> Chip:
    """A part of which only peak and bandwidth are known."""
    return Chip(
        id="array",
        peak_dense_flop_per_s=FrozenMap({"bf16": 200e12}),
        memory_bandwidth_bytes_per_s=1e12,
    )


@pytest.fixture(scope="session")
def array_calibration() -> Calibration:
    laws = {
        "gemm.bf16": SYSTOLIC,
        "attention-prefill.compiled": FLAT,
        "attention-decode.compiled": FLAT,
        "elementwise": ELEMENTWISE,
    }
    return Calibration(
        chip="array", laws=FrozenMap({kind: law(kind, values, "published") for kind, values in laws.items()})
    )
