"""Which law stands in for a precision that nobody measured."""

from __future__ import annotations

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.device import op_time
from ridgeline.device.optime import gemm_law
from ridgeline.workload.ops import Gemm


@pytest.mark.parametrize(("device", "precision"), [("a100-sxm4-80", "tf32"), ("v100-sxm2-32", "fp32")])
def test_a_precision_without_a_law_takes_the_measured_tile_law_not_the_flat_fractions(
    device: str, precision: str
) -> None:
    catalog = load_catalog()
    chip, calibration = catalog.chip(device), catalog.calibration(device)
    law, sigma = gemm_law(calibration, chip, precision)
    assert law.kind == "gemm.bf16"
    assert sigma > law.sigma  # wider than for the precision that was measured
    wide = Gemm(
        name="product",
        m=8192.0,
        n=8192.0,
        k=4096.0,
        math_precision=precision,
        weight_precision="fp32",
        activation_precision="fp32",
        output_precision="fp32",
    )
    share = wide.flop / op_time(wide, chip, calibration).time_s / chip.peak(precision)
    # The operand feed in bytes a cycle is that of the 16-bit law, so a wide product is bound by its matrix unit: it
    # reaches the achieved fraction of the law, within the last wave and the clock.
    assert share == pytest.approx(law.parameters["compute_frac"], rel=0.06)
