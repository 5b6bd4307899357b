"""Estimate a training job in detail: time and memory of the best layout on each candidate, part by part."""

from __future__ import annotations

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """As `plan`, for a scenario with workload.train, with whole trees for every row."""
    from ridgeline.cli.output import Renderables, leave_if_interrupted, progress, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario import load_scenario, plan, require_kind

        loaded = load_scenario(scenario, sets or (), catalog=load_catalog(catalog or ()))
        require_kind(loaded, "train")
        answer = plan(loaded, progress=progress)
        progress("")

        def text() -> Renderables:
            from ridgeline.report import detail_report

            return detail_report(answer)

        target.emit(answer.to_dict, text)
        leave_if_interrupted(answer.unsearched)
