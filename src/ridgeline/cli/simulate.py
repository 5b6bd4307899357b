"""Run a serving scenario request by request, or a pipeline frame by frame: percentiles, goodput, queues, power."""

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
    long the run is and what arrives. A scenario with `workload.pipeline` runs with threads and with queues."""
    from ridgeline.cli.output import Renderables, leave_if_interrupted, progress, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario import load_scenario, read_scenario, require_kind
        from ridgeline.scenario.simulating import simulate

        file, where, folder, set_paths = read_scenario(scenario, sets or ())
        if file.workload.pipeline is not None:
            from ridgeline.report.pipeline import pipeline_report
            from ridgeline.scenario.simulated_pipeline import simulate_pipeline

            found = simulate_pipeline(file, where, set_paths, load_catalog(catalog or ()))
            target.emit(found.to_dict, lambda: pipeline_report(found))
            return
        from ridgeline.scenario.simulated_network import names_network, simulate_network

        facts = load_catalog(catalog or ())
        if names_network(file, facts):
            answer = simulate_network(file, where, folder, set_paths, facts)
        else:
            loaded = load_scenario(scenario, sets or (), catalog=facts)
            require_kind(loaded, "serve")
            answer = simulate(loaded, progress=progress)
            progress("")

        def text() -> Renderables:
            from ridgeline.report.simulation import simulation_report

            return simulation_report(answer)

        target.emit(answer.to_dict, text)
        leave_if_interrupted(answer.unsearched)
