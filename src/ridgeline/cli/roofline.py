"""Where the time of the best layout goes, operation by operation: bound, share, and the figure to improve."""

from __future__ import annotations

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Plan the scenario and break the best layout of each candidate down by operation."""
    from ridgeline.cli.output import Renderables, progress, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario import load_scenario, plan, roofline

        loaded = load_scenario(scenario, sets or (), catalog=load_catalog(catalog or ()))
        data = roofline(plan(loaded, progress=progress))
        progress("")

        def text() -> Renderables:
            from ridgeline.report import roofline_report

            return roofline_report(data)

        target.emit(lambda: data, text)
