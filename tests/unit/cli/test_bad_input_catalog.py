"""A folder of one's own facts that is wrong: told with file and key, never a traceback, never taken in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.test_bad_input import refused

Cli = Any  # the fixture `cli` of conftest.py

SOURCE = "id: me\ntitle: My lab\nkind: measurement\ntrust: unverified\n"
DEVICE = """\
id: mychip
name: My chip
vendor: Me
kind: gpu
architecture: hopper
facts:
  peak_dense.bf16: {v: 500 TFLOP/s, kind: measured, src: me}
  memory_bandwidth: {v: 2 TB/s, kind: measured, src: me}
  memory_capacity: {v: 80 GB, kind: measured, src: me}
"""
SYSTEM = """\
id: mysys
chip: mychip
devices_per_node: 8
src: me
levels:
  - {name: nvlink, kind: switch, link: nvlink4, size: 8}
"""
PRICE = """\
id: myprice
system: mysys
devices: 8
prices:
  - {term: on-demand, v: 98 USD/h, date: 2024-01-01, kind: measured, src: me}
"""
LAW = """\
id: mylaws
level: device
device: mychip
laws:
  gemm.bf16:
    parameters: {compute_frac: 0.9, memory_frac: 0.8, smooth_count: 4, launch_s: 1.0e-6, edge_count: 1, row_count: 1}
    ape_p50: 0.1
    ape_p90: 0.2
    src: me
