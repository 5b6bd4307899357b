"""Facts with a range behind a machine and its software, as assumptions that a search can vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ridgeline.catalog import Catalog
from ridgeline.errors import MissingFact, UnknownName
from ridgeline.search.explain import Assumption, Part
from ridgeline.specs import SoftwareProfile, System


def ranged_facts(catalog: Catalog, system: System, software: SoftwareProfile) -> tuple[Assumption, ...]:
    """Every figure of `software`, the chip and the network levels of `system` whose fact has a low and a high end."""
    found = [
        *_ranged(catalog, "software", software, software.facts),
        *_ranged(catalog, "chip", system.chip, system.chip.facts),
    ]
    for level in system.levels:
        found += _ranged(catalog, "level", level, level.facts, level.name)
    return tuple(found)


def _ranged(
    catalog: Catalog, part: Part, record: Any, facts: Mapping[str, str], level: str = ""
) -> Iterator[Assumption]:
    for field, fact_id in facts.items():
        if not isinstance(getattr(record, field, None), (int, float)):  # texts, flags of families, tables
            continue
        try:
            fact = catalog.fact(fact_id)
        except (MissingFact, UnknownName):
            continue
        if fact.low is not None and fact.high is not None:
            yield Assumption(
                fact_id=fact_id, part=part, field=field, low=float(fact.low), high=float(fact.high), level=level
            )
