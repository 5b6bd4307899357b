"""Claims that go round about hardware, against the shipped figures. Expected values: published."""

from __future__ import annotations

import pytest

from ridgeline.catalog import Catalog
from ridgeline.errors import MissingFact


def test_h100_peaks_are_dense(catalog: Catalog) -> None:
    chip = catalog.chip("h100-sxm5-80")
    # 132 units x 4096 FLOP a clock x 1.830 GHz = 989.4 TFLOP/s; the datasheet prints 1,979 with sparsity.
    assert chip.peak("bf16") == pytest.approx(989.4e12, rel=2e-4)
    assert chip.peak("fp8") == pytest.approx(1978.9e12, rel=2e-4)
    assert chip.peak("tf32") == pytest.approx(494.7e12, rel=1e-3)
    assert catalog.fact("h100-sxm5-80.peak_sparse.bf16").value == pytest.approx(2 * chip.peak("bf16"))
    assert (chip.unit_count, chip.tdp_w, chip.memory_bandwidth_bytes_per_s) == (132, 700.0, 3.35e12)


def test_h100_is_not_one_product(catalog: Catalog) -> None:
    assert catalog.chip("h100-pcie-80").tdp_w == 350.0
    assert catalog.chip("h100-pcie-80").peak("bf16") == 756e12
    assert catalog.chip("h100-nvl-94").memory_bandwidth_bytes_per_s == 3.938e12
    assert catalog.fact("h100-sxm5-80.cores.tensor_cores").value == 528


def test_eighty_gigabytes_are_what_the_driver_says(catalog: Catalog) -> None:
    assert catalog.chip("h100-sxm5-80").memory_bytes() == 81559 * 2**20
    assert catalog.chip("a100-sxm4-80").memory_bytes() == 81920 * 2**20
    assert catalog.chip("h200-sxm-141").memory_bytes() == 143771 * 2**20


def test_a100(catalog: Catalog) -> None:
    chip = catalog.chip("a100-sxm4-80")
    assert chip.l2_bytes == 40 * 2**20
    assert (chip.peak("bf16"), chip.peak("int8"), chip.unit_count) == (312e12, 624e12, 108)
    assert catalog.chip("a100-sxm4-40").memory_type == "HBM2"
    assert catalog.fact("a100-sxm4-40.memory_type").was.startswith("HBM2e")
    assert not chip.has_peak("fp8")
    with pytest.raises(MissingFact, match=r"a100-sxm4-80\.peak_dense\.fp8"):
        chip.peak("fp8")


@pytest.mark.parametrize(
    ("link", "oneway"),
    [
        ("nvlink2", 150e9),
        ("nvlink3", 300e9),
        ("nvlink4", 450e9),
        ("nvlink5", 900e9),
        ("ib-edr", 12.5e9),
        ("ib-hdr", 25e9),  # HDR is 200 Gb/s, not 400
        ("ib-ndr", 50e9),
        ("ib-xdr", 100e9),
        ("roce-400gbe", 50e9),
        ("xgmi-mi300x", 448e9),
        ("xgmi-mi250x", 400e9),
        ("pcie3-x16", 15.754e9),
        ("efa-v2-p5", 12.5e9),
    ],
)
def test_links_are_one_direction(catalog: Catalog, link: str, oneway: float) -> None:
    assert catalog.link(link).oneway_bytes_per_s == pytest.approx(oneway)


def test_tpu_v4_pod_is_about_one_exaflop(catalog: Catalog) -> None:
    chip = catalog.chip("tpu-v4")
    assert (chip.scale_up_domain_count, chip.peak("bf16")) == (4096, 275e12)
    assert 4096 * chip.peak("bf16") == pytest.approx(1.1e18, rel=0.03)
    # 1.4 to 1.6 TFLOP/s per watt, not 65.
    watts = catalog.fact("tpu-v4.measured_power.mean").value
    assert watts == 170.0
    assert 1.4e12 < chip.peak("bf16") / watts < 1.7e12


def test_power_of_current_modules(catalog: Catalog) -> None:
    expected = {"t4": 70, "l4": 72, "a10": 150, "h200-sxm-141": 700, "mi300x": 750, "gaudi3": 900, "b200-sxm": 1000}
    expected |= {"mi325x": 1000, "gb200": 1200, "mi355x": 1400, "gb300": 1400, "v100-sxm2-32": 300, "a10g": 300}
    assert {id: catalog.chip(id).tdp_w for id in expected} == expected


def test_instance_prices_fell(catalog: Catalog) -> None:
    hourly = {
        price.date: (price.per_device_usd_per_s or 0) * 8 * 3600
        for price in catalog.prices("p4d-24xlarge")
        if price.kind == "on-demand" and price.system == "p4d-24xlarge"
    }
    assert hourly["2023-11-16"] == pytest.approx(32.7726)
    assert hourly["2026-07/09"] == pytest.approx(21.957642)


def test_thermal_limits(catalog: Catalog) -> None:
    assert catalog.chip("a100-sxm4-80").slowdown_temperature_k == pytest.approx(89 + 273.15)
    assert catalog.chip("t4").slowdown_temperature_k == pytest.approx(93 + 273.15)


@pytest.mark.parametrize(
    ("fact", "value", "was"),
    [
        ("v100-sxm2-32.tdp", 300.0, "250 W"),
        ("b200-sxm.memory_bandwidth", 7.7e12, "8000 GB/s"),
        ("l40s.l2", 96 * 2**20, "48 MiB"),
        ("jetson-agx-orin-64.l2", 4 * 2**20, "6 MiB"),
        ("tpu-v5e.memory_bandwidth", 819e9, "820 GB/s"),
        ("gaudi3.peak_dense.bf16", 1835e12, "1677 TFLOP/s"),
    ],
)
def test_corrected_figures_say_what_they_were(catalog: Catalog, fact: str, value: float, was: str) -> None:
    found = catalog.fact(fact)
    assert found.value == pytest.approx(value)
    assert found.was.startswith(was)
    assert found.sources


@pytest.mark.parametrize(
    "fact", ["gaudi1.tdp", "tpu-v3.scale_up_pair_oneway", "b300-sxm.peak_dense.fp4", "b300-sxm.unit_count"]
)
def test_unsettled_conflicts_are_told(catalog: Catalog, fact: str) -> None:
    assert catalog.fact(fact).conflict
