"""Nobody meets a traceback: one message with what, where, got, allowed or nearest; exit 2, or 3 if infeasible."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ridgeline.cli import run

Cli = Any  # the fixture `cli` of conftest.py


def refused(result: Any, *told: str, code: int = 2) -> None:
    """One error, nothing on standard output, everything in `told` said."""
    assert result.code == code, result.err
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("error: ") == 1
    assert "Traceback" not in result.err
    assert [part for part in told if part not in result.err] == [], result.err


def test_the_good_scenario_is_good(cli: Cli, folder: Path) -> None:
    result = cli("plan", folder / "good.yaml")
    assert result.code == 0, result.err
    assert "dgx-h100 x 8" in result.out
    assert result.err == ""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (None, "", ["is empty"]),
        (None, "   \n# nothing\n", ["is empty"]),
        (None, "workload: [1, 2", ["line 1", "not valid YAML"]),
        (None, "{broken", ["not valid YAML"]),
        (None, '{"workload": {"model": "x"', ["not valid YAML"]),
        (None, "plain words", ["holds a text"]),
        (None, "- a\n- b", ["holds a list"]),
        (
            "objective: time\n",
            "objective: time\nobjective: cost\n",
            ["line 8", "key 'objective' is given twice (first in line 7)"],
        ),
        ("pue: 1.2", "pue: 1.2, pue: 1.3", ["key 'pue' is given twice"]),
        (
            "electricity: 0.09 USD/kWh, pue: 1.2",
            "electricity: &p 0.09 USD/kWh, pue: *p",
            ["aliases (*name) are not taken"],
        ),
        ("objective: time", "objctive: time", ["unknown key 'objctive'", "nearest: objective"]),
        ("sequence:", "seqence:", ["workload.train: unknown key 'seqence'", "nearest: sequence"]),
        ("2048", "0", ["workload.train.sequence: got 0", "allowed 1 to 1e8"]),
        ("1e9", "1e30", ["workload.train.tokens: got '1e30'", "allowed 1 to 1e17"]),
        ("1e9", "-1e9", ["workload.train.tokens: got '-1e9'"]),
        ("1.2", "0.5", ["site.pue: got 0.5, allowed 1 to 5"]),
        ("kWh, pue", "kW, pue", ["site.electricity", "unknown unit 'USD/kW'"]),
        ("400 g/kWh", "400 TFLOPS", ["site.carbon", "'FLOPS' is ambiguous"]),
        ("dgx-h100", "dgx-h1000", ["candidates.0.system", "'dgx-h1000'", "nearest: dgx-h100"]),
        ("devices: 8", "devices: 12", ["candidates.0.devices", "not whole nodes of 8", "8, 16"]),
        ("devices: 8", "devices: 1e6", ["candidates.0.devices", "at most"]),
        ("./small.json", "llama-3.1-70", ["workload.model", "'llama-3.1-70'", "llama-3.1-70b"]),
        ("./small.json", "./none.json", ["workload.model: no such file", "none.json"]),
        ("bf16", "bf17", ["workload.train.precision: got 'bf17'", "nearest: bf16"]),
        (
            "precision: bf16",
            "precision: bf16, software: megatrn",
            ["workload.train.software", "'megatrn'", "nearest"],
        ),
        (
            "precision: bf16",
            "precision: bf16, tensor: 3",
            ["workload.train: the layout does not divide", "tensor 3"],
        ),
        (
            "precision: bf16",
            "precision: bf16, tensor: 8, pipeline: 4",
            ["workload.train: the layout does not divide", "pipeline 4"],
        ),
        (
            "precision: bf16",
            "precision: bf16, data: 8, micro_batch: 16",
            ["workload.train: the layout does not divide", "global batch 64"],
        ),
        ("train:", "serve:", ["unknown key 'tokens'", "workload.serve.input: is missing"]),
    ],
)
def test_a_bad_scenario_is_refused_in_one_message(
    cli: Cli, folder: Path, old: str | None, new: str, told: list[str]
) -> None:
    """`new` in place of `old` in the good scenario, or alone."""
    good = (folder / "good.yaml").read_text()
    assert old is None or old in good
    path = folder / "bad.yaml"
    path.write_text(new if old is None else good.replace(old, new))
    refused(cli("plan", path), "bad.yaml", *told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("", ["small.json"]),
        ("{", ["small.json"]),
        ("[1, 2]", ["small.json"]),
        ('{"a": 1}', ["small.json", "model_type"]),
        ({"model_type": "lama"}, ["small.json", "'lama'", "nearest: llama"]),
        ({"hidden_size": None}, ["small.json", "hidden_size"]),
        ({"hidden_size": -2048}, ["small.json", "hidden_size", "-2048"]),
        ({"num_hidden_layers": "many"}, ["small.json", "num_hidden_layers", "many"]),
    ],
)
def test_a_bad_config_is_refused_in_one_message(
    cli: Cli, folder: Path, change: str | dict[str, Any], told: list[str]
) -> None:
    """The text of the file, or keys changed in the good one (None: left out)."""
    path = folder / "small.json"
    if isinstance(change, dict):
        config = json.loads(path.read_text()) | change
        change = json.dumps({key: value for key, value in config.items() if value is not None})
    path.write_text(change)
    for words in (("plan", folder / "good.yaml"), ("show", path)):
        refused(cli(*words), *told)


def test_files_of_the_wrong_kind(cli: Cli, folder: Path) -> None:
    binary = folder / "scenario.bin"
    binary.write_bytes(os.urandom(16) + b"\x00\xff\xfe")
    for verb in ("plan", "train", "serve", "roofline", "cite"):
        refused(cli(verb, folder), "is a directory")
        refused(cli(verb, binary), "scenario.bin")
        refused(cli(verb, folder / "god.yaml"), "no such file", "good.yaml")
    refused(cli("show", folder / "none.json"), "none.json")
    refused(cli("show", folder), str(folder))


def test_settings_and_options(cli: Cli, folder: Path) -> None:
    good = folder / "good.yaml"
    refused(cli("plan", good, "--set", "site.pu=1.3"), "--set site.pu", "unknown key 'pu'", "nearest: pue")
    refused(cli("plan", good, "--set", "site.pue"), "expected path=value")
    refused(cli("plan", good, "--set", "candidates.3.devices=8"), "candidates has 1 entry")
    refused(cli("plan", good, "--set", "candidates.0.devices=0"), "--set candidates.0.devices", "got 0")
    refused(cli("plan", good, "--catalog", folder / "nowhere"), "nowhere")
    refused(
        cli("train", good, "--set", "workload.train=", "--set", "workload.serve={input: 10, output: 5}"),
        "needs `train`",
    )
    refused(cli("serve", good), "needs `serve`")
    refused(cli("plan"), "SCENARIO")
    refused(cli("plam", good), "plam")
    refused(cli("plan", good, "--jsn"), "--jsn")
    refused(cli("list", "systms"), "'systms'", "systems")
    refused(cli("show", "dgx-h1000"), "dgx-h1000", "dgx-h100")
    refused(cli("show", folder / "small.json", "--kv", "fp9"), "--kv", "fp9", "fp8")
    refused(cli("show", folder / "small.json", "--context", "-5"), "--context", "-5")
    refused(cli("validate", "trainin", good), "trainin", "training")
    refused(cli("validate", "training", folder / "none.csv"), "none.csv")


def test_an_infeasible_plan_exits_3_with_the_reasons_counted(cli: Cli, folder: Path) -> None:
    good = folder / "good.yaml"
    late = cli("plan", good, "--set", "limits.deadline=1 min")
    refused(late, "no feasible plan", "deadline", "layouts rejected", "dgx-h100 x 8: best layout", code=3)
    full = cli(
        "plan", good, "--set", "candidates=[{system: t4-8, devices: 1}]", "--set", "workload.train.precision=fp16"
    )
    refused(full, "memory", "t4-8 x 1: out of memory", "t4 has", code=3)
    dear = cli("plan", good, "--set", "limits.budget=0.01 USD")
    refused(dear, "budget", "costs", code=3)
    hot = cli("plan", good, "--set", "limits.power=100 W")
    refused(hot, "power", "draws", "limit 100 W", code=3)


def test_output_files_are_whole_or_not_there(cli: Cli, folder: Path) -> None:
    good, out = folder / "good.yaml", folder / "answer.json"
    before = sorted(item.name for item in folder.iterdir())
    refused(cli("plan", good, "--out", out, "--json", "--set", "limits.deadline=1 min"), code=3)
    assert sorted(item.name for item in folder.iterdir()) == before
    out.write_text("precious")
    refused(cli("plan", good, "--out", out, "--json", "--set", "site.pue=0"))
    assert out.read_text() == "precious"
    refused(cli("plan", good, "--out", folder / "no" / "x.json"), "no such directory")
    refused(cli("plan", good, "--out", folder), "is a directory")
    refused(cli("plan", good, "--out", folder / ("x" * 300)), "cannot be written")
    done = cli("plan", good, "--out", out, "--json")
    assert (done.code, done.out) == (0, "")
    assert json.loads(out.read_text())["schema_version"] == 1
    assert sorted(item.name for item in folder.iterdir()) == sorted([*before, "answer.json"])


def test_an_unwritable_file_is_known_before_computing(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("computed before checking the output")

    monkeypatch.setattr("ridgeline.scenario.plan", fail)
    refused(cli("plan", folder / "good.yaml", "--out", folder / "no" / "x.json"), "no such directory")


def test_an_interrupt_exits_130_and_a_fault_of_ours_exits_1(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("ridgeline.scenario.plan", interrupt)
    stopped = cli("plan", folder / "good.yaml", "--out", folder / "x.json")
    assert (stopped.code, stopped.out, stopped.err.strip()) == (130, "", "interrupted")
    assert not (folder / "x.json").exists()
    monkeypatch.setattr("ridgeline.scenario.plan", fault)
    ours = cli("plan", folder / "good.yaml")
    assert ours.code == 1
    assert "internal error" in ours.err
    assert "Traceback" not in ours.err
    monkeypatch.setenv("RIDGELINE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["plan", str(folder / "good.yaml")])


def test_a_serving_layout_that_does_not_divide(cli: Cli, folder: Path) -> None:
    served = ["--set", "workload.train=", "--set", "workload.serve.input=512", "--set", "workload.serve.output=64"]
    good = folder / "good.yaml"
    refused(cli("plan", good, *served, "--set", "workload.serve.tensor=3"), "workload.serve", "16 attention heads")
    many = cli("plan", good, *served, "--set", "workload.serve.tensor=8", "--set", "workload.serve.replicas=4")
    refused(many, "workload.serve: the layout does not divide", "replica 4 does not divide 8 devices")
    slow = cli("plan", good, *served, "--set", "workload.serve.tpot_p95=1 us")
    refused(slow, "no feasible plan", "time per output token", code=3)


def test_an_interrupt_prints_what_was_found_so_far(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ridgeline.search.training as search

    calls = []
    original = search._try_sizes

    def second_is_interrupted(*words: Any) -> Any:
        calls.append(words)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*words)

    monkeypatch.setattr(search, "_try_sizes", second_is_interrupted)
    result = cli("plan", folder / "good.yaml", "--set", "candidates.0.devices=[8, 16]", "--json")
    assert result.code == 130
    data = json.loads(result.out)
    assert [row["devices"] for row in data["rows"]] == [8]
    assert data["unsearched"] == ["dgx-h100 x 16"]
    assert result.err == "interrupted\n"
