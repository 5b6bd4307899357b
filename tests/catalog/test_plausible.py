"""Ratios and bands of the shipped figures; every exception stands here with its reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ridgeline.catalog import Catalog
from ridgeline.catalog.fields import DEVICE_FIELDS, LINK_FIELDS, SYSTEM_FIELDS, TEXT
from ridgeline.specs import Chip
from ridgeline.units import DIMENSIONS

# Sparse peaks that are not twice the dense one.
SPARSE_EXCEPTIONS = {
    "trainium2": "16:4 sparsity, and one figure for all formats",
    "jetson-thor-t5000": "no dense figure; the source does not say what its figure is",
    "cerebras-wse3": "no dense figure; one source calls its figure sparse",
    "jetson-orin-nx-16": "headline of the module without a dense figure",
}
# Where 8-bit floating point is claimed and does not run at twice the 16-bit rate.
FP8_EXCEPTIONS = {
    "gaudi3": "one rate for both on the matrix engines",
    "tpu-v6e": "no native FP8: runs at the bf16 rate",
    "inferentia2": "NeuronCore-v2 runs FP8 at the bf16 rate",
    "trainium1": "NeuronCore-v2 runs FP8 at the bf16 rate",
    "trainium2": "1299 against 667 TFLOP/s as the maker prints them",
    "trainium3": "2517 against 671 TFLOP/s: MX formats at four times the rate, less clock",
    "grayskull-e150": "the maker's 332 against 98 TFLOP/s",
    "wormhole-n150": "the maker's 262 against 74 TFLOP/s",
    "wormhole-n300": "the maker's 233 against 65.5 TFLOP/s",
}
# Integer units that are not those of the 8-bit floating point.
INT8_EXCEPTIONS = {
    "b300-sxm": "Blackwell Ultra gave up its INT8 units (conflict noted in the fact)",
    "gb300": "Blackwell Ultra gave up its INT8 units (conflict noted in the fact)",
    "rtx-4090": "GeForce halves floating point with FP32 accumulation, not INT8",
    "rtx-5090": "GeForce halves floating point with FP32 accumulation, not INT8",
    "tpu-v6e": "INT8 runs at twice bf16, FP8 at the bf16 rate",
    "inferentia2": "INT8 at twice bf16, FP8 at the bf16 rate",
    "trainium1": "INT8 at twice bf16, FP8 at the bf16 rate",
    "recaccel-n3000": "no FP8",
}
# Parts that keep the GeForce rule or whose INT8 rate is derived from it.
GEFORCE = ("rtx-30", "rtx-40", "rtx-50")


def chips(catalog: Catalog) -> Iterator[Chip]:
    return (catalog.chip(id) for id in catalog.ids("devices"))


def test_units_are_those_of_the_fields(catalog: Catalog) -> None:
    tables = {"devices": DEVICE_FIELDS, "links": LINK_FIELDS, "systems": SYSTEM_FIELDS}
    for kind, table in tables.items():
        for id in catalog.ids(kind):
            for fact in catalog.facts_of(kind, id):
                field = table.get(fact.id.removeprefix(f"{id}."))
                if field is None:
                    continue
                if field.dimension == TEXT:
                    assert isinstance(fact.value, str)
                    continue
                assert fact.unit == DIMENSIONS[field.dimension].si
                assert field.plausible[0] <= fact.value <= field.plausible[1], fact.id


def test_sparse_peak_is_twice_the_dense_one(catalog: Catalog) -> None:
    wrong = []
    for chip in chips(catalog):
        for fact in catalog.facts_of("devices", chip.id):
            key = fact.id.removeprefix(f"{chip.id}.")
            if not key.startswith("peak_sparse.") or "total" in key or key.endswith("dla"):
                continue
            dense = chip.peak_dense_flop_per_s.get(key.removeprefix("peak_sparse."))
            if dense is None or abs(fact.value / dense - 2) > 0.015:  # published figures are rounded
                wrong.append(chip.id)
    assert sorted(set(wrong)) == sorted({id for id in SPARSE_EXCEPTIONS if id in wrong})


def test_fp8_is_twice_bf16_where_claimed(catalog: Catalog) -> None:
    wrong = {
        chip.id: round(chip.peak("fp8") / chip.peak("bf16"), 3)
        for chip in chips(catalog)
        if chip.has_peak("fp8") and chip.has_peak("bf16") and abs(chip.peak("fp8") / chip.peak("bf16") - 2) > 0.03
    }
    assert {id: ratio for id, ratio in wrong.items() if id not in FP8_EXCEPTIONS} == {}
    assert set(FP8_EXCEPTIONS) - set(wrong) == set(), "exceptions that nothing needs"


def test_int8_is_the_fp8_rate_where_both_are_claimed(catalog: Catalog) -> None:
    wrong = {
        chip.id
        for chip in chips(catalog)
        if chip.has_peak("fp8") and chip.has_peak("int8") and abs(chip.peak("int8") / chip.peak("fp8") - 1) > 0.02
    }
    assert {id for id in wrong if id not in INT8_EXCEPTIONS and not id.startswith(GEFORCE)} == set()


def test_fp16_and_bf16_run_at_one_rate(catalog: Catalog) -> None:
    """`Chip.peak` lets one stand in for the other, so a part where they differ must list both."""
    differ = {
        chip.id
        for chip in chips(catalog)
        if {"fp16", "bf16"} <= set(chip.peak_dense_flop_per_s) and chip.peak("fp16") != chip.peak("bf16")
    }
    assert differ == {"mi100", "gaudi3"}


@pytest.mark.parametrize(
    ("kind", "name", "low", "high"),
    [
        ("gpu", "memory_bandwidth_bytes_per_s", 1e10, 1e13),  # integrated ones share the processor's memory
        ("gpu", "memory_capacity_bytes", 2e9, 6e11),
        ("gpu", "clock_hz", 8e8, 3e9),
        ("gpu", "l2_bytes", 5e5, 5e8),
        ("tpu", "memory_bandwidth_bytes_per_s", 6e11, 1e13),
        ("cpu", "memory_bandwidth_bytes_per_s", 3e9, 1e12),
        ("gpu", "tdp_w", 10, 1500),
        ("edge", "tdp_w", 0.5, 150),
        ("cpu", "tdp_w", 5, 600),
    ],
)
def test_bands(catalog: Catalog, kind: str, name: str, low: float, high: float) -> None:
    found = {chip.id: getattr(chip, name) for chip in chips(catalog) if chip.kind == kind}
    known = {id: value for id, value in found.items() if value is not None}
    assert known
    assert {id: value for id, value in known.items() if not low <= value <= high} == {}


def test_what_a_program_gets_is_near_what_is_published(catalog: Catalog) -> None:
    """GB on the label means 1e9 or 2**30 bytes; a driver keeps a few percent."""
    for chip in chips(catalog):
        if chip.memory_usable_bytes is not None and chip.memory_capacity_bytes is not None:
            assert 0.93 <= chip.memory_usable_bytes / chip.memory_capacity_bytes <= 1.08, chip.id


def test_idle_is_below_tdp(catalog: Catalog) -> None:
    for chip in chips(catalog):
        if chip.idle_w is not None and chip.tdp_w is not None:
            assert 0.02 <= chip.idle_w / chip.tdp_w <= 0.5, chip.id


def test_links_of_a_device_agree_with_the_link(catalog: Catalog) -> None:
    """The device's scale-up rate is that of its link, or a part of it (reduced and bridged variants)."""
    for chip in chips(catalog):
        if chip.scale_up_link and chip.scale_up_oneway_bytes_per_s:
            whole = catalog.link(chip.scale_up_link).oneway_bytes_per_s
            if whole is not None:
                assert 0.1 <= chip.scale_up_oneway_bytes_per_s / whole <= 1.001, chip.id


