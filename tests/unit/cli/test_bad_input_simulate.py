"""Traces and options of `simulate` that cannot be: one message that names the place, and what would be taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_bad_input import refused

Cli = Any  # the fixture `cli` of conftest.py

HEAD = b"arrived_at,num_prefill_tokens,num_decode_tokens\n"
SERVING = """\
workload:
  model: llama-3.1-8b
  serve: {input: 512, output: 128, rate: 2 1/s, precision: bf16}
candidates:
  - {system: dgx-h100, devices: 1}
simulate: {requests: 50}
"""


def _scenario(tmp_path: Path) -> Path:
    path = tmp_path / "serving.yaml"
    path.write_text(SERVING)
    return path


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a,b\n1,2\n", ["line 1", "'a, b'", "arrived_at,num_prefill_tokens,num_decode_tokens"]),
        (HEAD + b"2,100,10\n1,200,10\n", ["line 3", "sort the file by its times"]),
        (HEAD + b"0,nan,10\n", ["line 2", "num_prefill_tokens is 'nan'"]),
        (HEAD + b"nan,10,10\n", ["line 2", "arrived_at is 'nan'"]),
        (HEAD + b"0,0,10\n", ["line 2", "without input tokens (0), allowed 1 or more"]),
        (HEAD, ["has a header but no requests"]),
        (b"", ["is empty; expected a header"]),
        (b"\x1f\x8b\x08\x00", ["line 1", "is not UTF-8 text", "unpack a compressed one"]),
    ],
)
def test_a_trace_that_cannot_be(cli: Cli, tmp_path: Path, content: bytes, told: list[str]) -> None:
    (tmp_path / "trace.csv").write_bytes(content)
    setting = f"workload.serve.traffic.trace={tmp_path / 'trace.csv'}"
    refused(cli("simulate", _scenario(tmp_path), "--set", setting), *told)


def test_a_trace_that_is_a_folder(cli: Cli, tmp_path: Path) -> None:
    setting = f"workload.serve.traffic.trace={tmp_path}"
    refused(cli("simulate", _scenario(tmp_path), "--set", setting), "is a directory, expected a trace file")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("workload.serve.rate=2ms", ["'ms' is a unit of time", "expected a rate"]),
        ("workload.serve.batching.max=4", ["workload.serve.batching", "use workload.serve.scheduler"]),
        ("simulate.warm_up=1", ["simulate.warm_up", "0.95"]),
        ("workload.serve.scheduler.draft_tokens=3", ["needs accepted beside it"]),
        ("workload.serve.scheduler.prefill_replicas=1", ["got 1, but there is 1 replica in all and some must decode"]),
    ],
)
def test_options_that_contradict(cli: Cli, tmp_path: Path, setting: str, told: list[str]) -> None:
    refused(cli("simulate", _scenario(tmp_path), "--set", setting), *told)


def test_limits_that_are_kept_are_not_remarked(cli: Cli, tmp_path: Path) -> None:
    words = ("simulate", _scenario(tmp_path), "--set", "simulate.requests=60", "--set", "simulate.replications=1")
    quick = cli(*words, "--set", "workload.serve.latency_p95=1 d", "--json")
    assert quick.code == 0
    assert "keep the limit of" not in quick.out
