"""Breakdown trees add up, keep the losers of a maximum, and say so when they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.core import Breakdown, FrozenMap, largest, leaf, total

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(numbers, min_size=1, max_size=20))
def test_sum_and_maximum_are_those_of_the_parts(values: list[float]) -> None:
    parts = [leaf(f"p{i}", value, "s") for i, value in enumerate(values)]
    both = total("both", "s", [total("sum", "s", parts), largest("max", "s", parts)])
    assert both.check() == []
    assert both.find("sum").value == pytest.approx(sum(values), abs=1e-6)
    assert both.find("max").value == max(values)


def test_check_names_the_node_that_does_not_add_up() -> None:
    wrong = Breakdown("step", 3.0, "s", "sum", (leaf("a", 1.0, "s"), leaf("b", 1.0, "s")))
    assert wrong.check() == ["step: 3.0 is not the sum 2.0 of its parts"]
    mixed = Breakdown("step", 1.0, "s", "sum", (leaf("a", 1.0, "J"),))
    assert mixed.check() == ["step: parts in another unit than s"]


def test_facts_and_models_are_collected_in_order_without_repeats() -> None:
    tree = total(
        "t",
        "s",
        [leaf("a", 1, "s", model="m1", uses=("f1", "f2")), leaf("b", 1, "s", model="m2", uses=("f2", "f3"))],
    )
    assert tree.facts() == ("f1", "f2", "f3")
    assert tree.models() == ("m1", "m2")


def test_overlap_is_a_negative_leaf() -> None:
    tree = total("step", "s", [leaf("compute", 10.0, "s"), leaf("all-reduce", 4.0, "s"), leaf("hidden", -3.0, "s")])
    assert tree.value == 11.0
    assert tree.to_dict()["parts"][2] == {"name": "hidden", "value": -3.0, "unit": "s"}


def test_frozen_map_hashes_by_content() -> None:
    assert {FrozenMap({"a": 1, "b": 2}): "x"}[FrozenMap({"b": 2, "a": 1})] == "x"
    with pytest.raises(TypeError):
        FrozenMap({"a": 1})["a"] = 2  # type: ignore[index]
