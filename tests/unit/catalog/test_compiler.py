"""Every mistake in a file is refused with file, key path, what was found and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ridgeline.catalog.compiler import compile_folder, compile_record
from ridgeline.errors import BadFact

DEVICE = """
id: chip
vendor: Maker
kind: gpu
architecture: hopper
facts:
  memory_bandwidth: {v: 2 TB/s, kind: datasheet, src: lab}
"""


def compile_device(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "data" / "devices" / "chip.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return compile_folder(tmp_path / "data")["devices"]["chip"]


def test_good_file_is_flattened_to_si(tmp_path: Path) -> None:
    record = compile_device(tmp_path, DEVICE)
    assert record["facts"] == {
        "memory_bandwidth": {"value": 2e12, "written": "2 TB/s", "unit": "B/s", "kind": "datasheet", "src": ["lab"]}
    }
    assert record["file"] == "data/devices/chip.yaml"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory_bandwidth:", "memory_bandwith:", r"facts\.memory_bandwith: unknown fact; nearest: memory_bandwidth"),
        ("vendor:", "vender:", r"vender: unknown key; nearest: vendor; allowed: aliases, architecture"),
        ("kind: gpu", "kind: gpuu", r"kind: got 'gpuu': input should be 'gpu'"),
        ("architecture: hopper", "architecture: hoper", r"architecture: got 'hoper'; nearest: hopper"),
        ("kind: datasheet", "kind: datasheets", r"facts\.memory_bandwidth\.kind: got 'datasheets': .*'datasheet'"),
        (", src: lab", "", r"facts\.memory_bandwidth: .*kind datasheet needs `src`"),
        ("kind: datasheet, src: lab", "kind: unsourced, src: lab", r"unsourced contradicts `src`"),
        ("kind: datasheet", "kind: assumed", r"kind assumed needs why, lo, hi"),
        ("kind: datasheet", "kind: derived", r"kind derived needs `from`"),
        ("2 TB/s", "2 TB", r"facts\.memory_bandwidth: got '2 TB': 'TB' is a unit of bytes, expected a bandwidth"),
        ("2 TB/s", "2 KB/s", r"'KB' is ambiguous|unknown unit 'KB/s'"),
        ("2 TB/s", "2 MB/s", r"outside the plausible range 1e\+08 \.\. 3e\+16 B/s"),
        ("2 TB/s", "fast", r"got 'fast', expected a bandwidth"),
        ("src: lab", "src: lab, sorce: x", r"facts\.memory_bandwidth\.sorce: unknown key"),
        ("src: lab", "src: lab, lo: 3 TB/s, hi: 4 TB/s", r"lies outside its own range"),
        ("src: lab", "src: Lab Notes", r"facts\.memory_bandwidth\.src"),
        ("id: chip", "id: Chip One", r"id: got 'Chip One'"),
        ("vendor: Maker\n", "", r"missing vendor"),
        ("id: chip", "id: chip\nid: chop", r"key given twice: id"),
        ("facts:", "facts: [", r"not readable as YAML: .*line \d+"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = DEVICE.replace(old, new)
    assert text != DEVICE
    with pytest.raises(BadFact, match=message) as caught:
        compile_device(tmp_path, text)
    assert str(caught.value).startswith("data/devices/chip.yaml")


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadFact) as caught:
        compile_device(tmp_path, DEVICE.replace("kind: gpu", "kind: gpuu\ncolour: red"))
    assert len(str(caught.value).splitlines()) == 2


def test_free_facts_need_a_known_dimension(tmp_path: Path) -> None:
    more = "more:\n  burst: {v: 3 us, dim: tim, kind: measured, src: lab}\n"
    with pytest.raises(BadFact, match=r"more\.burst: dim: unknown dimension 'tim'; nearest: time"):
        compile_device(tmp_path, DEVICE + more)
    twice = "more:\n  memory_bandwidth: {v: 3, kind: measured, src: lab}\n"
    with pytest.raises(BadFact, match="already given under facts"):
        compile_device(tmp_path, DEVICE + twice)
    ranged = "more:\n  note: {v: text, kind: measured, src: lab, lo: 1, hi: 2}\n"
    with pytest.raises(BadFact, match="which is no number"):
        compile_device(tmp_path, DEVICE + ranged)


def test_folder_shape(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "gadgets").mkdir(parents=True)
    with pytest.raises(BadFact, match="gadgets: not a kind of record"):
        compile_folder(root)
    (root / "gadgets").rmdir()
    (root / "stray.yaml").write_text("id: x\n")
    with pytest.raises(BadFact, match=r"stray\.yaml: put it into the folder of its kind"):
        compile_folder(root)


def test_ids_are_unique_within_a_kind(tmp_path: Path) -> None:
    compile_device(tmp_path, DEVICE)
    (tmp_path / "data/devices/other.yaml").write_text(DEVICE)
    with pytest.raises(BadFact, match=r"other\.yaml: id 'chip' is also in data/devices/chip\.yaml"):
        compile_folder(tmp_path / "data")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("systems", {"id": "s", "chip": "c", "devices_per_node": 8}, "missing src"),
        (
            "systems",
            {
                "id": "s",
                "chip": "c",
                "devices_per_node": 8,
                "src": "lab",
                "levels": [{"name": "n", "kind": "switch", "link": "l", "oversubscription": 0.5}],
            },
            r"levels\.n\.oversubscription: got 0\.5, expected >= 1",
        ),
        (
            "prices",
            {"id": "p", "prices": [{"term": "on-demand", "v": "1 USD/h", "kind": "secondary", "src": "lab"}]},
            "a price needs `date`",
        ),
        (
            "prices",
            {
                "id": "p",
                "prices": [{"term": "purchase", "v": "1 USD/h", "kind": "secondary", "src": "x", "date": "2024"}],
            },
            "expected a money",
        ),
        ("efficiency", {"id": "e", "level": "device"}, "level device needs `device`"),
        ("models", {"id": "m", "src": "lab"}, "missing config"),
        ("sources", {"id": "s", "title": "t", "kind": "book", "trust": "maker"}, "kind: got 'book'"),
        ("links", ["not", "a", "map"], "expected keys such as `id:`"),
        ("devices", None, "expected keys such as `id:`"),
    ],
)
def test_other_kinds(kind: str, content: object, message: str) -> None:
    with pytest.raises(BadFact, match=message):
        compile_record(kind, content, "file.yaml")


def test_a_record_without_a_key_says_which_not_that_it_is_a_dict() -> None:
    content = {"id": "mine", "name": "Mine", "chip": "h100-sxm5-80", "devices_per_node": 8, "levels": []}
    with pytest.raises(BadFact) as caught:
        compile_record("systems", content, "own/systems/mine.yaml")
    assert "own/systems/mine.yaml: missing src" in str(caught.value)
