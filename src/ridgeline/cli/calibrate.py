"""Fit the laws of a device to 20 to 50 kernels that you measured on it; a scenario then names the file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ridgeline.cli.options import CatalogOption, JsonOption


def command(
    points: Annotated[
        Path, typer.Argument(metavar="POINTS.csv", help="Measured kernels, one a line; see docs/reference/points.md.")
    ],
    device: Annotated[str, typer.Option("--device", metavar="ID", help="The device that they ran on.")],
    system: Annotated[
        str, typer.Option("--system", metavar="ID", help="The machine that collectives ran on; only for those.")
    ] = "",
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the calibrated laws to FILE (YAML).")
    ] = None,
) -> None:
    """Move the laws as far as the points agree, and say how far points that were left out are from them."""
    from contextlib import nullcontext

    from ridgeline.cli.output import Renderables, sink
    from ridgeline.files import whole_file

    writer = nullcontext(None) if out is None else whole_file(out, "--out")
    with writer as write, sink(None, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario.calibrating import calibrate, calibration_text

        found = calibrate(points, device, system, catalog=load_catalog(catalog or ()))
        if write is not None:
            write(calibration_text(found))

        def text() -> Renderables:
            from ridgeline.report.calibration import calibration_report

            return calibration_report(found, None if out is None else str(out))

        target.emit(found.to_dict, text)
