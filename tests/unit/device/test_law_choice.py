"""Which law stands in for a precision that nobody measured."""

from __future__ import annotations

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.device import op_time
from ridgeline.device.optime import gemm_law
from ridgeline.workload.ops import Gemm


@pytest.mark.parametrize(("device", "precision"), [("a100-sxm4-80", "tf32"), ("a100-sxm4-40", "tf32")])
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


def test_single_precision_has_a_law_of_the_vector_units() -> None:
    catalog = load_catalog()
    wide = Gemm(
        name="product",
        m=8192.0,
        n=8192.0,
        k=4096.0,
        math_precision="fp32",
        weight_precision="fp32",
        activation_precision="fp32",
        output_precision="fp32",
    )
    shares = {}
    for device in ("v100-sxm2-32", "a10", "t4"):
        chip, calibration = catalog.chip(device), catalog.calibration(device)
        law, _ = gemm_law(calibration, chip, "fp32")
        assert law.kind == "gemm.fp32"
        shares[device] = wide.flop / op_time(wide, chip, calibration).time_s / chip.peak("fp32")
    assert shares["v100-sxm2-32"] == pytest.approx(0.9, rel=0.06)
    # Lanes shared with integers, and a limit of 70 W: an L4 reaches 0.39 of its peak in a product of 4,096.
    assert 0.35 < shares["a10"] < 0.64
    assert 0.4 < shares["t4"] < 0.75
