"""Names that are not there: hints name only what exists."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ridgeline.catalog import RECORD_KINDS, load_catalog
from ridgeline.errors import UnknownName, nearest_names
from ridgeline.specs import bytes_per_element

Cli = Any  # the fixture `cli` of conftest.py


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_a_hint_to_list_is_one_that_list_takes(cli: Cli, kind: str) -> None:
    with pytest.raises(UnknownName) as caught:
        load_catalog(plugins=False).resolve(kind, "zzz")
    hint = re.search(r"`ridgeline (list \w+)`", str(caught.value))
    if kind == "labels":
        assert hint is None
    else:
        assert hint is not None
        assert hint[1] == f"list {kind}"
        assert cli(*hint[1].split()).code == 0


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("list", "kinds"), "systems, "),
        (("validate", "foo"), "training, memory, inference"),
        (("show", "dgx-h100", "--kv", "fp9"), "bf16, fp16, fp8"),
    ],
)
def test_choices_that_cannot_be_listed_are_told(cli: Cli, words: tuple[str, ...], allowed: str) -> None:
    result = cli(*words)
    assert result.code == 2
    assert "ridgeline list" not in result.err
    assert allowed in result.err.partition("allowed: ")[2]


def test_a_precision_without_a_near_one_tells_all() -> None:
    with pytest.raises(UnknownName, match=r"allowed: .*bf16"):
        bytes_per_element("zzzzzz")


def test_a_device_taken_for_a_system_names_systems_that_have_it() -> None:
    catalog = load_catalog(plugins=False)
    with pytest.raises(UnknownName, match="unknown system 't4'; it is a device; systems that have it: ") as caught:
        catalog.system("t4")
    named = str(caught.value).partition("have it: ")[2].partition(" (")[0].split(", ")
    assert len(named) > 1
    assert {catalog.system(id).chip.id for id in named} == {"t4"}


def test_names_that_differ_in_case_only_come_first() -> None:
    assert nearest_names("QWEN3", ["qwen3x", "qwen30", "qwen3", "Qwen3"])[:2] == ["Qwen3", "qwen3"]
    with pytest.raises(UnknownName, match="nearest: qwen3-32b"):
        load_catalog(plugins=False).resolve("models", "Qwen3-32B")
