"""The examples of `simulate` run, as text within 120 columns and as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ridgeline.cli import run

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples" / "simulate").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_of_a_simulation_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--set", "simulate.requests=800"]
    assert run(["simulate", str(path), *short]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert max(len(line) for line in printed.out.splitlines()) <= 120
    assert "assumed figure" in "\n".join(printed.out.splitlines()[:4])
    assert run(["simulate", str(path), "--json", *short]) == 0
    data = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"JSON holds {name}"))
    assert data["schema_version"] == 1


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"cameras", "bert-batching"}
