"""A load that a machine cannot carry: the nearest layout, what it holds, and a number of devices that does carry it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

Cli = Any  # the fixture `cli` of conftest.py
QUESTION = """\
workload:
  model: llama-3.1-70b
  serve: {{input: 1024, output: 256, {load}, ttft_p95: 1 s, tpot_p95: {tpot}, precision: bf16}}
candidates:
  - {{system: dgx-h100, devices: {devices}}}
objective: time
"""


def asked(cli: Cli, folder: Path, load: str, devices: int = 8, tpot: str = "60 ms") -> Any:
    path = folder / "serve.yaml"
    path.write_text(QUESTION.format(load=load, devices=devices, tpot=tpot))
    return cli("plan", path)


@pytest.mark.parametrize("load", ["rate: 40 1/s", "concurrency: 1000"])
def test_the_size_that_is_named_carries_the_load(cli: Cli, folder: Path, load: str) -> None:
    small = asked(cli, folder, load)
    assert small.code == 3
    named = re.search(r"about ([\d,]+) devices would do", small.err)
    assert named is not None
    devices = int(named[1].replace(",", ""))
    whole_nodes = 8 * math.ceil(devices / 8)
    assert asked(cli, folder, load, whole_nodes).code == 0
    assert asked(cli, folder, load, 8 * (whole_nodes // 16)).code == 3  # half of it does not


def test_what_the_machine_holds_is_within_its_limits(cli: Cli, folder: Path) -> None:
    small = asked(cli, folder, "rate: 40 1/s")
    held = re.search(r"holds at most ([\d.]+) requests/s", small.err)
    assert held is not None
    assert asked(cli, folder, f"rate: {1.05 * float(held[1])} 1/s").code == 3
    assert asked(cli, folder, f"rate: {0.7 * float(held[1])} 1/s").code == 0


def test_the_nearest_layout_is_the_one_that_lacks_least(cli: Cli, folder: Path) -> None:
    """At saturation tp4 x2 carries 20 of 40 a second but is 2.7 times too slow a token; tp2 x4 carries 8 of 40."""
    text = asked(cli, folder, "rate: 40 1/s").err
    assert "nearest layout tp4 x2" in text
    assert "2 replicas" in text


def test_limits_that_nothing_keeps_are_said_so(cli: Cli, folder: Path) -> None:
    text = asked(cli, folder, "rate: 1 1/s", tpot="0.1 ms").err
    assert "no load, however small, keeps the limits on this machine" in text
    assert "would do" not in text
