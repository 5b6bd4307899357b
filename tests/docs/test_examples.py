"""Every example and every command of the README runs, and its table is readable in 120 columns."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import ridgeline
from ridgeline.cli import run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def numbers(data: Any) -> Iterator[float]:
    """Every number in plain data."""
    if isinstance(data, dict):
        for value in data.values():
            yield from numbers(value)
    elif isinstance(data, list):
        for value in data:
            yield from numbers(value)
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield float(data)


def test_the_examples_of_the_issue_are_there() -> None:
    assert {path.stem for path in EXAMPLES} >= {"train-70b", "gpt3-175b-10000-a100", "serve-70b", "bert-5ms"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_a_ranked_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(path)]) == 0
    printed = capsys.readouterr()
    lines = [line.rstrip() for line in printed.out.splitlines()]
    assert max(len(line) for line in lines) <= 120
    assert printed.err == ""
    header = max(index for index, line in enumerate(lines) if line.startswith("#"))
    assert "machine" in lines[header]
    assert "layout" in lines[header]
    assert lines[header].endswith(("own MUSD", "own kUSD", "own USD", "weights")), "a column was cut off"
    assert re.match(r"1 +\S", lines[header + 1])
    assert any("layouts rejected" in line for line in lines[-3:])
    assert any(line.startswith("rests on") for line in lines[:6]), "assumed figures belong in the first lines"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_as_data_is_whole_and_adds_up(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"JSON holds {name}"))
    assert data["schema_version"] == 1
    assert data["rows"]
    assert [row["rank"] for row in data["rows"]] == list(range(1, len(data["rows"]) + 1))
    assert all(math.isfinite(number) for number in numbers(data))
    for row in data["rows"]:
        tree = row["time"] if data["kind"] == "train" else row["step"]
        power = [] if row["power"] is None else [row["power"]["parts"]]
        for whole in (tree, row["memory"], *power, *row["cost"]["parts"]):
            adds_up(whole)
        assert row["memory"]["value"] <= row["memory_available_bytes"] * (1 + 1e-9)
        if data["kind"] == "train":
            assert row["step_s"]["low"] < row["step_s"]["best"] < row["step_s"]["high"]
            assert 0 < row["mfu_frac"] < 1
            assert row["step_s"]["best"] == pytest.approx(tree["value"])


def adds_up(tree: dict[str, Any]) -> None:
    """A node is the sum (or maximum) of its parts, all the way down."""
    parts = tree.get("parts", [])
    if parts:
        values = [part["value"] for part in parts]
        expected = max(values) if tree["how"] == "max" else math.fsum(values)
        assert tree["value"] == pytest.approx(expected, rel=1e-9, abs=1e-12), tree["name"]
        for part in parts:
            adds_up(part)


@pytest.mark.parametrize("verb", ["train", "serve", "roofline", "cite"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_other_verbs_run_on_an_example(verb: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "train" if "train" in yaml.safe_load(path.read_text())["workload"] else "serve"
    code = run([verb, str(path)])
    printed = capsys.readouterr()
    if verb in ("train", "serve") and verb != kind:
        assert code == 2
        assert f"needs `{verb}`" in printed.err
        return
    assert (code, printed.err) == (0, "")
    assert len(printed.out.splitlines()) > 10


def test_the_scenario_in_the_readme_is_understood() -> None:
    block = re.search(r"```yaml\n(workload:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    from ridgeline.scenario import read_scenario

    file, _, _, _ = read_scenario(yaml.safe_load(block.group(1)))
    assert file.workload.train is not None
    assert file.candidates[1].devices.doubling


def test_the_python_call_of_the_readme_works() -> None:
    answer = ridgeline.plan(ROOT / "examples" / "train-70b.yaml", ["candidates=[{system: dgx-h100, devices: 512}]"])
    row = answer.rows[0]
    assert row.system == "dgx-h100"
    assert row.days is not None
    assert 1 < row.days < 200
    assert answer.to_dict()["rows"][0]["days"]["best"] == pytest.approx(row.days)
