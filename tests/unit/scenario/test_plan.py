"""From a scenario to an answer: prices, limits, sites and notes do what the file says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import ridgeline
from ridgeline.errors import BadPlan, NoFeasiblePlan, ScenarioError, UnknownName
from ridgeline.scenario import load_scenario, plan
from ridgeline.scenario.answer import AnswerRow
from ridgeline.search import ServingRow, TrainingRow

DAY_S, HOUR_S = 86400.0, 3600.0
CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
TRAIN: dict[str, Any] = {
    "workload": {"model": "small.json", "train": {"tokens": "1e10", "sequence": 2048, "global_batch": 64}},
    "candidates": [{"system": "dgx-h100", "devices": 8}],
    "site": {"electricity": "0.10 USD/kWh", "pue": 1.25, "carbon": "400 g/kWh"},
}
SERVE: dict[str, Any] = {
    "workload": {"model": "small.json", "serve": {"input": 512, "output": 128, "rate": "2 1/s"}},
    "candidates": [{"system": "dgx-h100", "devices": [1, 2]}],
    "site": {"electricity": "0.10 USD/kWh", "pue": 1.25},
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the small model; a dict's paths are relative to the working folder."""
    (tmp_path / "small.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)


def only(scenario: dict[str, Any], *sets: str) -> AnswerRow:
    """The best row."""
    return ridgeline.plan(scenario, list(sets)).rows[0]


def test_the_run_is_whole_steps() -> None:
    row = only(TRAIN)
    assert isinstance(row.found, TrainingRow)
    assert row.run_s is not None
    steps = -(-10_000_000_000 // (2048 * 64))
    assert row.run_s.best == pytest.approx(steps * row.found.estimate.step_s.best)
    assert row.days == pytest.approx(row.run_s.best / DAY_S)


def test_energy_money_and_carbon_follow_from_power_and_time() -> None:
    row = only(TRAIN, "candidates.0.rent=2.5 USD/h", "candidates.0.purchase=30 kUSD", "objective=cost")
    found = row.found
    assert isinstance(found, TrainingRow)
    assert row.goodput is not None
    # the power of the steps while something is computed, also what is computed again; that of idle devices meanwhile
    idle_s = sum(row.goodput.time.value_of(name) for name in ("checkpoint stalls", "noticing failures", "restarts"))
    working_j = found.power.total_w.best * (found.elapsed_s.best - idle_s) * 1.25
    energy_j = row.energy_j.best
    assert working_j < energy_j < working_j + found.power.total_w.best * idle_s * 1.25
    assert energy_j > found.power.total_w.best * found.run_s.best * 1.25
    assert found.facility.carbon_kg_co2e == pytest.approx(energy_j / 3.6e6 * 0.4)
    # 8 devices at 2.50 USD an hour; the scenario's own prices go before the catalogue's
    assert row.cost_usd is not None
    assert row.cost_usd.best == pytest.approx(8 * 2.5 * found.elapsed_s.best / HOUR_S)
    # 8 x 30,000 USD over 4 years at 70 %, a fifth more for the network, and the energy
    life_s = 4 * 365.25 * DAY_S * 0.7
    own = 8 * 30_000 * 1.2 * found.elapsed_s.best / life_s + energy_j / 3.6e6 * 0.10
    assert found.cost.own_usd is not None
    assert found.cost.own_usd.best == pytest.approx(own)
    data = row.to_dict()
    assert data["energy_kwh"] == pytest.approx(energy_j / 3.6e6)
    assert data["cost"]["basis"] == "on-demand"


def test_limits_count_the_run_with_its_failures() -> None:
    """Nodes that fail once a day: steps alone keep a deadline that the run misses, and money is that of the run."""
    failing = ["failures.between=1 d", "failures.restart=1 h", "candidates.0.rent=2.5 USD/h"]
    row = only(TRAIN, *failing)
    assert isinstance(row.found, TrainingRow)
    assert row.days_with_failures > 1.05 * row.days
    assert row.cost_usd.best == pytest.approx(8 * 2.5 * row.found.elapsed_s.best / HOUR_S)
    between = f"limits.deadline={(row.days + row.days_with_failures) / 2} d"
    with pytest.raises(NoFeasiblePlan, match="deadline"):
        only(TRAIN, *failing, between)
    assert only(TRAIN, *failing[2:], between).rank == 1  # nodes that fail as published ones do


def test_what_the_scenario_gives_is_not_assumed() -> None:
    own = ["candidates.0.purchase=30000", "cost.basis=own"]
    assumed = {fact.id for fact in only(TRAIN, *own).leans}
    assert {"ownership.depreciation", "ownership.utilisation", "ownership.network", "power.base_frac"} <= assumed
    given = [*own, "cost.depreciation=5 y", "cost.utilisation=90%", "cost.network=0"]
    row = only(TRAIN, *given)
    assert not {fact.id for fact in row.leans} & {
        "ownership.depreciation",
        "ownership.utilisation",
        "ownership.network",
    }
    assert isinstance(row.found, TrainingRow)
    energy_usd = row.energy_j.best / 3.6e6 * 0.10
    assert row.cost_usd is not None
    assert row.cost_usd.best == pytest.approx(
        8 * 30_000 * row.found.elapsed_s.best / (5 * 365.25 * DAY_S * 0.9) + energy_usd
    )


def test_without_electricity_owning_has_no_price() -> None:
    row = only(TRAIN, "site=", "cost.basis=own")
    assert row.cost_usd is None
    assert "site.electricity" in row.found.cost.missing
    assert row.to_dict()["cost"]["headline_usd"] is None


def test_serving_spreads_an_hour_over_its_tokens() -> None:
    row = only(SERVE, "candidates.0.rent=2 USD/h", "objective=cost")
    found = row.found
    assert isinstance(found, ServingRow)
    tokens_per_s = 2 * 128
    assert found.estimate.output_tokens_per_s.best == pytest.approx(tokens_per_s)
    assert found.usd_per_mtoken is not None
    assert found.usd_per_mtoken.best == pytest.approx(row.devices * 2 / HOUR_S / tokens_per_s * 1e6)
    assert found.j_per_token.best == pytest.approx(found.power.total_w.best * 1.25 / tokens_per_s)
    assert row.devices == 1  # one device is enough and half the money


def test_an_encoder_counts_its_input_tokens() -> None:
    bert = copy.deepcopy(SERVE)
    bert["workload"] = {"model": "bert-base", "serve": {"input": 128, "rate": 100, "latency_p95": "50 ms"}}
    row = only(bert, "candidates.0.rent=2 USD/h", "candidates.0.devices=1")
    assert isinstance(row.found, ServingRow)
    assert row.found.usd_per_mtoken is not None
    assert row.found.usd_per_mtoken.best == pytest.approx(2 / HOUR_S / (100 * 128) * 1e6)


def test_the_answer_is_plain_data_and_the_same_each_time() -> None:
    for scenario in (TRAIN, SERVE):
        one, other = (ridgeline.plan(scenario).to_dict() for _ in range(2))
        text = json.dumps(one, allow_nan=False)
        assert json.loads(text) == json.loads(json.dumps(other, allow_nan=False))


def test_nothing_feasible_raises_with_counts() -> None:
    with pytest.raises(NoFeasiblePlan) as caught:
        ridgeline.plan(TRAIN, ["limits.deadline=1 s"])
    assert sum(caught.value.rejected.values()) > 0
    assert "deadline" in caught.value.rejected
    with pytest.raises(NoFeasiblePlan, match="first token"):
        ridgeline.plan(SERVE, ["workload.serve.ttft_p95=1 us"])


def test_a_machine_beyond_a_limit_is_listed_apart() -> None:
    answer = ridgeline.plan(TRAIN, ["candidates.0.devices=[8, 64]", "limits.power=20 kW"])
    assert [row.devices for row in answer.rows] == [8]
    assert [(item.system_id, item.devices_count) for item in answer.infeasible] == [("dgx-h100", 64)]
    assert "draws" in answer.infeasible[0].reasons[0]


def test_software_that_is_not_named_is_said() -> None:
    assert any("training software on dgx-h100 not named" in note.text for note in ridgeline.plan(TRAIN).notes)
    named = ridgeline.plan(TRAIN, ["workload.train.software=megatron-core-0.16"])
    assert not [note for note in named.notes if note.kind == "fill"]
    served = ridgeline.plan(SERVE, ["workload.serve.engine=sglang"])
    assert not [note for note in served.notes if note.kind == "fill"]
    assert any(use.startswith("sglang.") for use in served.rows[0].uses)


def test_a_model_path_is_relative_to_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    scenario = json.loads(json.dumps(TRAIN))
    scenario["workload"]["model"] = "../small.json"
    (deep / "s.json").write_text(json.dumps(scenario))
    monkeypatch.chdir("/")
    assert ridgeline.plan(deep / "s.json").scenario.model.layers_count == 16


def test_folders_of_facts_are_taken(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "systems").mkdir(parents=True)
    (folder / "systems" / "my-box.yaml").write_text("id: my-box\nextends: dgx-h100\nname: my box\n")
    scenario = TRAIN | {"candidates": [{"system": "my-box", "devices": 8}]}
    answer = ridgeline.plan(scenario, catalog=[folder])
    assert answer.rows[0].system == "my-box"
    with pytest.raises(ScenarioError, match="unknown system 'my-box'"):
        ridgeline.plan(scenario)


def test_several_unknown_names_come_together() -> None:
    from ridgeline.catalog import load_catalog

    scenario = TRAIN | {"candidates": [{"system": "dgx-h1000", "devices": 8}, {"system": "dgx-h100", "devices": 12}]}
    with pytest.raises(ScenarioError) as caught:
        load_scenario(scenario, ["workload.model=lama-3.1-70b"], catalog=load_catalog())
    message = str(caught.value)
    assert message.startswith("3 problems:")
    assert [part for part in ("lama-3.1-70b", "dgx-h1000", "not whole nodes of 8") if part not in message] == []


def test_progress_names_what_is_searched() -> None:
    from ridgeline.catalog import load_catalog

    said: list[str] = []
    plan(load_scenario(TRAIN, catalog=load_catalog()), progress=said.append)
    assert said == ["searching dgx-h100 x 8"]


def test_show_and_list() -> None:
    from ridgeline.catalog import load_catalog
    from ridgeline.scenario.lookup import list_records, show_record

    catalog = load_catalog()
    model = show_record(catalog, "small.json", context="2048", kv="fp8")
    # 16 layers x 2 x 8 heads x 128 at one byte
    assert model["kv_bytes_per_token"] == 16 * 2 * 8 * 128
    assert model["parameters_count"] == show_record(catalog, "small.json")["parameters_count"]
    chip = show_record(catalog, "h100-sxm5-80")
    assert chip["record"] == "devices"
    bandwidth = next(fact for fact in chip["facts"] if fact["key"] == "memory_bandwidth")
    assert bandwidth["value"] == 3.35e12
    assert any(price["usd_per_hour"] for price in show_record(catalog, "dgx-h100")["prices"])
    assert "dgx-h100" in [item["id"] for item in list_records(catalog, "system")["records"]]
    with pytest.raises(UnknownName):
        list_records(catalog, "systms")


def test_a_chip_without_a_published_power_is_ranked_without_energy() -> None:
    scenario = TRAIN | {"candidates": [{"system": "tpu-v5p", "devices": 8}, {"system": "dgx-h100", "devices": 8}]}
    answer = ridgeline.plan(scenario, ["objective=energy"])
    assert [row.system for row in answer.rows] == ["dgx-h100", "tpu-v5p"]
    row = answer.rows[1]
    assert row.energy_j is None
    assert any("missing fact tpu-v5p.tdp" in note.text for note in row.notes)
    data = row.to_dict()
    assert (data["energy_j"], data["power"], data["carbon_kg_co2e"]) == (None, None, None)
    assert data["cost"]["headline_usd"]["best"] > 0  # rent needs no power
    limited = ridgeline.plan(scenario, ["limits.power=1 MW"])
    assert [item.system_id for item in limited.infeasible] == ["tpu-v5p"]
    assert "no known power to hold against the limit of 1.00 MW" in limited.infeasible[0].reasons[0]


def test_a_format_that_the_chip_lacks_is_infeasible_whatever_is_pinned() -> None:
    serve = {"input": 512, "output": 64, "concurrency": 1, "precision": "fp8", "activations": "fp8"}
    train = {"tokens": "1e8", "sequence": 2048, "global_batch": 8, "precision": "nvfp4"}
    for kind, job, lacking in (("serve", serve, "no fp8 arithmetic"), ("train", train, "no published rate for nvfp4")):
        for pins in ({}, {"tensor": 2}):
            asked = {"workload": {"model": "llama-2-7b", kind: {**job, **pins}}}
            with pytest.raises(NoFeasiblePlan, match=lacking):
                ridgeline.plan({**asked, "candidates": [{"system": "dgx-a100", "devices": 2}]})
    asked = {"workload": {"model": "llama-2-7b", "serve": {**serve, "tensor": 7}}}
    with pytest.raises(BadPlan, match="32 attention heads do not divide over 7 devices"):
        ridgeline.plan({**asked, "candidates": [{"system": "dgx-a100", "devices": 8}]})


def test_a_serving_row_says_what_share_of_the_peaks_it_sustains() -> None:
    row = only(SERVE)
    data = row.to_dict()
    chip = row.found.system.chip
    assert data["mfu_frac"] == pytest.approx(data["flop_per_s_per_device"] / chip.peak("bf16"))
    assert 0 < data["mfu_frac"] < data["bandwidth_frac"] < data["device_busy_frac"]
