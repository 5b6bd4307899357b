"""Estimate and size a serving system: each candidate part by part, then the fewest devices that keep the load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption, ScenarioArgument, SetOption

if TYPE_CHECKING:
    from ridgeline.scenario.sizing import SizingAnswer

HandoverOption = Annotated[
    Path | None,
    typer.Option("--handover", metavar="DIR", help="Write launch files of the best way into the folder DIR."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="With --handover: replace launch files that are there.")]


def command(
    scenario: ScenarioArgument,
    sets: SetOption = None,
    handover: HandoverOption = None,
    force: ForceOption = False,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """As `plan`, for a scenario with workload.serve, with whole trees for every row, and sized.

    Sizing tries layouts, formats and batches, with engines that do everything and with pools of prefill and decode
    engines, for the fewest devices (or what the objective says) that keep the load and its limits.
    """
    from ridgeline.cli.output import Renderables, leave_if_interrupted, progress, sink

    _check_target(handover, force)
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

        if handover is not None:
            _write(answer, handover, force)
        target.emit(answer.to_dict, text)
        leave_if_interrupted((*answer.plan.unsearched, *answer.sizing.unsearched))


def _check_target(folder: Path | None, force: bool) -> None:
    """Say before computing that launch files cannot be written."""
    from ridgeline.errors import ScenarioError

    if folder is None:
        if force:
            raise ScenarioError("--force: needs --handover DIR")
        return
    from ridgeline.handover.writing import check_target

    check_target(folder, force)


def _write(answer: SizingAnswer, folder: Path, force: bool) -> None:
    from ridgeline.errors import NoFeasiblePlan
    from ridgeline.handover import deployment_of, write_handover

    if not answer.sizing.options:
        raise NoFeasiblePlan("--handover: sizing found no way to serve, so there is nothing to launch")
    paths = write_handover(deployment_of(answer), folder, force)
    typer.echo(f"{len(paths)} launch files in {folder}", err=True)
