"""Where an answer goes: files are whole or untouched, devices and links stay what they are, streams may be closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_bad_input import refused

import ridgeline.validation
from ridgeline.files import whole_file
from ridgeline.validation import run

Cli = Any  # the fixture `cli` of conftest.py

CASES = Path(ridgeline.validation.__file__).parent / "cases"


def test_of_a_link_the_file_behind_it_is_replaced(cli: Cli, folder: Path) -> None:
    file, link, dangling = folder / "file", folder / "link", folder / "dangling"
    file.write_text("old")
    link.symlink_to(file)
    dangling.symlink_to(folder / "new")
    for name in (link, dangling):
        assert cli("list", "links", "--json", "--out", name).code == 0
        assert name.is_symlink()
        assert json.loads(name.read_text())["kind"] == "links"
    assert file.read_text() == link.read_text()
    circle = folder / "circle"
    circle.symlink_to(circle)
    refused(cli("list", "links", "--out", circle), f"--out {circle}: cannot be written")


def test_a_device_is_never_replaced(cli: Cli, tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(fifo, "--rows") as write:
            write("text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    assert fifo.is_fifo()
    refused(cli("list", "links", "--out", "/dev/full"), "--out /dev/full: cannot be written: No space left on device")


def test_rows_are_whole_or_not_there(cli: Cli, folder: Path) -> None:
    rows = folder / "rows.csv"
    rows.write_text("precious")
    refused(cli("validate", "training", folder / "none.csv", "--rows", rows), "none.csv")
    assert rows.read_text() == "precious"
    refused(cli("validate", "training", "--rows", folder), f"--rows {folder}: is a directory")
    refused(cli("validate", "training", "--rows", folder / "no" / "x"), "no such directory")
    refused(cli("validate", "training", "--rows", folder / ("x" * 300)), "cannot be written")
    refused(cli("validate", "training", "--rows", rows, "--out", rows), "the same file")
    refused(cli("validate", "--rows", rows), "--rows: needs a kind")
    refused(cli("validate", "training", "--training", rows), "--training: only memory rows")
    assert rows.read_text() == "precious"
    head = "".join((CASES / "memory.csv").read_text().splitlines(keepends=True)[:4])
    (folder / "few.csv").write_text(head)
    run("memory", str(folder / "few.csv"), training=str(CASES / "training.csv"), rows=str(rows))
    assert rows.read_text().startswith("id,measured,predicted")
    assert sorted(item.name for item in folder.iterdir()) == ["few.csv", "good.yaml", "rows.csv", "small.json"]


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """A shell line with `ridgeline` as this interpreter's."""
    command = line.replace("ridgeline ", f"{sys.executable} -m ridgeline ", 1)
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("verb", ["list links", "list links --json"])
def test_closed_streams(verb: str, folder: Path) -> None:
    closed = shell(f"ridgeline {verb} >&-")
    assert closed.returncode == 2
    assert closed.stderr.startswith("error: standard output is closed")
    silent = shell(f"ridgeline {verb} 2>&-")
    assert (silent.returncode, silent.stderr) == (0, "")
    assert "nvlink4" in silent.stdout
    wrong = shell("ridgeline list nothing 2>&-")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    planned = shell(f"ridgeline plan {folder / 'good.yaml'} 2>&-")
    assert planned.returncode == 0


def test_messages_move_no_cursor(cli: Cli) -> None:
    result = cli("show", "\x1b[31mred\x07")
    refused(result, "red")
    result = cli("plan", "a\x00b\x1b[2J.yaml")
    refused(result, "a\\x00b\\x1b[2J.yaml")
    assert all(sign.isprintable() or sign == "\n" for sign in result.err)


def test_what_the_system_refuses_is_told_with_its_name(cli: Cli) -> None:
    refused(cli("list", "links", "--catalog", "x" * 300), "x" * 300, "File name too long")


def test_no_arguments_is_the_help(cli: Cli) -> None:
    result = cli()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: ridgeline")
