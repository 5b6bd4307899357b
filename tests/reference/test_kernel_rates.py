"""Best rates of products that others published, never fitted, against the laws in the catalogue."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.catalog.loader import load_catalog
from ridgeline.device import gemm_law, gemm_times, op_time
from ridgeline.device.gemm import Product
from ridgeline.workload.ops import AttentionPrefill

# Best achieved rate over many shapes [TFLOP/s], by device and precision: Machine Learning Engineering Open Book,
# compute/accelerator/README.md at commit 744d01e18b79 (source stas00-accelerators).
BEST = {
    ("a100-sxm4-80", "bf16"): 271.2,
    ("h100-sxm5-80", "bf16"): 794.5,
    ("h200-sxm-141", "bf16"): 794.5,
    ("b200-sxm", "bf16"): 1745.0,
    ("b300-sxm", "bf16"): 1769.0,
    ("gb200", "bf16"): 1822.0,
    ("h100-sxm5-80", "fp8"): 1402.6,
    ("h200-sxm-141", "fp8"): 1453.4,
    ("b200-sxm", "fp8"): 3432.5,
    ("b300-sxm", "fp8"): 3353.3,
    ("gb200", "fp8"): 3615.6,
}


@pytest.fixture(scope="module")
def catalog():  # type: ignore[no-untyped-def]
    return load_catalog()


@pytest.mark.parametrize(("device", "precision"), BEST)
def test_best_rate_of_a_product_is_within_12_percent(catalog, device: str, precision: str) -> None:  # type: ignore[no-untyped-def]
    chip, calibration = catalog.chip(device), catalog.calibration(device)
    law, _ = gemm_law(calibration, chip, precision)
    sides = np.array([1024.0, 2048.0, 3072.0, 4096.0, 6144.0, 8192.0, 12288.0, 16384.0])
    m, n, k = (x.ravel() for x in np.meshgrid(sides, sides, sides))
    wide = 1.0 if precision == "fp8" else 2.0
    times = gemm_times(Product(m, n, k, 1.0, wide, wide, 2.0), law, chip, precision).time_s
    best = float((2 * m * n * k / times).max()) / 1e12
    assert best == pytest.approx(BEST[device, precision], rel=0.12)


@pytest.mark.parametrize(
    ("device", "family", "best", "tolerance"),
    [
        # FlashAttention-3's paper (abstract): 740 TFLOP/s in 16 bit on H100, in the best forward case (no mask)
        ("h100-sxm5-80", "fa3", 740.0, 0.15),
        # FlashAttention-2's paper: 50-73 % of the peak of an A100 in the forward pass
        ("a100-sxm4-80", "fa2", 0.615 * 312, 0.19),
    ],
)
def test_long_attention_without_mask_near_published_rates(  # type: ignore[no-untyped-def]
    catalog, device: str, family: str, best: float, tolerance: float
) -> None:
    op = AttentionPrefill(
        name="a",
        batch_count=1,
        query_tokens=16384,
        key_tokens=16384,
        heads_count=16,
        kv_heads_count=16,
        key_dim_count=128,
        value_dim_count=128,
        causal=False,
    )
    found = op_time(op, catalog.chip(device), catalog.calibration(device))
    assert f".{family}" in found.uses[-1]
    rate = 4 * 16 * 16384**2 * 128 / found.time_s / 1e12
    assert rate == pytest.approx(best, rel=tolerance)
