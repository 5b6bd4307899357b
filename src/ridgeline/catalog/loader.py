"""The catalogue: every shipped figure, and those of the user's own folders, by id.

>>> catalog = load_catalog()
>>> catalog.chip("h100-sxm5-80").memory_bandwidth_bytes_per_s
3350000000000.0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ridgeline.catalog import build
from ridgeline.catalog.engines import engine_for, engine_of
from ridgeline.catalog.fields import DEVICE_FIELDS, LAW_LEVELS, LINK_FIELDS, SYSTEM_FIELDS
from ridgeline.catalog.records import RECORD_KINDS, Fact, Label, ModelRecord, Source
from ridgeline.catalog.shelf import Shelf, resolve_extends, shipped_blob
from ridgeline.catalog.software import framework_of, release_at, software_of
from ridgeline.core import FrozenMap, Note
from ridgeline.errors import BadFact, CatalogError, MissingFact, UnknownName, few
from ridgeline.specs import Calibration, Chip, EngineProfile, Law, Link, Price, SoftwareProfile, System

ENTRY_POINTS = "ridgeline.catalog"
DEFAULT_SOFTWARE = "megatron-core"
_SYSTEMS_NAMED = 6
_FIELDS = {"devices": DEVICE_FIELDS, "links": LINK_FIELDS, "systems": SYSTEM_FIELDS}


def load_catalog(extra: Sequence[str | Path] = (), *, plugins: bool = True) -> Catalog:
    """The shipped catalogue, under it the folders of installed plug-ins and those named in `extra`, in this order.

    A folder has the shape of the shipped `data` folder (`devices/*.yaml`, `links/*.yaml`, ...). A record with the id
    of an existing one takes its place, or, with `extends: <id>`, changes it; both are remembered in
    `Catalog.overrides`. `plugins=False` leaves out the entry points of the group `ridgeline.catalog`.
    """
    catalog = Catalog(Shelf(shipped_blob()))
    for folder in (*(_plugin_folders() if plugins else ()), *extra):
        catalog.add_folder(Path(folder))
    return catalog


def _plugin_folders() -> Iterator[Path]:
    """Folders that installed packages offer: an entry point names a folder, or a function that returns one."""
    for point in entry_points(group=ENTRY_POINTS):
        offered = point.load()
        yield Path(offered() if callable(offered) else offered)


class Catalog:
    """Records by id or declared alias; never by a part of a name, never with a fallback."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._chips: dict[str, Chip] = {}
        self._links: dict[str, Link] = {}
        self._systems: dict[str, System] = {}
        self.overrides: list[Note] = []
        self._own_laws: set[str] = set()

    # What there is

    def ids(self, kind: str) -> list[str]:
        """All ids of a kind of record ("devices", "links", "systems", ...), sorted."""
        if kind not in RECORD_KINDS:
            raise UnknownName("kind", kind, RECORD_KINDS)
        return self._shelf.ids(kind)

    def aliases(self, kind: str) -> dict[str, str]:
        """Declared aliases of a kind and what they stand for."""
        return dict(self._shelf.aliases(kind))

    def resolve(self, kind: str, name: str, where: str = "") -> str:
        """The id for an id or alias; `UnknownName` with the nearest names."""
        if self._shelf.get(kind, name) is not None:
            return name
        aliases = self._shelf.aliases(kind)
        if name in aliases:
            return aliases[name]
        hint = self._systems_with(name) if kind == "systems" else ""
        raise UnknownName(kind.removesuffix("s"), name, [*self._shelf.ids(kind), *aliases], where, hint)

    def _systems_with(self, name: str) -> str:
        """Of a device that was taken for a system: the systems that have it; "" of anything else."""
        if self._shelf.get("devices", name) is None and name not in self._shelf.aliases("devices"):
            return ""
        device = self.resolve("devices", name)
        found = [id for id in self._shelf.ids("systems") if self.record("systems", id)["chip"] == device]
        more = f" and {len(found) - _SYSTEMS_NAMED} more" if len(found) > _SYSTEMS_NAMED else ""
        have = f"systems that have it: {', '.join(found[:_SYSTEMS_NAMED])}{more}" if found else "no system has it"
        return f"it is a device; {have}"

    def record(self, kind: str, name: str, where: str = "") -> dict[str, Any]:
        """The compiled record as plain data (values in SI); not to be changed."""
        found = self._shelf.get(kind, self.resolve(kind, name, where))
        if found is None:
            raise CatalogError(f"alias {name!r} of {kind} stands for nothing")
        return found

    def kind_of(self, name: str) -> str:
        """The kind of record that has `name` as id or alias, devices and systems first; `UnknownName` otherwise."""
        for kind in ("systems", "devices", "models", "links", *RECORD_KINDS):
            if name in self._shelf.aliases(kind) or self._shelf.get(kind, name) is not None:
                return kind
        every = [id for kind in RECORD_KINDS for id in self._shelf.ids(kind)]
        raise UnknownName("id", name, every)

    # Specs

    def chip(self, name: str, where: str = "") -> Chip:
        """A device."""
        id = self.resolve("devices", name, where)
        if id not in self._chips:
            self._chips[id] = build.chip_of(self.record("devices", id), self.link)
        return self._chips[id]

    def link(self, name: str, where: str = "") -> Link:
        """A kind of link."""
        id = self.resolve("links", name, where)
        if id not in self._links:
            self._links[id] = build.link_of(self.record("links", id))
        return self._links[id]

    def system(self, name: str, where: str = "") -> System:
        """A node, slice or rack, with its chip and levels."""
        id = self.resolve("systems", name, where)
        if id not in self._systems:
            record = self.record("systems", id)
            self._systems[id] = build.system_of(record, self.chip(record["chip"], record["file"]), self.link)
        return self._systems[id]

    def prices(self, name: str) -> tuple[Price, ...]:
        """Prices of a system, newest first; after them, marked in the note, those of its device elsewhere.

        `name` may be a system or a device. Prices without a date come last in their group.
        """
        system, device = self._priced(name)
        own, elsewhere = [], []
        for id in self._shelf.in_scope("prices", *(item for item in (system, device) if item)):
            record = self.record("prices", id)
            if system and record.get("system") == system:
                own += build.prices_of(record, system)
            elif record.get("device") == device:
                note = f"price of {record.get('instance') or 'the device'} at {record.get('provider', '')}, per device"
                elsewhere += build.prices_of(record, record.get("system", ""), note if system else "")
        return tuple(_newest_first(own) + _newest_first(elsewhere))

    def _priced(self, name: str) -> tuple[str, str]:
        known = {*self._shelf.ids("systems"), *self._shelf.aliases("systems")}
        if name in known:
            system = self.resolve("systems", name)
            return system, self.resolve("devices", self.record("systems", system)["chip"])
        if name in self._shelf.aliases("devices") or self._shelf.get("devices", name) is not None:
            return "", self.resolve("devices", name)
        raise UnknownName("system", name, [*known, *self._shelf.ids("devices")])

    def model_record(self, name: str, where: str = "") -> ModelRecord:
        """A model's configuration."""
        return build.model_of(self.record("models", name, where))

    def calibration(self, name: str) -> Calibration:
        """All kernel and collective laws that hold for a device, the most specific one for each kernel family.

        A law of the device itself goes before one of its architecture, that before one of all devices; within
        the same scope, the order is that of `fields.LAW_LEVELS`, and the user's own go before the shipped ones.
        """
        chip = self.chip(name)
        best: dict[str, tuple[tuple[int, int, bool], Law]] = {}
        for id in self._shelf.in_scope("efficiency", chip.id, chip.architecture, "*"):
            record = self.record("efficiency", id)
            device, architecture = record.get("device"), record.get("architecture")
            if device not in (None, chip.id) or (device is None and architecture not in (None, chip.architecture)):
                continue
            scope = 0 if device else 1 if architecture else 2
            rank = (scope, LAW_LEVELS.index(record["level"]), id not in self._own_laws)
            for key, law in build.laws_of(record).items():
                if key not in best or rank < best[key][0]:
                    best[key] = (rank, law)
        return Calibration(chip=chip.id, laws=FrozenMap({key: law for key, (_, law) in sorted(best.items())}))

    def engine(self, name: str, version: str | None = None, date: str = "") -> EngineProfile:
        """A serving engine at a version (or as it was at a date, else its newest record); see `engines.engine_for`.

        `name` is the engine's id or alias, or the id of one of its versions.
        """
        id = self.resolve("engines", name)
        if version is None and not date:
            return engine_of(self.record("engines", id))
        root = self._engine_root(id)
        every = [self.record("engines", other) for other in self.ids("engines") if self._engine_root(other) == root]
        return engine_for(every, version, date)

    def _engine_root(self, id: str) -> str:
        """The engine that a version's record started from."""
        start = self.record("engines", id).get("extends")
        return id if start is None else self._engine_root(start)

    def software(self, name: str = DEFAULT_SOFTWARE, date: str = "") -> SoftwareProfile:
        """Training software: a release by id or alias, or, with `date`, the release of its framework then current.

        `date` is ISO and may be a month or a year alone (its end is meant).
        """
        record = self.record("software", name)
        if date:
            framework = framework_of(record)
            every = [self.record("software", other) for other in self.ids("software")]
            record = release_at((item for item in every if framework_of(item) == framework), date)
        return software_of(record)

    # Provenance

    def fact(self, fact_id: str) -> Fact:
        """The fact "<record>.<field>".

        `MissingFact` where the record is there and the field is one that no source gives; `UnknownName` otherwise.
        """
        for kind, record, key in self._splits(fact_id):
            if key in record.get("facts", {}):
                return build.fact_of(record, key)
            if key in _FIELDS.get(kind, ()):
                raise MissingFact(fact_id)
        known = [f"{record['id']}.{key}" for _, record, _ in self._splits(fact_id) for key in record.get("facts", ())]
        raise UnknownName("fact", fact_id, known or [id for kind in _FIELDS for id in self.ids(kind)])

    def _splits(self, fact_id: str) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Records whose id starts `fact_id`, longest first, with the rest of it."""
        end = fact_id.rfind(".")
        while end > 0:
            for kind in RECORD_KINDS:
                if kind != "labels" and (record := self._shelf.get(kind, fact_id[:end])) is not None:
                    yield kind, record, fact_id[end + 1 :]
            end = fact_id.rfind(".", 0, end)

    def facts_of(self, kind: str, name: str) -> tuple[Fact, ...]:
        """All facts of a record, descriptive ones included."""
        record = self.record(kind, name)
        return tuple(build.fact_of(record, key) for key in record.get("facts", {}))

    def source(self, name: str) -> Source:
        """Where facts come from."""
        return build.source_of(self.record("sources", name))

    # Labels

    def device_for_label(self, text: str) -> str:
        """The device that a label in somebody's table means: an exact entry of labels.yaml, or an id or alias."""
        return self.label(text).device

    def label(self, text: str, source: str = "") -> Label:
        """What a label means, in the rows of the source with exactly the title `source` where that differs.

        `CatalogError` with the reason where it means no single device, `UnknownName` where it is no entry of
        labels.yaml and no id or alias of a device.
        """
        found = self._shelf.get("labels", text)
        if found is None:
            try:
                device = self.resolve("devices", text)
            except UnknownName:
                raise UnknownName("device label", text, [*self.ids("labels"), *self.ids("devices")]) from None
            return Label(text=text, device=device, system=self.standard_system(device))
        if not found.get("device"):
            raise CatalogError(f"label {text!r} names no single device: {found['note']}")
        special = found.get("by_source", {}).get(source, {})
        device = self.resolve("devices", special.get("device") or found["device"], found["file"])
        system = special.get("system") or (None if special.get("device") else found.get("system"))
        return Label(
            text=text,
            device=device,
            system=self.resolve("systems", system, found["file"]) if system else self.standard_system(device),
            devices_count=found.get("devices", 1),
            cpu=self.resolve("devices", found["cpu"], found["file"]) if found.get("cpu") else "",
            note=found.get("note", ""),
        )

    def standard_system(self, device: str) -> str:
        """The system in which a device is usually used (the one with it in `default_for`); "" where there is none.

        A system of the user's own folders goes before the shipped one.
        """
        name = self.resolve("devices", device)
        found = list(self._shelf.in_scope("systems", name))
        return found[-1] if found else ""

    # The user's own

    def add_folder(self, folder: Path) -> None:
        """Put the records of a user's folder on top; ids that existed before are noted in `overrides`."""
        from ridgeline.catalog.check import clashes, dangling, odd_laws
        from ridgeline.catalog.compiler import compile_folder

        records = resolve_extends(compile_folder(folder), self._shelf)
        if problems := [*clashes(self._shelf, records), *odd_laws(self._shelf, records)]:
            raise BadFact("\n".join(few(problems)))
        for kind, group in records.items():
            for record in group.values():
                if self._shelf.get(kind, record["id"]) is not None:
                    verb = "changes" if "extends" in record else "replaces"
                    text = f"{record['file']} {verb} the catalogue's own {kind.removesuffix('s')} {record['id']}"
                    self.overrides.append(Note("hint", text))
                self._shelf.put(kind, record)
        self._own_laws.update(records["efficiency"])
        self._chips.clear()
        self._links.clear()
        self._systems.clear()
        if problems := dangling(self._shelf, records):
            raise BadFact("\n".join(few(problems)))

    @property
    def notes(self) -> tuple[Note, ...]:
        """Remarks about the catalogue itself: records that a user's folder replaced or changed."""
        return tuple(self.overrides)


def _newest_first(prices: list[Price]) -> list[Price]:
    return sorted(prices, key=lambda price: (price.date, price.id), reverse=True)
