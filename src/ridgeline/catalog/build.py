"""Compiled records to specs: `Chip`, `Link`, `System`, `Price`, `Law`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ridgeline.catalog.fields import DEVICE_FIELDS, HOST_FIELDS, LINK_FIELDS, SYSTEM_FIELDS
from ridgeline.catalog.records import Fact, ModelRecord, Source
from ridgeline.core import FrozenMap
from ridgeline.errors import BadFact
from ridgeline.specs import Chip, Host, Law, Link, NetworkLevel, Price, System

Record = dict[str, Any]
# Whole numbers in the specs: everything else with a dimension is a float.
_WHOLE = "_count"
# A peak for matrix work is that of the matrix unit where the maker lists one beside the vector rate.
_MATRIX = {"fp64": "fp64_matrix", "fp32": "fp32_matrix"}


def fact_of(record: Record, key: str) -> Fact:
    """The fact `key` of a record."""
    raw = record["facts"][key]
    sources = tuple(raw.get("src") or record.get("src") or ())
    names = ("unit", "at", "note", "why", "basis", "low", "high", "date", "written", "was", "conflict")
    return Fact(
        id=f"{record['id']}.{key}",
        value=raw["value"],
        kind=raw["kind"],
        source=sources[0] if sources else "",
        sources=sources,
        **{name: raw[name] for name in names if name in raw},
    )


def source_of(record: Record) -> Source:
    """A source record."""
    return Source(**{name: record.get(name, "") for name in Source.__slots__})


def chip_of(record: Record, host_link: Callable[[str], Link]) -> Chip:
    """A device record as a `Chip`; the rate of its host link comes from the link's record."""
    facts = record["facts"]
    values: dict[str, Any] = {}
    ids: dict[str, str] = {}
    for key, field in DEVICE_FIELDS.items():
        if field.spec:
            ids[field.spec] = f"{record['id']}.{key}"
            if key in facts:
                values[field.spec] = _number(facts[key]["value"], field.spec)
    peaks = {}
    for key in DEVICE_FIELDS:
        if key.startswith("peak_dense.") and key in facts:
            name = key.removeprefix("peak_dense.")
            peaks[name] = facts[key]["value"]
            ids[f"peak_dense_flop_per_s.{name}"] = f"{record['id']}.{key}"
    for name, matrix in _MATRIX.items():
        if matrix in peaks:
            if name in peaks:
                peaks[f"{name}_vector"] = peaks[name]
                ids[f"peak_dense_flop_per_s.{name}_vector"] = f"{record['id']}.peak_dense.{name}"
            peaks[name] = peaks.pop(matrix)
            ids[f"peak_dense_flop_per_s.{name}"] = ids.pop(f"peak_dense_flop_per_s.{matrix}")
    if "host_link" in values and "host_oneway_bytes_per_s" not in values:
        link = host_link(values["host_link"])
        values["host_oneway_bytes_per_s"] = link.oneway_bytes_per_s
        ids["host_oneway_bytes_per_s"] = link.facts["oneway_bytes_per_s"]
    return Chip(
        id=record["id"],
        name=record.get("name", ""),
        vendor=record.get("vendor", ""),
        kind=record["kind"],
        architecture=record["architecture"],
        peak_dense_flop_per_s=FrozenMap(peaks),
        facts=FrozenMap(ids),
        **values,
    )


def link_of(record: Record) -> Link:
    """A link record as a `Link`."""
    values, ids = _filled(record, LINK_FIELDS)
    return Link(id=record["id"], type=record["type"], facts=FrozenMap(ids), **values)


def system_of(record: Record, chip: Chip, link: Callable[[str], Link]) -> System:
    """A system record as a `System`; level figures that it leaves out are those of the level's link."""
    values, ids = _filled(record, SYSTEM_FIELDS)
    host_values: dict[str, Any] = dict(record.get("host", {}))
    host_values = {HOST_FIELDS[key].spec: value for key, value in host_values.items()}
    for key, field in HOST_FIELDS.items():
        if (fact := record["facts"].get(f"host.{key}")) is not None:
            host_values[field.spec] = _number(fact["value"], field.spec)
            ids[f"host.{field.spec}"] = f"{record['id']}.host.{key}"
    levels = tuple(_level(record, level, link) for level in record.get("levels", ()))
    return System(
        id=record["id"],
        name=record.get("name", ""),
        chip=chip,
        devices_per_node_count=record["devices_per_node"],
        levels=levels,
        host=Host(**host_values),
        sizes_count=tuple(record.get("sizes", ())),
        cloud=record.get("cloud", ""),
        facts=FrozenMap(ids),
        **values,
    )


