"""`ridgeline serve` where only pools of prefill and decode engines keep the limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ridgeline.cli import run

LOAD = {
    "input": 4000,
    "output": 1000,
    "rate": "4 1/s",
    "ttft_p95": "2 s",
    "tpot_p95": "6.8 ms",
    "precision": "fp8",
    "sizing": {"simulate": False},
}


def test_pools_answer_where_engines_that_do_everything_do_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "workload": {"model": "qwen3-32b", "serve": LOAD},
                "candidates": [{"system": "dgx-h200", "devices": 32}],
                "objective": "devices",
            }
        )
    )
    assert run(["serve", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rows"] == []
    assert [option["mode"] for option in answer["sizing"]["options"]] == ["disaggregated"]
    assert run(["serve", str(path)]) == 0
    text = capsys.readouterr().out
    assert "engines that do everything: " in text
    assert "1: " in text
    assert max(map(len, text.splitlines())) <= 120
    only = "workload.serve.sizing.pools=aggregated"
    assert run(["serve", str(path), "--set", only]) == 3
    assert "above the limit of 6.80 ms" in capsys.readouterr().err
