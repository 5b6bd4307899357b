"""Nothing of the collected fact files is lost: every leaf value stands in the record that was made of it."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ridgeline.catalog import Catalog

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "facts"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the collected fact files beside the checkout")
NUMBER = re.compile(r"(?<![\d.])\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


def load(name: str) -> Any:
    return yaml.load((SHARED / name).read_text(), yaml.CSafeLoader)


@pytest.fixture(scope="module")
def conversion() -> Any:
    """The conversion script."""
    spec = importlib.util.spec_from_file_location("import_facts", ROOT / "scripts" / "import_facts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def clean(conversion: Any) -> Callable[[str], str]:
    """How the conversion writes the texts of the files (without record numbers, abbreviations spelled out)."""
    return conversion.clean


@pytest.fixture(scope="module")
def renoted(conversion: Any) -> set[str]:
    """Devices whose note ("not captured") was made untrue by a figure found since."""
    return set(conversion.RULES["renote"])


def leaves(node: Any, skip: tuple[str, ...], path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            if str(key) not in skip:
                yield from leaves(value, skip, f"{path}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from leaves(value, skip, path)
    elif node not in (None, ""):
        yield path, node


def text_and_numbers(record: dict[str, Any]) -> tuple[str, list[float]]:
    """All words of a compiled record, and all numbers as its file writes them."""
    facts = record.get("facts", {})
    kept = {key: value for key, value in record.items() if key not in ("facts", "file")}
    words = [json.dumps(kept, ensure_ascii=False)]
    for fact in facts.values():
        shown = {key: value for key, value in fact.items() if key not in ("src",)}
        if "written" in shown:
            shown["value"] = shown["written"]
        words.append(json.dumps(shown, ensure_ascii=False))
    text = " ".join(words).replace('\\"', '"')
    return text, [float(part) for part in NUMBER.findall(text)]


def lost(record: dict[str, Any], raw: Any, clean: Callable[[str], str], skip: tuple[str, ...]) -> list[str]:
    text, numbers = text_and_numbers(record)
    missing = []
    for path, value in leaves(raw, skip):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not any(math.isclose(value, number, rel_tol=1e-9) for number in numbers):
                missing.append(f"{record['id']}{path}: {value}")
        elif clean(str(value)) not in text:
            missing.append(f"{record['id']}{path}: {value!r}")
    return missing


def test_every_value_of_every_device(catalog: Catalog, clean: Callable[[str], str], renoted: set[str]) -> None:
    missing = []
    devices = load("devices.yaml")["devices"]
    assert len(devices) == 92
    for raw in devices:
        record = catalog.record("devices", raw["id"])
        assert record["id"] == raw["id"]
        # The link type is part of the link's id; its source stands with the fact.
        dropped = ("host_link", "note") if raw["id"] in renoted else ("host_link",)
        missing += lost(record, {k: v for k, v in raw.items() if k not in dropped}, clean, ("src",))
        link = raw.get("host_link", {})
        missing += lost(record, {k: v for k, v in link.items() if k != "type"}, clean, ("src",))
        if link.get("type") not in (None, "PCIe", "NVLink-C2C"):
            missing += lost(record, {"type": link["type"]}, clean, ())
    assert not missing, missing


def test_every_added_value_and_device(catalog: Catalog, clean: Callable[[str], str], renoted: set[str]) -> None:
    added = load("device_additions.yaml")
    assert len(added["new_devices"]) == 22
    missing = []
    for id, items in added["existing"].items():
        missing += lost(catalog.record("devices", id), items, clean, ("src",))
    for raw in added["new_devices"]:
        dropped = ("host_link", "note") if raw["id"] in renoted else ("host_link",)
        kept = {k: v for k, v in raw.items() if k not in dropped}
        missing += lost(catalog.record("devices", raw["id"]), kept, clean, ("src",))
    assert not missing, missing


def test_every_correction_cites_its_source_and_what_was(catalog: Catalog, clean: Callable[[str], str]) -> None:
    missing = []
    for item in load("device_corrections.yaml"):
        record = catalog.record("devices", item["id"])
        was = [part.strip() for part in str(item["was"] if item["was"] is not None else "not given").split("/")]
        right = [part.strip() for part in str(item["right"]).split("/")] if item["right"] is not None else []
        text, numbers = text_and_numbers(record)
        for part in (*was, *right):
            found = (
                any(math.isclose(float(part), n, rel_tol=1e-9) for n in numbers) if NUMBER.fullmatch(part) else False
            )
            if not found and part not in text:
                missing.append(f"{item['id']} {item['field']}: {part}")
        if item.get("note") and clean(item["note"]) not in text:
            missing.append(f"{item['id']} {item['field']}: note")
        if item["right"] is None and not any(fact.get("conflict") for fact in record["facts"].values()):
            missing.append(f"{item['id']} {item['field']}: conflict")
    assert not missing, missing


def test_every_value_of_every_link(catalog: Catalog, clean: Callable[[str], str]) -> None:
    links = load("links.yaml")["links"]
    assert len(links) == 64
    missing = []
    for raw in links:
        missing += lost(catalog.record("links", raw["id"]), raw, clean, ("src",))
    assert not missing, missing


def test_every_price(catalog: Catalog) -> None:
    with (SHARED / "prices.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["kind"] in ("cloud", "purchase")]
    known = {}
    for id in catalog.ids("prices"):
        record = catalog.record("prices", id)
        numbers = known.setdefault((record["provider"], record.get("instance")), [])
        for fact in record["facts"].values():
            numbers += [fact["value"], fact.get("low"), fact.get("high")]
    missing = []
    for row in rows:
        instance = re.sub(r" \((capacity block|flex-start|calendar)\)", "", row["instance"])
        seconds = 1.0 if row["kind"] == "purchase" else 3600.0
        for column in ("on_demand", "reserved_1yr", "reserved_3yr", "spot"):
            for part in filter(None, row[column].split("-")):
                held = known[row["provider"], instance]
                if not any(n is not None and math.isclose(float(part), n * seconds, rel_tol=1e-9) for n in held):
                    missing.append(f"{row['provider']} {instance} {column}: {part}")
    assert not missing, missing


def test_tariffs_are_kept(catalog: Catalog) -> None:
    tariffs = load("tariffs.yaml")["tariffs"]
    names = {catalog.record("tariffs", id)["name"]: id for id in catalog.ids("tariffs")}
    for raw in tariffs:
        data = catalog.record("tariffs", names[raw["id"]]).get("data", {})
        expected = json.loads(json.dumps({k: v for k, v in raw.items() if k != "id" and v is not None}, default=str))
        assert data == expected
