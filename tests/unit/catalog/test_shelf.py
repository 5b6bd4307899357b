"""The compiled file: lazy, rebuilt when a YAML file changes, taken as it is when the build made it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ridgeline.catalog.compiler import compile_folder
from ridgeline.catalog.shelf import Shelf, dump, fingerprint, merged, resolve_extends, shipped_blob


def test_records_come_back_as_they_went_in(data: Path) -> None:
    records = resolve_extends(compile_folder(data))
    shelf = Shelf(dump(records))
    for kind, group in records.items():
        assert shelf.ids(kind) == sorted(group)
        for id, record in group.items():
            assert shelf.get(kind, id) == json.loads(json.dumps(record))
    assert shelf.get("devices", "absent") is None
    assert shelf.aliases("devices") == {"a": "chip-a"}
    assert sorted(shelf.in_scope("prices", "chip-a")) == ["cloud-box", "other-chip"]


def test_compiled_file_follows_the_yaml(data: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "catalog.jsonl"
    first = shipped_blob(compiled, data)
    stamp = compiled.stat().st_mtime_ns
    assert shipped_blob(compiled, data) == first
    assert compiled.stat().st_mtime_ns == stamp
    path = data / "devices" / "chip-a.yaml"
    path.write_text(path.read_text().replace("2 TB/s", "3 TB/s"))
    second = Shelf(shipped_blob(compiled, data)).get("devices", "chip-a")
    assert second is not None
    assert second["facts"]["memory_bandwidth"]["value"] == 3e12
    path.unlink()
    assert Shelf(shipped_blob(compiled, data)).get("devices", "chip-a") is None


def test_frozen_file_is_taken_as_it_is(data: Path, tmp_path: Path) -> None:
    compiled = tmp_path / "catalog.jsonl"
    compiled.write_bytes(dump(resolve_extends(compile_folder(data)), frozen=True))
    (data / "devices" / "chip-a.yaml").write_text("broken: [")
    assert Shelf(shipped_blob(compiled, data)).ids("devices") == ["chip-a"]


def test_read_only_place_does_not_matter(data: Path, tmp_path: Path) -> None:
    blob = shipped_blob(tmp_path / "no" / "such" / "folder" / "catalog.jsonl", data)
    assert Shelf(blob).ids("devices") == ["chip-a"]


def test_fingerprint_sees_names_and_times(data: Path) -> None:
    before = fingerprint(data)
    path = data / "devices" / "chip-a.yaml"
    os.utime(path, ns=(1, 1))
    touched = fingerprint(data)
    path.rename(path.with_name("renamed.yaml"))
    assert len({before, touched, fingerprint(data)}) == 3


def test_merged_record_keeps_what_the_child_leaves_out() -> None:
    parent = {"id": "p", "file": "p.yaml", "aliases": ["x"], "vendor": "V", "facts": {"a": 1, "b": 2}}
    child = {"id": "c", "file": "c.yaml", "extends": "p", "facts": {"b": 3}}
    assert merged(parent, child) == {
        "id": "c",
        "file": "c.yaml",
        "vendor": "V",
        "facts": {"a": 1, "b": 3},
        "extends": "p",
    }


def test_fast_path_reads_no_yaml() -> None:
    code = (
        "import sys; from ridgeline.catalog import load_catalog; load_catalog(plugins=False).system('dgx-h100');"
        "print([m for m in ('yaml', 'pydantic', 'numpy', 'pandas') if m in sys.modules])"
    )
    subprocess.run([sys.executable, "-c", "from ridgeline.catalog import load_catalog; load_catalog()"], check=True)
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
