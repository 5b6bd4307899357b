"""Facts with a range become assumptions that a search can vary."""

from __future__ import annotations

from ridgeline.catalog import load_catalog
from ridgeline.scenario.assumptions import ranged_facts


def test_every_assumed_figure_of_a_software_has_its_range() -> None:
    catalog = load_catalog(plugins=False)
    system, software = catalog.system("dgx-a100"), catalog.software("megatron-core")
    found = {item.field: item for item in ranged_facts(catalog, system, software) if item.part == "software"}
    numbers = {name for name in software.assumed if isinstance(getattr(software, name), float)}
    assert numbers
    assert numbers <= set(found)
    for name, item in found.items():
        fact = catalog.fact(item.fact_id)
        assert (item.low, item.high) == (fact.low, fact.high)
        assert item.low <= getattr(software, name) <= item.high
