"""References between records: what a record names must exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ridgeline.catalog.shelf import Shelf
from ridgeline.errors import few, nearest_names

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


def clashes(shelf: Shelf, records: Mapping[str, Mapping[str, Record]]) -> list[str]:
    """One sentence for each alias in `records` that already stands for something else on the shelf."""
    found = []
    for kind, group in records.items():
        aliases = shelf.aliases(kind)
        for record in group.values():
            for alias in record.get("aliases", ()):
                taken = alias if shelf.get(kind, alias) is not None or alias in group else aliases.get(alias)
                if taken is not None and taken != record["id"]:
                    found.append(f"{record['file']}: aliases: {alias!r} already stands for {taken!r}")
    return found


def odd_laws(shelf: Shelf, records: Mapping[str, Mapping[str, Record]]) -> list[str]:
    """One sentence for each law in `records` that no kernel could use: its family, parameters or signs are unknown.

    The shipped laws are the measure: a law has all parameters of some law of its family there, none that no law of
    the family has, and is above zero where all of them are.
    """
    if not records.get("efficiency"):
        return []
    known: dict[str, list[dict[str, float]]] = {}
    for id in shelf.ids("efficiency"):
        for key, law in (shelf.get("efficiency", id) or {}).get("facts", {}).items():
            known.setdefault(_family(key), []).append(law["value"])
    found = []
    for record in records["efficiency"].values():
        for key, law in record["facts"].items():
            place = f"{record['file']}: laws.{key}"
            if _family(key) not in known:
                near = nearest_names(_family(key), known) or list(known)
                found.append(f"{place}: unknown family {_family(key)!r}; nearest: {', '.join(near)}")
            else:
                found += [f"{place}.parameters: {text}" for text in _odd_parameters(law["value"], known[_family(key)])]
    return found


def _family(key: str) -> str:
    return key.partition(".")[0]


def _odd_parameters(given: Mapping[str, float], laws: list[dict[str, float]]) -> Iterator[str]:
    names = {name for law in laws for name in law}
    for name, value in given.items():
        signs = [law[name] for law in laws if name in law]
        if name not in names:
            near = nearest_names(name, names) or few(sorted(names), 8)
            yield f"unknown {name!r}; nearest: {', '.join(near)}"
        elif min(signs) >= 0 and (value < 0 or (value == 0 and min(signs) > 0)):
            yield f"{name}: got {value:g}, expected {'above zero' if min(signs) > 0 else 'zero or more'}"
    if not any(law.keys() <= given.keys() for law in laws):
        lacking = min((sorted(law.keys() - given.keys()) for law in laws), key=len)
        yield f"missing {', '.join(lacking)}"


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
    elif kind in ("prices", "efficiency"):
        for key, target in (("device", "devices"), ("system", "systems")):
            if record.get(key):
                yield target, record[key], key


def _label_references(record: Record) -> Iterator[tuple[str, str, str]]:
    """What a label names, in general and in the rows of single sources."""
    targets = {"device": "devices", "cpu": "devices", "system": "systems"}
    for place, entry in ((record["id"], record), *record.get("by_source", {}).items()):
        for key, target in targets.items():
            if entry.get(key):
                yield target, entry[key], f"{place}: {key}"
