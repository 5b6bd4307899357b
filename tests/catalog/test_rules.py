"""Every shipped fact is sourced, every source is used, every name resolves, every record becomes a spec."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from ridgeline.catalog import FACT_KINDS, RECORD_KINDS, Catalog, Fact
from ridgeline.catalog.check import all_dangling

ROOT = Path(__file__).resolve().parents[2]
FACT_HOLDERS = [kind for kind in RECORD_KINDS if kind not in ("sources", "labels")]


def facts(catalog: Catalog, *kinds: str) -> list[Fact]:
    return [fact for kind in kinds or FACT_HOLDERS for id in catalog.ids(kind) for fact in catalog.facts_of(kind, id)]


def test_there_is_what_the_collected_files_have(catalog: Catalog) -> None:
    assert len(catalog.ids("devices")) >= 92 + 22
    assert len(catalog.ids("links")) >= 64


def test_every_fact_is_of_a_kind_and_sourced(catalog: Catalog) -> None:
    bad = []
    for fact in facts(catalog):
        if fact.kind not in FACT_KINDS:
            bad.append(f"{fact.id}: kind {fact.kind}")
        if fact.kind == "unsourced" and fact.sources:
            bad.append(f"{fact.id}: unsourced with a source")
        if fact.kind not in ("unsourced", "assumed", "derived") and not fact.sources:
            bad.append(f"{fact.id}: no source")
        if fact.kind == "derived" and not (fact.basis or fact.sources):
            bad.append(f"{fact.id}: derived from nothing")
        if isinstance(fact.value, dict):  # a law: its spread is its residuals
            continue
        if fact.kind == "assumed" and not (fact.why and fact.low is not None and fact.high is not None):
            bad.append(f"{fact.id}: assumed without reason or range")
    assert bad == []


def test_figures_that_physics_reads_are_never_unsourced(catalog: Catalog) -> None:
    allowed = {"year"}
    bad = [
        fact.id
        for kind in ("devices", "links", "systems")
        for id in catalog.ids(kind)
        for fact in catalog.facts_of(kind, id)
        if fact.kind == "unsourced" and fact.unit and fact.id.removeprefix(f"{id}.") not in allowed
    ]
    assert bad == []


def test_prices_and_reserves_are_dated(catalog: Catalog) -> None:
    bad = [fact.id for fact in facts(catalog, "prices") if not fact.date and not fact.note]
    assert bad == []


def test_every_name_resolves(catalog: Catalog) -> None:
    assert all_dangling(catalog._shelf) == []


def test_every_source_is_used(catalog: Catalog) -> None:
    cited = {name for fact in facts(catalog) for name in fact.sources}
    for kind in RECORD_KINDS:
        for id in catalog.ids(kind):
            cited.update(catalog.record(kind, id).get("src") or ())
    code = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    assert [id for id in catalog.ids("sources") if id not in cited and id not in code] == []


CITED_IN_CODE = re.compile(r"#\s*src:\s*([A-Za-z0-9][\w.:/-]*)")
CITED_BY_MODEL = re.compile(r"sources=\(([^)]*)\)")


def test_every_source_that_code_cites_is_a_record(catalog: Catalog) -> None:
    cited: set[str] = set()
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        cited.update(CITED_IN_CODE.findall(text))
        for group in CITED_BY_MODEL.findall(text):
            cited.update(re.findall(r'"([^"]+)"', group))
    assert len(cited) > 50
    assert sorted(cited - set(catalog.ids("sources"))) == []


def test_a_source_says_where_it_is(catalog: Catalog) -> None:
    bare = []
    for id in catalog.ids("sources"):
        source = catalog.source(id)
        outside = source.kind != "project" and source.trust != "unverified"
        if outside and not (
            source.url or source.repository or source.note or source.publisher or source.authors or source.date
        ):
            bare.append(id)
    # Named in the collected citations without an address that was kept.
    assert sorted(bare) == ["ferreiradozezere-gtc", "reviews4000-a6000"]


def test_fact_ids_are_unique(catalog: Catalog) -> None:
    counts = Counter(fact.id for fact in facts(catalog))
    assert [id for id, count in counts.items() if count > 1] == []
    assert all(catalog.fact(id).id == id for id in list(counts)[::97])


def test_aliases_stand_for_one_record_and_hide_none(catalog: Catalog) -> None:
    for kind in RECORD_KINDS:
        ids = set(catalog.ids(kind))
        every = [alias for id in ids for alias in catalog.record(kind, id).get("aliases", ())]
        assert len(every) == len(set(every)), kind
        assert not ids.intersection(every), kind


@pytest.mark.parametrize("kind", ["devices", "links", "systems"])
def test_every_record_becomes_a_spec(catalog: Catalog, kind: str) -> None:
    make = {"devices": catalog.chip, "links": catalog.link, "systems": catalog.system}[kind]
    for id in catalog.ids(kind):
        assert make(id).id == id


def test_every_price_and_law_becomes_a_spec(catalog: Catalog) -> None:
    for id in catalog.ids("devices"):
        for price in catalog.prices(id):
            assert (price.per_device_usd is None) != (price.per_device_usd_per_s is None)
            assert catalog.fact(price.fact).kind in FACT_KINDS
        for law in catalog.calibration(id).laws.values():
            assert catalog.fact(law.fact).value == dict(law.parameters)


def test_specs_point_to_facts_that_hold_the_same_value(catalog: Catalog) -> None:
    for id in catalog.ids("devices"):
        chip = catalog.chip(id)
        for name in ("memory_bandwidth_bytes_per_s", "tdp_w", "l2_bytes", "clock_hz", "scale_up_oneway_bytes_per_s"):
            value = getattr(chip, name)
            if value is not None:
                assert catalog.fact(chip.fact_id(name)).value == value
        for precision, rate in chip.peak_dense_flop_per_s.items():
            assert catalog.fact(chip.fact_id(f"peak_dense_flop_per_s.{precision}")).value == rate


def test_notice_lists_the_sources(catalog: Catalog) -> None:
    text = (ROOT / "NOTICE").read_text()
    cited = {name for fact in facts(catalog, "devices", "links", "prices") for name in fact.sources}
    lacking = [id for id in sorted(cited) if catalog.source(id).kind != "project" and f"[{id}]" not in text]
    assert lacking == [], "run scripts/write_notice.py"


def test_figures_in_code_cite_ids_of_the_right_form() -> None:
    """`# src:` comments name sources as the catalogue's ids are written."""
    bad = []
    for path in sorted((ROOT / "src" / "ridgeline").rglob("*.py")):
        text = path.read_text()
        ast.parse(text)
        bad += [
            f"{path.name}: {name}"
            for name in re.findall(r"#\s*src:\s*(\S+)", text)
            if not re.fullmatch(r"[a-z0-9]+([.\-][a-z0-9]+)*[,;]?", name)
        ]
    assert bad == []
