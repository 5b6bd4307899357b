"""Cite what an answer rests on: sources really used, and every assumed or secondary value with its range."""

from __future__ import annotations

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Plan the scenario and list the facts, formulas and sources that the answer used."""
    from ridgeline.cli.output import Renderables, progress, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario import cite, load_scenario, plan

        loaded = load_scenario(scenario, sets or (), catalog=load_catalog(catalog or ()))
        cited = cite(plan(loaded, progress=progress))
        progress("")

        def text() -> Renderables:
            from ridgeline.report import cite_report

            return cite_report(cited)

        target.emit(lambda: cited, text)
