"""The unit parser: strict, exact, and checked against pint."""

from __future__ import annotations

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import UnitError
from ridgeline.units import DIMENSIONS, parse, show

CASES = [
    ("3.35 TB/s", "bandwidth", 3.35e12),
    ("80 GB", "bytes", 80e9),
    ("80 GiB", "bytes", 85_899_345_920),
    ("400 Gb/s", "bandwidth", 50e9),
    ("400 Gbps", "bandwidth", 50e9),
    ("989.4 TFLOP/s", "flop_rate", 989.4e12),
    ("3958 TOP/s", "flop_rate", 3958e12),
    ("500 ms", "time", 0.5),
    ("45 d", "time", 3_888_000),
    ("50 1/s", "rate", 50),
    ("3600 1/h", "rate", 1),
    ("1 MW", "power", 1e6),
    ("0.36 USD/kWh", "energy_price", 1e-7),
    ("360 g/kWh", "carbon_intensity", 1e-7),
    ("360 gCO2e/kWh", "carbon_intensity", 1e-7),
    ("4.0e+6 USD", "money", 4e6),
    ("85 C", "temperature", 358.15),
    ("2.5 %", "fraction", 0.025),
    ("1e12", "count", 1e12),
    ("1_000", "count", 1000),
    ("15T", "count", 15e12),
    (512, "count", 512),
    (0.09, "energy_price", 0.09 / 3.6e6),
    ("0.09", "energy_price", 0.09 / 3.6e6),
    (400, "carbon_intensity", 400e-3 / 3.6e6),
    (".5 s", "time", 0.5),
]


@pytest.mark.parametrize(("text", "dimension", "expected"), CASES)
def test_parse(text: object, dimension: str, expected: float) -> None:
    assert parse(text, dimension) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "dimension", "part"),
    [
        ("989 TFLOPS", "flop_rate", "ambiguous"),
        ("80 KB", "bytes", "kB"),
        ("5 parsecs", "time", "unknown unit 'parsecs'"),
        ("5 GB", "time", "is a unit of bytes"),
        ("1,000", "count", "1,000"),
        ("", "time", "got ''"),
        (None, "time", "got null"),
        (True, "count", "got true"),
        ([1], "count", "got [1]"),
        ("nan", "count", "got 'nan'"),
        (float("inf"), "time", "finite"),
        ("1e999 s", "time", "finite"),
        (5, "money_rate", "without a unit"),
        ("5 mb/s", "bandwidth", "unknown unit 'mb/s'"),
    ],
)
def test_refused_with_one_clear_message(text: object, dimension: str, part: str) -> None:
    with pytest.raises(UnitError) as error:
        parse(text, dimension, "site.yaml: site.x")
    assert part in str(error.value)
    assert str(error.value).startswith("site.yaml: site.x: ")


def test_against_pint() -> None:
    registry = pint.UnitRegistry()
    renames = {"B": "byte", "b": "bit"}
    for dimension, unit in (("bytes", "GiB"), ("bytes", "MB"), ("energy", "kWh"), ("time", "week"), ("power", "MW")):
        ours = parse(f"3.7 {unit}", dimension)
        base = {"bytes": "byte", "energy": "joule", "time": "second", "power": "watt"}[dimension]
        theirs = registry.Quantity(3.7, renames.get(unit, unit)).to(base).magnitude
        assert ours == pytest.approx(float(theirs), rel=1e-9)


@given(st.sampled_from(sorted(DIMENSIONS)), st.floats(1e-6, 1e18))
def test_every_unit_reads_back_in_proportion(dimension: str, number: float) -> None:
    for unit, factor in DIMENSIONS[dimension].units.items():
        offset = (DIMENSIONS[dimension].offset or {}).get(unit, 0.0)
        assert parse(f"{number!r} {unit}", dimension) == pytest.approx(number * factor + offset, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.0123, "time", "12.3 ms"),
        (85.5e9, "bytes", "85.5 GB"),
        (0.0, "time", "0 us"),
        (None, "power", "-"),
        (10.2e3, "power", "10.2 kW"),
    ],
)
def test_show(value: float | None, dimension: str, text: str) -> None:
    assert show(value, dimension) == text
