"""References between records: what a record names must exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ridgeline.catalog.shelf import Shelf
from ridgeline.errors import nearest_names

Record = dict[str, Any]


def dangling(shelf: Shelf, records: Mapping[str, Mapping[str, Record]]) -> list[str]:
    """One sentence for each name in `records` that stands for nothing on the shelf."""
    found = []
    for kind, group in records.items():
        for record in group.values():
            for target, name, place in _references(kind, record):
                if shelf.get(target, name) is None and name not in shelf.aliases(target):
                    near = nearest_names(name, shelf.ids(target))
                    hint = f"; nearest: {', '.join(near)}" if near else ""
                    found.append(f"{record['file']}: {place}: unknown {target.removesuffix('s')} {name!r}{hint}")
    return found


def all_dangling(shelf: Shelf) -> list[str]:
    """As `dangling`, for everything on the shelf."""
    from ridgeline.catalog.records import RECORD_KINDS

    records = {kind: {id: shelf.get(kind, id) or {} for id in shelf.ids(kind)} for kind in RECORD_KINDS}
    return dangling(shelf, records)


def _references(kind: str, record: Record) -> Iterator[tuple[str, str, str]]:
    """Everything that a record names: (kind of the target, name, place in the file)."""
    for name in record.get("src", ()):
        yield "sources", name, "src"
    for key, fact in record.get("facts", {}).items():
        for name in fact.get("src") or ():
            yield "sources", name, f"{key}.src"
    facts = record.get("facts", {})
    if kind == "devices":
        for key in ("scale_up_link", "host_link"):
            if key in facts:
                yield "links", facts[key]["value"], f"facts.{key}"
    elif kind == "systems":
        yield "devices", record["chip"], "chip"
        for name in record.get("default_for", ()):
            yield "devices", name, "default_for"
        for level in record.get("levels", ()):
            yield "links", level["link"], f"levels.{level['name']}.link"
    elif kind == "labels":
        yield from _label_references(record)
    elif kind in ("prices", "efficiency") and record.get("device"):
        yield "devices", record["device"], "device"


def _label_references(record: Record) -> Iterator[tuple[str, str, str]]:
    """What a label names, in general and in the rows of single sources."""
    targets = {"device": "devices", "cpu": "devices", "system": "systems"}
    for place, entry in ((record["id"], record), *record.get("by_source", {}).items()):
        for key, target in targets.items():
            if entry.get(key):
                yield target, entry[key], f"{place}: {key}"
