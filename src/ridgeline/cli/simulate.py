"""Run the requests of a serving scenario one by one: percentiles, goodput, queue, batches and power over time."""

from __future__ import annotations

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """The layout of each candidate is the one that `plan` chooses; `simulate` and `workload.serve.traffic` say how
    long the run is and what arrives."""
    from ridgeline.cli.output import Renderables, leave_if_interrupted, progress, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario import load_scenario, require_kind
        from ridgeline.scenario.simulating import simulate

        loaded = load_scenario(scenario, sets or (), catalog=load_catalog(catalog or ()))
        require_kind(loaded, "serve")
        answer = simulate(loaded, progress=progress)
        progress("")

        def text() -> Renderables:
            from ridgeline.report.simulation import simulation_report

            return simulation_report(answer)

        target.emit(answer.to_dict, text)
        leave_if_interrupted(answer.plan.unsearched)
