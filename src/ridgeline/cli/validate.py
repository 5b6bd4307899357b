"""Score Ridgeline's predictions against published measurements: those shipped, or a file of your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ridgeline.cli.options import JsonOption, OutOption


def command(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="training, memory, inference or power; all where left out.")
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A CSV file of measurements; else the shipped cases.")
    ] = None,
    training: Annotated[
        Path | None, typer.Option("--training", metavar="FILE", help="Training rows that memory rows refer to.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="FILE", help="With KIND: write every row and its prediction (CSV).")
    ] = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Run the scoring of `ridgeline.validation` and print its summary."""
    from ridgeline.cli.output import Renderables, sink
    from ridgeline.errors import ScenarioError

    if rows is not None and kind is None:
        raise ScenarioError("--rows: needs a kind, such as `ridgeline validate training --rows FILE`")
    if training is not None and kind != "memory":
        raise ScenarioError(f"--training: only memory rows refer to training rows, got {kind or 'no kind'}")
    if rows is not None and out is not None and rows.absolute() == out.absolute():
        raise ScenarioError(f"--rows and --out are the same file, {out}")
    with sink(out, as_json) as target:
        from ridgeline import validation

        result: dict[str, Any]
        if kind is None:
            result = {"schema_version": 1, **{name: validation.run(name) for name in validation.KINDS}}
        else:
            names = (str(name) if name else None for name in (path, training, rows))
            source, training_file, rows_file = names
            result = validation.run(kind, source, training=training_file, rows=rows_file)

        def text() -> Renderables:
            from ridgeline.report import data_report

            return data_report(result)

        target.emit(lambda: result, text)
