"""Verbs beside plan, and how answers leave the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ridgeline
from ridgeline.catalog import RECORD_KINDS
from ridgeline.cli.listing import KINDS

Cli = Any  # the fixture `cli` of conftest.py


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").out.strip() == ridgeline.__version__
    verbs = ("plan", "train", "serve", "roofline", "list", "show", "cite", "validate", "calibrate")
    text = cli("--help").out
    assert [verb for verb in verbs if f"  {verb} " not in text] == []
    for verb in verbs:
        assert cli(verb, "--help").code == 0


def test_no_verb_is_answered_with_help_and_nothing_else(cli: Cli) -> None:
    result = cli()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: ridgeline")
    assert "error" not in result.err


def test_help_of_list_names_every_kind() -> None:
    assert set(KINDS.split(", ")) == set(RECORD_KINDS) - {"labels"}


def test_list_names_everything_of_a_kind(cli: Cli) -> None:
    text = cli("list", "systems").out
    assert "dgx-h100" in text
    data = json.loads(cli("list", "systems", "--json").out)
    assert data["schema_version"] == 1
    assert f"{len(data['records'])} systems" in text
    assert {"id", "name", "aliases"} == set(data["records"][0])


def test_show_prints_figures_with_kind_and_source(cli: Cli, folder: Path) -> None:
    system = cli("show", "dgx-h100").out
    assert "node_power" in system
    assert "10.2 kW" in system
    assert "USD/h" in system
    device = cli("show", "tpu-v5p").out
    assert "no source gives: " in device
    assert "chip.memory_bandwidth" in device
    assert "tdp_w" in device
    model = json.loads(cli("show", folder / "small.json", "--context", "4096", "--kv", "fp8", "--json").out)
    # 16 layers x 2 x 8 key heads x 128, one byte each
    assert model["kv_bytes_per_token"] == 16 * 2 * 8 * 128
    assert model["state_bytes_per_sequence"] == 0
    # embeddings and head 2 x 32000 x 2048; a layer: q and o 2048^2, k and v 2048 x 1024, 3 x 2048 x 8192, two norms
    layer = 2 * 2048**2 + 2 * 2048 * 1024 + 3 * 2048 * 8192 + 2 * 2048
    assert model["parameters_count"] == 2 * 32000 * 2048 + 16 * layer + 2048


def test_output_into_files_and_devices(cli: Cli, folder: Path) -> None:
    text = folder / "answer.txt"
    assert cli("plan", folder / "good.yaml", "--out", text).out == ""
    assert "\x1b" not in text.read_text()
    assert "dgx-h100 x 8" in text.read_text()
    assert cli("list", "links", "--out", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    text.chmod(0o640)
    cli("list", "links", "--out", text)
    assert text.stat().st_mode & 0o777 == 0o640


def run_in_shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell line with `ridgeline` as this interpreter's."""
    command = line.replace("ridgeline ", f"{sys.executable} -m ridgeline ", 1)
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("options", ["", " --json"])
def test_a_reader_that_stops_early_does_no_harm(options: str) -> None:
    done = run_in_shell(f"ridgeline list devices{options} | head -1")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_and_a_narrow_encoding() -> None:
    full = run_in_shell("ridgeline list links > /dev/full")
    assert full.returncode == 2
    assert full.stderr.startswith("error: the answer cannot be written")
    narrow = run_in_shell("ridgeline show dgx-h100", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (narrow.returncode, narrow.stderr) == (0, "")