"""
FILES = {
    "sources/me.yaml": SOURCE,
    "devices/mychip.yaml": DEVICE,
    "systems/mysys.yaml": SYSTEM,
    "prices/myprice.yaml": PRICE,
    "efficiency/mylaws.yaml": LAW,
}


def folder_of(parent: Path, **changes: tuple[str, str]) -> Path:
    """The good folder, with text replaced in the files of the kinds named."""
    top = parent / "facts"
    for name, text in FILES.items():
        kind = name.partition("/")[0]
        old, new = changes.get(kind, ("", ""))
        assert old in text
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(old, new) if old else text)
    return top


def planned(cli: Cli, folder: Path, top: Path, *words: object) -> Any:
    machine = "candidates=[{system: mysys, devices: 8}]"
    return cli("plan", folder / "good.yaml", "--catalog", top, "--set", machine, *words)


def test_the_good_folder_is_good(cli: Cli, folder: Path) -> None:
    top = folder_of(folder)
    assert planned(cli, folder, top).code == 0
    assert planned(cli, folder, top, "--catalog", top).code == 0


@pytest.mark.parametrize(
    ("kind", "old", "new", "told"),
    [
        ("devices", "80 GB", "1" + "0" * 400, ["facts.memory_capacity: got 1000", "finite"]),
        ("devices", "80 GB", ".inf", ["facts.memory_capacity"]),
        ("devices", "id: mychip", "id: 2020-13-45", ["devices/mychip.yaml", "cannot be read", "line 1"]),
        ("devices", "id: mychip", "id: !!bool 5", ["devices/mychip.yaml", "cannot be read"]),
        ("devices", "id: mychip", "? [a]\n: b", ["a key must be a plain word"]),
        ("devices", "id: mychip", "? {a: 1}\n: b", ["a key must be a plain word"]),
        ("devices", "memory_bandwidth:", "memory_bandwith:", ["nearest: memory_bandwidth"]),
        ("devices", DEVICE, "", ["mychip.yaml: is empty, expected keys such as `id:`"]),
        ("devices", DEVICE, "- a", ["mychip.yaml: got ['a'], expected keys"]),
        ("devices", "{v: 80 GB, kind: measured, src: me}", "80 GB", ["got '80 GB', expected keys such as `v:`"]),
        ("devices", "name:", "aliases: [h100-sxm]\nname:", ["'h100-sxm' already stands for 'h100-sxm5-80'"]),
        ("devices", "name:", "aliases: [a2]\nname:", ["'a2' already stands for 'a2'"]),
        ("systems", "size: 8", "size: 0", ["levels.0.size: got 0"]),
        ("systems", "size: 8", "size: -8", ["levels.0.size: got -8"]),
        ("systems", "size: 8", "size: 8, axes: [2, 4]", ["axes are those of a torus, not of a switch"]),
        ("systems", "kind: switch", "kind: torus3d", ["a torus3d needs 3 axes"]),
        ("systems", "switch, link: nvlink4", "torus2d, axes: [3, 3], link: nvlink4", ["axes [3, 3] hold 9 devices"]),
        ("systems", "devices_per_node: 8", "devices_per_node: 0", ["devices_per_node: got 0"]),
        ("systems", "src: me", "src: me\nsizes: [8, 0]", ["sizes.1: got 0"]),
        ("prices", "devices: 8", "devices: 0", ["devices: got 0"]),
        ("prices", "system: mysys", "system: mysis", ["system: unknown system 'mysis'; nearest: mysys"]),
        ("prices", "2024-01-01", "yesterday", ["date 'yesterday' is no day, month or year"]),
        ("prices", "2024-01-01", "'2024-13-45'", ["date '2024-13-45'"]),
        ("efficiency", "compute_frac", "compute_fraction", ["laws.gemm.bf16.parameters", "nearest: compute_frac"]),
        ("efficiency", "row_count: 1", "", ["missing row_count"]),
        ("efficiency", "0.9", "-0.9", ["compute_frac: got -0.9, expected above zero"]),
        ("efficiency", "0.9", ".nan", ["compute_frac"]),
        ("efficiency", "gemm.bf16", "gem.bf16", ["unknown family 'gem'; nearest: gemm"]),
    ],
)
def test_a_bad_record_is_refused(cli: Cli, folder: Path, kind: str, old: str, new: str, told: list[str]) -> None:
    refused(planned(cli, folder, folder_of(folder, **{kind: (old, new)})), *told)


def test_levels_hold_whole_groups_of_the_inner_ones(cli: Cli, folder: Path) -> None:
    outer = "size: 8}\n  - {name: rail, kind: fat-tree, link: ib-ndr, size: 12}"
    refused(planned(cli, folder, folder_of(folder, systems=("size: 8}", outer))), "holds no whole groups of 8")


@pytest.mark.parametrize("chain", [("aa", "bb"), ("aa", "bb", "cc")])
def test_records_that_extend_each_other(cli: Cli, folder: Path, chain: tuple[str, ...]) -> None:
    top = folder_of(folder)
    for name, start in zip(chain, (*chain[1:], chain[0]), strict=True):
        (top / "devices" / f"{name}.yaml").write_text(f"id: {name}\nextends: {start}\n")
    refused(cli("list", "devices", "--catalog", top), "devices/aa.yaml: extends: ", "goes round in a circle")


def test_what_is_no_folder_of_facts(cli: Cli, folder: Path) -> None:
    refused(cli("list", "links", "--catalog", folder / "good.yaml"), "is a file, expected a folder")
    (folder / "other" / "device").mkdir(parents=True)
    refused(cli("list", "links", "--catalog", folder / "other"), "not a kind of record; nearest: devices", "holds")


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ("{v: fast, kind: measured, src: me}", "got 'fast', expected a number, 0 or more"),
        ("{v: 5 ms, kind: measured, src: me}", "got '5 ms', expected a number, 0 or more (a quantity"),
        ("{v: -5 ms, kind: measured, src: me, dim: time}", "got '-5 ms', expected a number, 0 or more"),
        ("{v: 5 GB, kind: measured, src: me, dim: bytes}", "got '5 GB'"),
        ("{v: true, kind: measured, src: me}", "got true"),
    ],
)
def test_facts_of_an_engine(cli: Cli, folder: Path, fact: str, told: str) -> None:
    top = folder_of(folder)
    (top / "engines").mkdir()
    (top / "engines" / "vllm.yaml").write_text(f"id: vllm\nextends: vllm\nfacts:\n  host_step: {fact}\n")
    serve = ("--set", "workload.train=", "--set", "workload.serve={input: 512, output: 64}")
    refused(planned(cli, folder, top, *serve), "engines/vllm.yaml: facts.host_step: ", told)


def test_facts_of_software_and_shares(cli: Cli, folder: Path) -> None:
    top = folder_of(folder)
    (top / "assumptions").mkdir()
    share = top / "assumptions" / "power.yaml"
    share.write_text("id: power\nextends: power\nfacts:\n  base_frac: {v: lots, kind: measured, src: me}\n")
    refused(planned(cli, folder, top), "power.base_frac: got 'lots', expected a number")
    share.unlink()
    (top / "software").mkdir()
    fact = "{v: maybe, kind: measured, src: me}"
    (top / "software" / "mine.yaml").write_text(f"id: mine\nextends: megatron-core-0.16\nfacts:\n  graphs: {fact}\n")
    result = planned(cli, folder, top, "--set", "workload.train.software=mine")
    refused(result, "software/mine.yaml: facts.graphs: got 'maybe', allowed true, false")


def test_own_laws_go_before_the_shipped_ones(cli: Cli, folder: Path) -> None:
    top = folder_of(folder, efficiency=("device: mychip", "device: h100-sxm5-80"))
    shipped = cli("plan", folder / "good.yaml", "--json").out
    own = cli("plan", folder / "good.yaml", "--json", "--catalog", top).out
    assert "mylaws.gemm.bf16" in own
    assert "mylaws.gemm.bf16" not in shipped
