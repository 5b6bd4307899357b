"""Values that YAML, Python or the shell read differently from people: refused, or read as people do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_bad_input import refused

Cli = Any  # the fixture `cli` of conftest.py


def _changed(folder: Path, old: str, new: str) -> Path:
    good = (folder / "good.yaml").read_text()
    assert old in good
    path = folder / "bad.yaml"
    path.write_text(good.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("!!bool 5", ["bad.yaml line 6", "YAML tags are not taken: 'tag:yaml.org,2002:bool'"]),
        ("!!float '1.2'", ["YAML tags are not taken"]),
        ("!!binary aGk=", ["YAML tags are not taken"]),
        ("!!set {a}", ["YAML tags are not taken"]),
        ("!mine 1.2", ["YAML tags are not taken: '!mine'"]),
        ("2020-13-45", ["site.pue: got '2020-13-45'"]),
        ("2020-01-31", ["site.pue: got '2020-01-31'"]),
        ("1:30", ["site.pue: got '1:30'"]),
        ("0x3", ["site.pue: got '0x3'"]),
        ("1,000", ["site: unknown key '000'"]),
        (".nan", ["site.pue: got nan, expected a fraction (a number) that is finite"]),
        ("-.inf", ["site.pue: got -inf"]),
        ("9" * 400, ["site.pue: got 999", "that is finite"]),
        ("9" * 5000, ["line 6", "a value that cannot be read"]),
        ("true", ["site.pue: got true, expected a fraction"]),
        ("[true, null]", ["site.pue: got [True, None]"]),
    ],
)
def test_values_that_are_no_plain_numbers(cli: Cli, folder: Path, new: str, told: list[str]) -> None:
    refused(cli("plan", _changed(folder, "pue: 1.2", f"pue: {new}")), *told)


def test_a_leading_zero_is_no_octal_number(cli: Cli, folder: Path) -> None:
    path = _changed(folder, "devices: 8", "devices: 010")
    refused(cli("plan", path), "candidates.0.devices: got 10 devices, not whole nodes of 8")
    assert cli("plan", _changed(folder, "global_batch: 64", "global_batch: 0064"), "--json").code == 0


def test_commas_inside_numbers(cli: Cli, folder: Path) -> None:
    path = _changed(folder, "sequence: 2048", "sequence: '2,048'")
    refused(cli("plan", path), "workload.train.sequence: got '2,048': no commas inside numbers; write 2048")


def test_two_documents_and_control_characters(cli: Cli, folder: Path) -> None:
    path = folder / "bad.yaml"
    good = (folder / "good.yaml").read_text()
    path.write_text(f"{good}---\n{good}")
    refused(cli("plan", path), "bad.yaml line 8", "a scenario is one document")
    path.write_text(f"{good}name: a\x07b\n")
    refused(cli("plan", path), "bad.yaml line 8", "unacceptable character #x0007")


def test_of_very_many_problems_the_first_are_told(cli: Cli, folder: Path) -> None:
    path = folder / "bad.yaml"
    path.write_text((folder / "good.yaml").read_text() + "".join(f"k{index}: 1\n" for index in range(5000)))
    result = cli("plan", path)
    refused(result, "5000 problems:", "unknown key 'k0'", "and 4980 more")
    assert len(result.err.splitlines()) < 25
    named = "\n".join(f"  - {{system: none-{index}, devices: 8}}" for index in range(64))
    path.write_text(f"workload: {{model: ./small.json}}\ncandidates:\n{named}\n")
    refused(cli("plan", path), "bad.yaml: workload: has neither")


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        ("8..", ["got '8..', expected a range of two whole numbers such as 128..512"]),
        ("..8", ["got '..8', expected a range"]),
        ("8...16", ["got '8...16', expected a range"]),
        ("[8, '8..16']", ["a list holds numbers; give a range alone"]),
        ("512..128", ["the first number must not be above the second"]),
        ("0..8", ["got '0..8', expected a range"]),
    ],
)
def test_ranges_of_devices(cli: Cli, folder: Path, devices: str, told: list[str]) -> None:
    result = cli("plan", folder / "good.yaml", "--set", f"candidates=[{{system: dgx-h100, devices: {devices}}}]")
    refused(result, "candidates.0.devices", *told)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("candidates.²=8", ["--set candidates.²", "is a list"]),
        ("candidates.٣.devices=8", ["is a list"]),
        ("candidates.1.devices=8", ["candidates has 1 entry, allowed 0"]),
    ],
)
def test_settings_into_lists(cli: Cli, folder: Path, setting: str, told: list[str]) -> None:
    refused(cli("plan", folder / "good.yaml", "--set", setting), *told)


@pytest.mark.parametrize("entry", ["dgx-h100", "null", "[1]", "5"])
@pytest.mark.parametrize("value", ["8", ""])
def test_settings_into_what_is_no_mapping(cli: Cli, folder: Path, entry: str, value: str) -> None:
    path = _changed(folder, "{system: dgx-h100, devices: 8}", entry)
    result = cli("plan", path, "--set", f"candidates.0.devices={value}")
    refused(result, "candidates.0")


def test_hints_name_what_can_be_listed(cli: Cli, folder: Path) -> None:
    refused(cli("list", "systms"), "unknown kind 'systms'; nearest: systems; allowed: ", "devices")
    refused(cli("list", "facts"), "unknown kind 'facts'", "allowed: ")
    refused(cli("show", "dgx-h1000"), "see `ridgeline list KIND`")
    refused(cli("show", ""), "unknown id ''")
    refused(cli("show", "llama-3.1-8b", "--kv", "fp9"), "nearest: fp8", "allowed: bf16")
    refused(cli("show", "h100-sxm5-80", "--kv", "fp9"), "--kv")
    refused(cli("show", "h100-sxm5-80", "--context", "many"), "--context: got 'many'")


def test_a_whole_number_beyond_floats_in_a_config(cli: Cli, folder: Path) -> None:
    config = json.loads((folder / "small.json").read_text())
    (folder / "small.json").write_text(json.dumps(config | {"hidden_size": 10**400}))
    refused(cli("show", folder / "small.json"), "hidden_size")
