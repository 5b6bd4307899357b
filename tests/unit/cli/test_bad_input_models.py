"""Models that a workload does not fit, and files that are no configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_bad_input import refused

from ridgeline.intake.models import MAX_FILE_BYTES

Cli = Any  # the fixture `cli` of conftest.py

SERVE = ("--set", "workload.train=", "--set", "workload.serve.input=512")


@pytest.mark.parametrize("model", ["bert-base", "vit-base-16", "resnet-50"])
def test_a_model_that_generates_nothing_is_asked_for_no_tokens(cli: Cli, folder: Path, model: str) -> None:
    words = ("plan", folder / "good.yaml", *SERVE, "--set", f"workload.model={model}")
    refused(cli(*words, "--set", "workload.serve.output=64"), "workload.serve.output: got 64", "allowed 0")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["workload.train.sequence=8192"], "workload.train.sequence: 8,192 tokens, beyond the 4,096 tokens"),
        (["workload.model=vit-base-16"], "an input of vit-base-16 is 197 tokens whatever workload.train.sequence"),
    ],
)
def test_a_length_that_the_model_does_not_state_is_noted(
    cli: Cli, folder: Path, settings: list[str], told: str
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    notes = json.loads(cli("plan", folder / "good.yaml", "--json", *words).out)["notes"]
    assert [note["text"] for note in notes if note["kind"] == "out-of-range" and told in note["text"]], notes
    plain = json.loads(cli("plan", folder / "good.yaml", "--json").out)["notes"]
    assert [note for note in plain if note["kind"] == "out-of-range"] == []


def test_a_length_of_serving_beyond_the_model_is_noted(cli: Cli, folder: Path) -> None:
    words = ("--json", *SERVE, "--set", "workload.serve.input=4000", "--set", "workload.serve.output=200")
    notes = json.loads(cli("plan", folder / "good.yaml", *words).out)["notes"]
    assert [note for note in notes if "4,200 tokens, beyond the 4,096 tokens" in note["text"]]


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ("https://example.org/config.json", "a web address is not read"),
        ("~nobody-of-this-name/config.json", "no such file"),
    ],
)
def test_places_that_are_no_files(cli: Cli, folder: Path, ref: str, told: str) -> None:
    refused(cli("plan", folder / "good.yaml", "--set", f"workload.model={ref}"), "workload.model", told)
    refused(cli("show", ref), ref, told)


def test_files_that_are_no_configuration(cli: Cli, folder: Path) -> None:
    path = folder / "small.json"
    text = path.read_text()
    path.write_text(text[:-1] + ', "hidden_size": 4096}')
    refused(cli("show", path), "small.json", "key 'hidden_size' is given twice")
    path.write_text(text, encoding="utf-8-sig")
    assert cli("show", path).code == 0
    path.write_text(text.replace("2048", "9" * 5000))
    refused(cli("show", path), "small.json: broken JSON", "digits")
    path.write_text("null")
    refused(cli("show", path), "small.json: got null, expected an object of keys")
    with path.open("w") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    refused(cli("show", path), "small.json", "a config.json may have at most")


def test_a_recipe_beside_the_file_that_is_none(cli: Cli, folder: Path) -> None:
    (folder / "hf_quant_config.json").write_text("[]")
    refused(cli("show", folder / "small.json"), "hf_quant_config.json: got [], expected an object")
