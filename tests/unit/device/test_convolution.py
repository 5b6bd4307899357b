"""Convolutions as products: shapes by hand, what is gathered, small groups, Winograd."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.device import op_time
from ridgeline.device.conv import convolution_law, implicit_product, packed_groups, rate_ratio
from ridgeline.workload.ops import Convolve, Gemm

CATALOG = load_catalog()
CHIP, LAWS = CATALOG.chip("a100-sxm4-80"), CATALOG.calibration("a100-sxm4-80")
LAW = convolution_law(LAWS.laws["convolution"])
CONV = Convolve(
    name="c",
    batch_count=32.0,
    inputs_count=64,
    outputs_count=128,
    in_spatial=(56, 56),
    out_spatial=(56, 56),
    kernel=(3, 3),
    stride=(1, 1),
)


def test_forward_is_positions_by_channels_with_the_input_read_once() -> None:
    product = implicit_product(CONV, LAW)
    assert (product.m, product.n, product.k) == (32 * 56 * 56, 128, 9 * 64)
    assert product.m * product.k * product.a_moved == pytest.approx(32 * 56 * 56 * 64)
    assert CONV.flop == 2 * 32 * 56 * 56 * 128 * 64 * 9


def test_gradients() -> None:
    into = implicit_product(replace(CONV, direction="input-gradient"), LAW)
    assert (into.m, into.n, into.k) == (32 * 56 * 56, 64, 9 * 128)
    weights = implicit_product(replace(CONV, direction="weight-gradient"), LAW)
    assert weights.m == 128
    assert weights.n == 9 * 64
    assert weights.k * weights.batch_count == 32 * 56 * 56
    every = {d: replace(CONV, direction=d).flop for d in ("forward", "input-gradient", "weight-gradient")}  # type: ignore[arg-type]
    assert len(set(every.values())) == 1


def test_strided_points_read_and_multiply_a_quarter() -> None:
    point = replace(CONV, kernel=(1, 1), stride=(2, 2), out_spatial=(28, 28))
    assert point.read_frac == 0.25
    product = implicit_product(replace(point, direction="input-gradient"), LAW)
    assert product.m * product.n * product.k == point.flop / 2
    assert product.m * product.n * product.c_moved == point.input_count  # zeros are written too


def test_few_channels_are_padded() -> None:
    first = replace(CONV, inputs_count=3, kernel=(7, 7), stride=(2, 2), out_spatial=(28, 28))
    assert implicit_product(first, LAW).k == 49 * 4
    odd = replace(CONV, inputs_count=40)
    assert implicit_product(odd, LAW).k == 9 * 64


def test_depthwise_runs_on_vector_units_and_is_bound_by_memory() -> None:
    depthwise = replace(CONV, outputs_count=64, groups_count=64)
    assert packed_groups(depthwise, LAW) == 32
    timed = op_time(depthwise, CHIP, LAWS)
    assert timed.model == "direct-convolution"
    assert timed.bound == "memory"
    assert timed.time_s > depthwise.bytes / CHIP.need("memory_bandwidth_bytes_per_s")


def test_a_point_convolution_takes_the_time_of_its_product() -> None:
    point = replace(CONV, kernel=(1, 1))
    product = Gemm(name="p", m=32 * 56 * 56, n=128, k=64)
    assert op_time(point, CHIP, LAWS).time_s == pytest.approx(op_time(product, CHIP, LAWS).time_s, rel=0.02)


def test_winograd_is_for_small_filters_of_wide_formats() -> None:
    wide = convolution_law(LAWS.laws["convolution.fp32"])
    assert rate_ratio(CONV, wide) == pytest.approx(1.5 * rate_ratio(replace(CONV, stride=(2, 2)), wide))
    assert rate_ratio(replace(CONV, direction="weight-gradient"), wide) == wide.gradient_ratio
    assert rate_ratio(CONV, LAW) == LAW.compute_ratio
