"""A command line to call, a small model and a scenario that works: bad inputs are made from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ridgeline.cli import run

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
SCENARIO = """\
workload:
  model: ./small.json
  train: {tokens: 1e9, sequence: 2048, global_batch: 64, precision: bf16}
candidates:
  - {system: dgx-h100, devices: 8}
site: {electricity: 0.09 USD/kWh, pue: 1.2, carbon: 400 g/kWh}
objective: time
"""


@dataclass(frozen=True)
class Result:
    """What one command line did."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `ridgeline` with the given words."""
    monkeypatch.delenv("RIDGELINE_DEBUG", raising=False)

    def call(*words: object) -> Result:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `small.json` and a working `good.yaml`."""
    (tmp_path / "small.json").write_text(json.dumps(CONFIG))
    (tmp_path / "good.yaml").write_text(SCENARIO)
    return tmp_path
