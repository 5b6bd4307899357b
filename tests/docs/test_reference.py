"""The reference of the scenario names every key of the schema, and its example is understood."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ridgeline.scenario import read_scenario
from ridgeline.scenario.schema import Leaf, ScenarioFile, children

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "scenario.md").read_text()


def keys(shape: Any) -> Iterator[str]:
    """Every key of the schema, without its path."""
    if isinstance(shape, list):
        yield from keys(shape[0])
    elif not isinstance(shape, Leaf):
        for name, inner in children(shape).items():
            yield name
            yield from keys(inner)


def test_every_key_is_described() -> None:
    described = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`]*)`", PAGE)))) | set(
        re.findall(r"## (\w+)", PAGE)
    )
    assert [name for name in keys(ScenarioFile) if name not in described] == []


def test_the_example_is_understood() -> None:
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    file, _, _, _ = read_scenario(yaml.safe_load(block.group(1)))
    assert file.objective == "cost"
