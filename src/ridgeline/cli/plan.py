"""Rank the candidate machines of a scenario: best layout, time, memory, energy and money of each."""

from __future__ import annotations

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Load, search, print."""
    from ridgeline.cli.output import Renderables, leave_if_interrupted, progress, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario import load_scenario, plan

        loaded = load_scenario(scenario, sets or (), catalog=load_catalog(catalog or ()))
        answer = plan(loaded, progress=progress)
        progress("")

        def text() -> Renderables:
            from ridgeline.report import plan_report

            return plan_report(answer)

        target.emit(answer.to_dict, text)
        leave_if_interrupted(answer.unsearched)
