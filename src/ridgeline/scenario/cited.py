"""The bibliography of an answer: sources really used, assumed and secondary values with ranges, formulas."""

from __future__ import annotations

from typing import Any

from ridgeline.catalog import RECORD_KINDS, Catalog, Fact
from ridgeline.core import models
from ridgeline.errors import CatalogError
from ridgeline.scenario.answer import PlanAnswer, find_fact, row_models
from ridgeline.scenario.plain import SCHEMA_VERSION, finite


def cite(answer: PlanAnswer) -> dict[str, Any]:
    """What all rows of `answer` rest on, as plain data; computed from the trees, nothing is kept aside."""
    catalog = answer.scenario.catalog
    uses = tuple(dict.fromkeys(use for row in answer.rows for use in (*row.uses, *_noted(row))))
    facts = {use: find_fact(catalog, use) for use in uses}
    known = [fact for fact in facts.values() if fact is not None]
    used_models = dict.fromkeys(name for row in answer.rows for name in _models(row))
    data = finite(
        {
            "schema_version": SCHEMA_VERSION,
            "assumed": [_fact(catalog, fact) for fact in known if fact.kind == "assumed"],
            "secondary": [_fact(catalog, fact) for fact in known if fact.kind in ("secondary", "unsourced")],
            "facts": [_fact(catalog, fact) for fact in known if fact.kind not in ("assumed", "secondary", "unsourced")],
            "given": [use for use, fact in facts.items() if fact is None],
            "sources": _sources(catalog, answer, known),
            "models": [_formula(name) for name in used_models if name in models()],
        }
    )
    return dict(data)


def _noted(row: Any) -> list[str]:
    """Facts that notes name: an estimate may lean on them without a leaf of its own."""
    return [fact for note in row.notes if note.kind in ("assumed", "secondary") for fact in note.facts]


def _models(row: Any) -> list[str]:
    found = row.found
    power = [] if found.power is None else [found.power.power]
    energy = [] if found.facility is None else [found.facility.energy]
    trees = [*power, *energy, *found.cost.money]
    return [*row_models(found, row.goodput), *(name for tree in trees for name in tree.models())]


def _fact(catalog: Catalog, fact: Fact) -> dict[str, Any]:
    names = ("id", "kind", "value", "unit", "low", "high", "written", "at", "basis", "note", "date")
    data = {name: getattr(fact, name) for name in names}
    data["why"] = fact.why
    data["sources"] = list(fact.sources)
    data["record"] = _record(catalog, fact.id)
    return data


def _record(catalog: Catalog, fact_id: str) -> str:
    """The record that has the fact: the longest beginning of its id that is one; "" where there is none."""
    name = fact_id
    while "." in name:
        name = name.rpartition(".")[0]
        if any(name in catalog.ids(kind) for kind in RECORD_KINDS):
            return name
    return ""


def _sources(catalog: Catalog, answer: PlanAnswer, facts: list[Fact]) -> list[dict[str, Any]]:
    used: dict[str, list[str]] = {}
    for fact in facts:
        for source in fact.sources:
            used.setdefault(source, []).append(fact.id)
    if answer.scenario.model.source:
        used.setdefault(answer.scenario.model.source, []).append(answer.scenario.model.id)
    for name in dict.fromkeys(name for row in answer.rows for name in _models(row)):
        for source in models()[name].sources if name in models() else ():
            used.setdefault(source, []).append(f"formula {name}")
    found = []
    for source_id in sorted(used):
        try:
            record = catalog.source(source_id).to_dict()
        except CatalogError:
            record = {"id": source_id, "title": source_id}
        found.append({**record, "used_for": used[source_id]})
    return found


def _formula(name: str) -> dict[str, Any]:
    entry = models()[name]
    return {"id": name, "title": entry.title, "sources": list(entry.sources)}
