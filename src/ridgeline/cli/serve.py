"""Estimate and size a serving system: each candidate part by part, then the fewest devices that keep the load."""

from __future__ import annotations

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """As `plan`, for a scenario with workload.serve, with whole trees for every row, and sized.

    Sizing tries layouts, formats and batches, with engines that do everything and with pools of prefill and decode
    engines, for the fewest devices (or what the objective says) that keep the load and its limits.
    """
    from ridgeline.cli.output import Renderables, leave_if_interrupted, progress, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario import load_scenario, require_kind
        from ridgeline.scenario.sizing import size

        loaded = load_scenario(scenario, sets or (), catalog=load_catalog(catalog or ()))
        require_kind(loaded, "serve")
        answer = size(loaded, progress=progress)
        progress("")

        def text() -> Renderables:
            from ridgeline.report.sizing import sizing_report

            return sizing_report(answer)

        target.emit(answer.to_dict, text)
        leave_if_interrupted(answer.plan.unsearched)
