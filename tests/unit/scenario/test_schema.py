"""Every field is read by the unit parser within its range; all problems of a file come together."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ridgeline.errors import ScenarioError
from ridgeline.scenario.checking import read_scenario
from ridgeline.scenario.quantities import Sizes
from ridgeline.scenario.settings import parse_setting

SCENARIO: dict[str, Any] = {
    "workload": {
        "model": "llama-3.1-70b",
        "train": {"tokens": "1e12", "sequence": 8192, "global_batch": "1024", "precision": "bf16"},
    },
    "candidates": [{"system": "dgx-h100", "devices": 512}, {"system": "dgx-b200", "devices": "128..512"}],
    "site": {"electricity": "0.09 USD/kWh", "pue": 1.2, "carbon": "400 g/kWh"},
    "limits": {"deadline": "45 d", "budget": "4.0e+6 USD", "power": "1 MW"},
    "objective": "cost",
}


def told(sets: list[str], data: dict[str, Any] | None = None) -> str:
    with pytest.raises(ScenarioError) as caught:
        read_scenario(copy.deepcopy(data if data is not None else SCENARIO), sets)
    return str(caught.value)


def test_the_scenario_of_the_readme_reads_in_si() -> None:
    file, where, _, _ = read_scenario(SCENARIO)
    assert where == "scenario"
    assert file.workload.train is not None
    assert (file.workload.train.tokens, file.workload.train.global_batch) == (1e12, 1024)
    assert file.candidates[1].devices == Sizes((128, 512), doubling=True)
    assert file.site.electricity == pytest.approx(0.09 / 3.6e6)
    assert file.site.carbon == pytest.approx(0.4 / 3.6e6)
    assert (file.limits.deadline, file.limits.budget, file.limits.power) == (45 * 86400, 4e6, 1e6)


@pytest.mark.parametrize(
    ("setting", "told_parts"),
    [
        ("workload.train.sequence=0", ["--set workload.train.sequence", "got 0", "allowed 1 to 1e8"]),
        ("workload.train.tokens=1e30", ["got '1e30'", "allowed 1 to 1e17"]),
        ("workload.train.tokens=-5", ["got -5", "allowed"]),
        ("workload.train.global_batch=10.5", ["got 10.5", "whole numbers"]),
        ("workload.train.tokens=.inf", ["finite"]),
        ("workload.train.tokens=.nan", ["finite"]),
        ("workload.train.tokens=true", ["got true", "expected a count"]),
        ("workload.train.tokens=[1, 2]", ["got [1, 2]", "expected a count"]),
        ("workload.train.tokens=1e12 parsecs", ["unknown unit 'parsecs'"]),
        ("workload.train.tokens=" + "9" * 400, ["finite", "allowed 1 to 1e17"]),
        ("workload.train.precision=bf15", ["allowed bf16", "nearest: bf16"]),
        ("workload.train.recompute=maybe", ["allowed none, selective, full"]),
        ("workload.train.sequence_parallel=1", ["allowed true, false"]),
        ("site.pue=0.5", ["got 0.5", "allowed 1 to 5"]),
        ("site.pue=-1", ["got -1", "allowed 1 to 5"]),
        ("site.electricity=0.09 USD/kW", ["unknown unit 'USD/kW'", "USD/kWh"]),
        ("site.electricity=90", ["allowed 0 USD/kWh to 10 USD/kWh"]),
        ("site.carbon=1e9", ["allowed 0 g/kWh to 3000 g/kWh"]),
        ("limits.deadline=45 GB", ["is a unit of bytes, expected a time"]),
        ("limits.budget=0", ["allowed above 0 USD"]),
        ("limits.power=-1 MW", ["allowed 1 W to 1000 GW"]),
        ("objective=kost", ["allowed time, cost, energy, devices", "nearest: cost"]),
        ("candidates.0.devices=0", ["got 0", "allowed 1 to 1e7"]),
        ("candidates.0.devices=512..128", ["write 128..512"]),
        ("candidates.0.devices=1...4", ["got '1...4'", "whole numbers"]),
        ("candidates.0.devices=[]", ["empty list"]),
        ("candidates.0.devices={a: 1}", ["expected a count"]),
        ("candidates=[]", ["candidates", "expected at least one entry"]),
        ("candidates=3", ["expected a list"]),
        ("candidates.0=dgx-h100", ["got 'dgx-h100'", "expected keys: system, devices"]),
        ("site=3", ["site", "got 3", "expected keys"]),
        ("workload.model=", ["is missing", "ridgeline list models"]),
        ("workload.train.micro_batch=3", ["does not divide the global_batch 1024"]),
        ("workload.train.tokens=1000", ["less than one step"]),
        ("workload.serve={input: 10}", ["both `train` and `serve`"]),
        ("workload.train=", ["neither `train` nor `serve`"]),
    ],
)
def test_a_bad_value_says_what_where_got_and_allowed(setting: str, told_parts: list[str]) -> None:
    message = told([setting])
    assert [part for part in told_parts if part not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize(
    ("setting", "told_parts"),
    [
        ("workload.train.tokns=3", ["unknown key 'tokns' in workload.train", "nearest: tokens"]),
        ("limit.power=3", ["unknown key 'limit'", "nearest: limits"]),
        ("site.pue.x=3", ["site.pue is a single value"]),
        ("candidates.5.devices=2", ["candidates has 2 entries, allowed 0 to 1"]),
        ("candidates[0].size=2", ["unknown key 'size' in candidates.0", "allowed: system, devices"]),
        ("candidates.devices=2", ["candidates is a list; write candidates.0"]),
        ("no-sign", ["expected path=value"]),
        ("=3", ["expected path=value"]),
        ("site..pue=3", ["empty part"]),
        ("site.pue=[1", ["not valid YAML"]),
    ],
)
def test_a_bad_set_path_names_the_nearest_keys(setting: str, told_parts: list[str]) -> None:
    message = told([setting])
    assert [part for part in told_parts if part not in message] == []


def test_all_problems_of_a_file_come_together() -> None:
    data = copy.deepcopy(SCENARIO)
    data["workload"]["train"]["precison"] = "bf16"
    data["site"]["pue"] = 0.5
    del data["candidates"][0]["system"]
    message = told([], data)
    assert message.startswith("3 problems:")
    assert "scenario: workload.train: unknown key 'precison'; nearest: precision" in message
    assert "scenario: candidates.0.system: is missing" in message
    assert "scenario: site.pue: got 0.5, allowed 1 to 5" in message


def test_settings_create_change_and_remove() -> None:
    file, _, _, paths = read_scenario(
        {key: SCENARIO[key] for key in ("workload", "candidates")},
        ["limits.budget=2e6 USD", "candidates[1].devices=[64, 128]", "site.pue=1.5", "site.pue="],
    )
    assert file.limits.budget == 2e6
    assert file.candidates[1].devices == Sizes((64, 128))
    assert file.site.pue is None
    assert paths[1] == ("candidates", 1, "devices")
    assert parse_setting("a.b=1=2") == (("a", "b"), "1=2")


def test_the_given_mapping_is_not_changed() -> None:
    before = copy.deepcopy(SCENARIO)
    read_scenario(SCENARIO, ["site.pue=2"])
    assert before == SCENARIO


def test_numbers_in_all_spellings_are_the_same() -> None:
    spellings = [1e12, "1e12", "1.0e+12", 1_000_000_000_000, "1T", "1000 B tokens", "1e12 tokens"]
    for spelling in spellings:
        data = copy.deepcopy(SCENARIO)
        data["workload"]["train"]["tokens"] = spelling
        train = read_scenario(data)[0].workload.train
        assert train is not None
        assert train.tokens == 1e12
