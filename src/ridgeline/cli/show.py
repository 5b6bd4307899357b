"""Show one thing of the catalogue, or a config.json: its figures with their sources, a model with its counts."""

from __future__ import annotations

from typing import Annotated

import typer

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption


def command(
    ref: Annotated[str, typer.Argument(metavar="ID|FILE", help="A catalogue id or alias, or a path to a config.json.")],
    context: Annotated[
        str, typer.Option("--context", metavar="TOKENS", help="Context at which the cache of a model is counted.")
    ] = "8192",
    kv: Annotated[str, typer.Option("--kv", metavar="PRECISION", help="Precision of the cache.")] = "bf16",
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Print the record behind `ref`."""
    from ridgeline.cli.output import Renderables, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario.lookup import show_record

        shown = show_record(load_catalog(catalog or ()), ref, context=context, kv=kv)

        def text() -> Renderables:
            from ridgeline.report import show_report

            return show_report(shown)

        target.emit(lambda: shown, text)