def test_achieved_rates_lie_below_the_wire(catalog: Catalog) -> None:
    slow = {"omnipath-100"}  # four adapters of one Jean Zay node, measured together
    for id in set(catalog.ids("links")) - slow:
        link = catalog.link(id)
        if link.oneway_bytes_per_s is not None and link.achieved_oneway_bytes_per_s is not None:
            assert 0.5 <= link.achieved_oneway_bytes_per_s / link.oneway_bytes_per_s <= 1.0, id


def test_bidirectional_is_twice_one_direction(catalog: Catalog) -> None:
    for kind, keys in (
        ("devices", ("scale_up_oneway", "scale_up.bidirectional")),
        ("links", ("oneway", "bidirectional")),
    ):
        for id in catalog.ids(kind):
            known = {fact.id.removeprefix(f"{id}."): fact.value for fact in catalog.facts_of(kind, id)}
            if all(key in known for key in keys):
                assert known[keys[1]] == pytest.approx(2 * known[keys[0]]), id


def test_rent_is_between_cents_and_tens_of_dollars_a_device_hour(catalog: Catalog) -> None:
    for id in catalog.ids("devices"):
        for price in catalog.prices(id):
            if price.per_device_usd_per_s is not None:
                assert 0.03 <= price.per_device_usd_per_s * 3600 <= 40, price.id
            else:
                assert 100 <= (price.per_device_usd or 0) <= 4e6, price.id
