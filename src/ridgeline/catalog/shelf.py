"""Compiled records on disk: one file, an index in its first line, one line a record after it.

Only the index is parsed when the catalogue opens; a record is parsed when it is asked for. In a checkout the file
is made again whenever a YAML file (or the code that reads YAML) has changed; in an installed package it is marked
`frozen` by the build and taken as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ridgeline.catalog.records import RECORD_KINDS

FORMAT = 1
PACKAGE = Path(__file__).parent
DATA = PACKAGE / "data"
COMPILED = PACKAGE / "catalog.jsonl"
# Facts that say something about another one: a record that changes the first does not inherit the others.
FOLLOWS = {"memory_capacity": ("memory_usable",)}
_READERS = ("compiler.py", "schema.py", "fields.py", "records.py", "shelf.py")

Record = dict[str, Any]


class Shelf:
    """Compiled records by kind and id, from the compiled file and from overlays put on top of it."""

    def __init__(self, blob: bytes = b"{}\n") -> None:
        head, _, self._body = blob.partition(b"\n")
        header = json.loads(head)
        self._spans: dict[str, dict[str, list[int]]] = header.get("index", {})
        self._aliases: dict[str, dict[str, str]] = header.get("aliases", {})
        self._scopes: dict[str, dict[str, list[str]]] = header.get("scopes", {})
        self._records: dict[str, dict[str, Record]] = {kind: {} for kind in RECORD_KINDS}

    def ids(self, kind: str) -> list[str]:
        """All ids of a kind, sorted."""
        return sorted({*self._spans.get(kind, ()), *self._records[kind]})

    def aliases(self, kind: str) -> Mapping[str, str]:
        """Declared aliases of a kind and the ids that they stand for."""
        return self._aliases.get(kind, {})

    def get(self, kind: str, id: str) -> Record | None:
        """The record `id`, or None."""
        found = self._records[kind].get(id)
        if found is None and (span := self._spans.get(kind, {}).get(id)) is not None:
            found = self._records[kind][id] = json.loads(self._body[span[0] : span[0] + span[1]])
        return found

    def put(self, kind: str, record: Record) -> None:
        """Add or replace a record (an overlay)."""
        self._records[kind][record["id"]] = record
        self._aliases.setdefault(kind, {}).update(dict.fromkeys(record.get("aliases", ()), record["id"]))
        if (scope := scope_of(kind, record)) is not None:
            self._scopes.setdefault(kind, {})[record["id"]] = scope

    def in_scope(self, kind: str, *names: str) -> Iterator[str]:
        """Ids of prices, laws or standard systems of one of `names` (devices, systems, architectures; "*": all)."""
        wanted = set(names)
        return (id for id, scope in self._scopes.get(kind, {}).items() if wanted.intersection(scope))


def scope_of(kind: str, record: Record) -> list[str] | None:
    """What a price or law is about, and which devices a system is the standard one of, for the index."""
    if kind == "systems":
        return list(record.get("default_for", ())) or None
    if kind == "prices":
        return [name for name in (record.get("system"), record.get("device")) if name]
    if kind == "efficiency":
        return [name for name in (record.get("device"), record.get("architecture")) if name] or ["*"]
    return None


def dump(records: Mapping[str, Mapping[str, Record]], fingerprint: str = "", frozen: bool = False) -> bytes:
    """Compiled records as the bytes of a compiled file."""
    index: dict[str, dict[str, list[int]]] = {}
    aliases: dict[str, dict[str, str]] = {}
    scopes: dict[str, dict[str, list[str]]] = {}
    lines: list[bytes] = []
    offset = 0
    for kind in RECORD_KINDS:
        spans = index[kind] = {}
        for id, record in sorted(records.get(kind, {}).items()):
            line = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
            spans[id] = [offset, len(line)]
            offset += len(line)
            lines.append(line)
            if record.get("aliases"):
                aliases.setdefault(kind, {}).update(dict.fromkeys(record["aliases"], id))
            if (scope := scope_of(kind, record)) is not None:
                scopes.setdefault(kind, {})[id] = scope
    header = {
        "format": FORMAT,
        "frozen": frozen,
        "fingerprint": fingerprint,
        "index": index,
        "aliases": aliases,
        "scopes": scopes,
    }
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" + b"".join(lines)


def fingerprint(data: Path = DATA) -> str:
    """Changes whenever a YAML file, or the code that reads it, has changed (name, size, time of change)."""
    digest = hashlib.blake2b(digest_size=16)
    for name in _READERS:
        stat = (PACKAGE / name).stat()
        digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    for entry in sorted(_yaml_entries(data), key=lambda item: item.path):
        stat = entry.stat()
        digest.update(f"{entry.path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _yaml_entries(data: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(data) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _yaml_entries(Path(entry.path))
            elif entry.name.endswith((".yaml", ".yml")):
                yield entry


def shipped_blob(compiled: Path = COMPILED, data: Path = DATA) -> bytes:
    """The bytes of the compiled catalogue, made anew where it is absent or older than its YAML files."""
    blob = compiled.read_bytes() if compiled.exists() else b""
    header = json.loads(blob[: blob.find(b"\n")]) if blob else {}
    if header.get("format") == FORMAT and header.get("frozen"):
        return blob
    current = fingerprint(data)
    if header.get("format") == FORMAT and header.get("fingerprint") == current:
        return blob
    from ridgeline.catalog.compiler import compile_folder

    blob = dump(resolve_extends(compile_folder(data)), current)
    _write_quietly(compiled, blob)
    return blob


def _write_quietly(path: Path, blob: bytes) -> None:
    """Write in one step; a read-only place just means that the next start compiles again."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".catalog-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(blob)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError:  # a full disk
        Path(name).unlink(missing_ok=True)


def resolve_extends(records: dict[str, dict[str, Record]], base: Shelf | None = None) -> dict[str, dict[str, Record]]:
    """Records with `extends` filled up from the record that they start from (in `records`, else in `base`)."""
    from ridgeline.errors import BadFact, UnknownName

    def whole(kind: str, record: Record, seen: tuple[str, ...]) -> Record:
        start = record.get("extends")
        if start is None:
            return record
        own = records[kind].get(start)
        parent = own if own is not None and own is not record and start not in seen else None
        if parent is None and base is not None:
            parent = base.get(kind, start)
        if own is not None and start in seen:
            raise BadFact(f"{record['file']}: extends: {' -> '.join((*seen, start))} goes round in a circle")
        if parent is None or start in seen:
            known = {*records[kind], *(base.ids(kind) if base else ())} - {record["id"]}
            raise UnknownName(kind.removesuffix("s"), start, known, f"{record['file']}: extends")
        return merged(whole(kind, parent, (*seen, start)), record)

    return {kind: {id: whole(kind, item, ()) for id, item in group.items()} for kind, group in records.items()}


def merged(parent: Record, child: Record) -> Record:
    """`parent` with everything that `child` gives; facts merge one by one, names and standing are not inherited."""
    own = {key: value for key, value in child.items() if key not in ("facts", "extends")}
    inherited = {key: value for key, value in parent.items() if key not in ("facts", "aliases", "file", "default_for")}
    given = child.get("facts", {})
    stale = {name for key, names in FOLLOWS.items() if key in given for name in names}
    facts = {key: value for key, value in parent.get("facts", {}).items() if key not in stale} | given
    return inherited | own | {"facts": facts, "extends": child["extends"]}
