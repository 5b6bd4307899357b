"""Small words of answers and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

Cli = Any  # the fixture `cli` of conftest.py


@pytest.mark.parametrize("option", ["--rows", "--training"])
def test_validate_refuses_options_that_need_a_kind(cli: Cli, tmp_path: Path, option: str) -> None:
    result = cli("validate", option, tmp_path / "rows.csv")
    assert (result.code, result.out) == (2, "")
    assert option in result.err
    assert "kind" in result.err
    assert not (tmp_path / "rows.csv").exists()


def test_a_rent_of_the_scenario_names_it_without_a_stray_blank(cli: Cli, folder: Path) -> None:
    path = folder / "rent.yaml"
    path.write_text((folder / "good.yaml").read_text().replace("devices: 8}", "devices: 8, rent: 2 USD/h}"))
    result = cli("plan", path)
    assert result.code == 0
    assert "(the scenario)" in result.out
    assert " )" not in result.out


def test_one_replica_is_one(cli: Cli, folder: Path) -> None:
    path = folder / "serve.yaml"
    path.write_text(
        "workload:\n  model: ./small.json\n  serve: {input: 1024, output: 256, rate: 1e6 1/s, precision: bf16}\n"
        "candidates: [{system: dgx-h100, devices: 1}]\nobjective: devices\n"
    )
    result = cli("plan", path)
    assert result.code == 3
    assert "1 replica)" in result.err


def test_an_energy_price_has_its_article(cli: Cli, folder: Path) -> None:
    result = cli("plan", folder / "good.yaml", "--set", "site.electricity=abc")
    assert result.code == 2
    assert "expected an energy price" in result.err
