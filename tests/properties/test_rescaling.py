"""Units as a test: scale the base units by any factors and each formula must scale as its own name says.

Names end in their unit (`_bytes_per_s`, `_s`, `_usd_per_j`...), so the dimensions of every parameter and of the result
can be read off. Every formula filed with `@model` whose parameters are all numbers is tested; those that take records
are not, and `dimensional=False` marks empirical ones. A unit that a formula makes (FLOP from counts) is left alone.
A stray constant factor is not found here: reference cases must.
"""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ridgeline
from ridgeline.core import ModelEntry, models

PACKAGES = ("network", "device", "workload", "training", "serving", "power", "facility", "cost", "search")
BASE = ("s", "bytes", "flop", "j", "usd", "k", "kg")
WORDS = {**{word: {word: 1} for word in BASE}, "w": {"j": 1, "s": -1}, "hz": {"s": -1}}
NUMERIC = ("float", "int", "Number")
Dimension = dict[str, int]


def dimension(name: str) -> Dimension:
    """Powers of the base units that a name says; nothing for counts, tokens, fractions and bare exponents."""
    parts = name.split("_per_")
    found: Dimension = {}
    for index, part in enumerate(parts):
        word = part.rsplit("_", 1)[-1] if index in (0, len(parts) - 1) else part
        for base, power in WORDS.get(word, {}).items():
            found[base] = found.get(base, 0) + (power if index == 0 else -power)
    return {base: power for base, power in found.items() if power}


def parameters(function: Callable[..., Any]) -> list[str] | None:
    """Names of the parameters where they and the result are numbers, else None."""
    signature = inspect.signature(function)
    found = signature.parameters
    if str(signature.return_annotation) not in NUMERIC or any(
        str(item.annotation) not in NUMERIC for item in found.values()
    ):
        return None
    return list(found)


def pure_models() -> Iterator[ModelEntry]:
    for package in PACKAGES:
        home = importlib.import_module(f"ridgeline.{package}")
        for module in pkgutil.walk_packages(home.__path__, f"{home.__name__}."):
            importlib.import_module(module.name)
    for entry in models().values():
        inside = entry.function.__module__.startswith(ridgeline.__name__)
        if inside and entry.dimensional and parameters(entry.function):
            yield entry


PURE = {entry.id: entry for entry in pure_models()}


def value_for(name: str) -> st.SearchStrategy[float]:
    """A plausible value by unit."""
    if name.endswith("_count"):
        return st.integers(2, 64).map(float)
    if name.endswith("_frac") or name in ("power",):
        return st.floats(0.1, 0.9)
    if name == "sharpness":
        return st.floats(2.0, 12.0)
    if dimension(name).get("s", 0) < 0:
        return st.floats(1e6, 1e12)
    if dimension(name) == {"s": 1}:
        return st.floats(1e-6, 1.0)
    return st.floats(1e3, 1e9)


def homogeneous(function: Callable[..., Any], values: dict[str, float], factors: dict[str, float]) -> bool:
    """Whether scaled inputs give the result scaled as the function's name says."""
    given_units = {base for name in values for base in dimension(name)}
    factors = {base: factor for base, factor in factors.items() if base in given_units}

    def factor(name: str) -> float:
        return math.prod(factors.get(base, 1.0) ** power for base, power in dimension(name).items())

    before = function(**values)
    # What rounding of the inputs alone does: differences of nearly equal values lose their digits.
    noise = max(
        (abs(function(**values | {name: value * (1 + 1e-15)}) - before) for name, value in values.items()), default=0
    )
    after = function(**{name: value * factor(name) for name, value in values.items()})
    scaled = factor(function.__name__)
    return math.isclose(after, before * scaled, rel_tol=1e-6, abs_tol=max(1e-300, 4 * noise * scaled))


@pytest.mark.parametrize("id", sorted(PURE))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_formula_scales_with_its_units(id: str, data: st.DataObject) -> None:
    function = PURE[id].function
    values = {name: data.draw(value_for(name), label=name) for name in parameters(function) or ()}
    factors = {base: data.draw(st.floats(0.01, 100.0), label=base) for base in BASE}
    assert homogeneous(function, values, factors)


def test_every_pure_formula_of_the_network_is_covered() -> None:
    network = {e.id for e in models().values() if e.function.__module__.startswith("ridgeline.network")}
    assert network <= set(PURE)
    assert len(PURE) >= 25


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oneway_bytes_per_s", {"bytes": 1, "s": -1}),
        ("energy_usd_per_j", {"usd": 1, "j": -1}),
        ("per_device_usd_per_s", {"usd": 1, "s": -1}),
        ("tdp_w", {"j": 1, "s": -1}),
        ("ranks_count", {}),
        ("rate_per_s", {"s": -1}),
        ("forward_flop_per_token", {"flop": 1}),
        ("send_s", {"s": 1}),
    ],
)
def test_units_are_read_from_names(name: str, expected: Dimension) -> None:
    assert dimension(name) == expected


def test_the_check_catches_what_it_is_for() -> None:
    def swapped_s(message_bytes: float, oneway_bytes_per_s: float) -> float:
        return message_bytes * oneway_bytes_per_s

    def hidden_seconds_s(message_bytes: float, oneway_bytes_per_s: float) -> float:
        return 1e-5 + message_bytes / oneway_bytes_per_s

    def right_s(message_bytes: float, oneway_bytes_per_s: float) -> float:
        return message_bytes / oneway_bytes_per_s

    values = {"message_bytes": 1e6, "oneway_bytes_per_s": 1e9}
    factors = {"s": 3.0, "bytes": 7.0}
    assert not homogeneous(swapped_s, values, factors)
    assert not homogeneous(hidden_seconds_s, values, factors)
    assert homogeneous(right_s, values, factors)
