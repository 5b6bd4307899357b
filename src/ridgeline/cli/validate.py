"""Score Ridgeline's predictions against a file of measurements (training, memory, inference, ...)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ridgeline.cli.options import JsonOption, OutOption


def command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="training, memory or inference.")],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV file of measurements.")],
    training: Annotated[
        Path | None, typer.Option("--training", metavar="FILE", help="Training rows that memory rows refer to.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="FILE", help="Write every row with its prediction to FILE (CSV).")
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Run the scoring of `ridgeline.validation` and print its summary."""
    from ridgeline.cli.output import Renderables, sink

    with sink(out, as_json) as target:
        from ridgeline import validation

        result = validation.run(
            kind, str(path), training=str(training) if training else None, rows=str(rows) if rows else None
        )

        def text() -> Renderables:
            from ridgeline.report import data_report

            return data_report(result)

        target.emit(lambda: result, text)
