"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioArgument = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML); see examples/.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a value, e.g. --set site.pue=1.3; may be repeated."),
]
CatalogOption = Annotated[
    list[Path] | None,
    typer.Option("--catalog", metavar="DIR", help="A folder with facts of your own; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="The answer as JSON.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write the answer to FILE (whole or not at all).")
]
