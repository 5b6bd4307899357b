"""List the records of a kind: ids, names and aliases."""

from __future__ import annotations

from typing import Annotated

import typer

from ridgeline.cli.options import CatalogOption, JsonOption, OutOption

KINDS = "systems, devices, links, models, prices, tariffs, engines, software, assumptions, efficiency, sources"


def command(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"One of: {KINDS}.")],
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
    out: OutOption = None,
) -> None:
    """Print id, name and aliases."""
    from ridgeline.cli.output import Renderables, sink

    with sink(out, as_json) as target:
        from ridgeline.catalog import load_catalog
        from ridgeline.scenario.lookup import list_records

        listed = list_records(load_catalog(catalog or ()), kind)

        def text() -> Renderables:
            from ridgeline.report import list_report

            return list_report(listed)

        target.emit(lambda: listed, text)
