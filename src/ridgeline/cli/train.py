"""Estimate a training job in detail: time and memory of the best layout on each candidate, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption

if TYPE_CHECKING:
    from ridgeline.scenario import Scenario
    from ridgeline.scenario.searching import SearchAnswer

LayoutsOption = Annotated[
    bool, typer.Option("--layouts", help="Search every layout: the best, the front, and why it won.")
]
ScaleOption = Annotated[
    str | None, typer.Option("--scale", metavar="SIZES", help="Scaling curve over sizes, e.g. 8..16384, and its knee.")
]


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    layouts: LayoutsOption = False,
    scale: ScaleOption = None,
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
        if layouts or scale is not None:
            found = _searched(loaded, scale)
            progress("")

            def search_text() -> Renderables:
                from ridgeline.report.searching import search_report

                return search_report(found)

            target.emit(found.to_dict, search_text)
            leave_if_interrupted(found.unsearched)
            return
        answer = plan(loaded, progress=progress)
        progress("")

        def text() -> Renderables:
            from ridgeline.report import detail_report

            return detail_report(answer)

        target.emit(answer.to_dict, text)
        leave_if_interrupted(answer.unsearched)


def _searched(loaded: Scenario, scale: str | None) -> SearchAnswer:
    """Every layout, or the scaling curve where `scale` says over which sizes."""
    from ridgeline.cli.output import progress
    from ridgeline.scenario import searching

    if scale is not None:
        return searching.scale(loaded, scale, progress)

    def bar(done: int, total: int, best_s: float) -> None:
        filled = 40 * done // total
        progress(f"[{'#' * filled}{'.' * (40 - filled)}] {done:,} of {total:,} layouts, best step {best_s:.4g} s")

    return searching.search_layouts(loaded, bar)