def _level(record: Record, level: Record, link: Callable[[str], Link]) -> NetworkLevel:
    values: dict[str, float] = {}
    ids: dict[str, str] = {}
    carrier = link(level["link"])
    for key, name in (("oneway", "oneway_bytes_per_s"), ("latency", "latency_s")):
        own = f"levels.{level['name']}.{key}"
        if own in record["facts"]:
            values[name] = record["facts"][own]["value"]
            ids[name] = f"{record['id']}.{own}"
        elif (inherited := getattr(carrier, name)) is not None:
            values[name] = inherited
            ids[name] = carrier.facts[name]
        else:
            raise BadFact(
                f"{record['file']}: {own}: given neither here nor by the link {carrier.id!r}; "
                f"write `{key}: {{v: ..., kind: ..., src: ...}}` in the level"
            )
    return NetworkLevel(
        name=level["name"],
        kind=level["kind"],
        link=carrier.id,
        size_count=level.get("size"),
        transport=level.get("transport", ""),
        in_switch_reduction=level.get("in_switch_reduction", False),
        oversubscription=float(level.get("oversubscription", 1.0)),
        full_rate_count=level.get("full_rate"),
        axes=tuple(level.get("axes", ())),
        ring_stops_count=level.get("ring_stops") or 0,
        facts=FrozenMap(ids),
        oneway_bytes_per_s=values["oneway_bytes_per_s"],
        latency_s=values["latency_s"],
    )


def prices_of(record: Record, system_id: str, note: str = "") -> list[Price]:
    """The prices of a price record, each per device (and second, for rent)."""
    found = []
    for entry in record["prices"]:
        raw = record["facts"][entry["key"]]
        share = 1.0 / record["devices"] if entry["per"] == "instance" else 1.0
        rent = entry["term"] != "purchase"
        best = raw["value"] * share
        found.append(
            Price(
                id=f"{record['id']}.{entry['key']}",
                system=system_id,
                kind=entry["term"],
                provider=record.get("provider", ""),
                date=entry["date"],
                fact=f"{record['id']}.{entry['key']}",
                per_device_usd=None if rent else best,
                per_device_usd_per_s=best if rent else None,
                low_usd=raw["low"] * share if "low" in raw else None,
                high_usd=raw["high"] * share if "high" in raw else None,
                note="; ".join(part for part in (note, raw.get("note", "")) if part),
            )
        )
    return found


def laws_of(record: Record) -> dict[str, Law]:
    """The laws of an efficiency record by kernel family."""
    return {
        key: Law(
            kind=key,
            level=record["level"],
            parameters=FrozenMap({name: float(value) for name, value in raw["value"].items()}),
            ape_p50_frac=float(raw["ape_p50"]),
            ape_p90_frac=float(raw["ape_p90"]),
            fact=f"{record['id']}.{key}",
            tiles=tuple((tile[0], tile[1]) for tile in raw.get("tiles", ())),
        )
        for key, raw in record["facts"].items()
    }


def model_of(record: Record) -> ModelRecord:
    """A model record."""
    return ModelRecord(
        id=record["id"],
        aliases=tuple(record.get("aliases", ())),
        name=record.get("name", ""),
        config=record["config"],
        facts=FrozenMap({key: f"{record['id']}.{key}" for key in record["facts"]}),
        source=(record.get("src") or [""])[0],
        date=record.get("date", ""),
        note=record.get("note", ""),
    )


def _filled(record: Record, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Spec values of the facts that a record has, and the fact ids of all spec fields."""
    values = {
        field.spec: _number(record["facts"][key]["value"], field.spec)
        for key, field in fields.items()
        if field.spec and key in record["facts"]
    }
    return values, {field.spec: f"{record['id']}.{key}" for key, field in fields.items() if field.spec}


def _number(value: Any, spec: str) -> Any:
    return round(value) if spec.endswith(_WHOLE) else value
