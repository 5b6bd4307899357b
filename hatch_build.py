"""Build hook: the wheel carries the catalogue compiled, so that an installed package never reads YAML at start-up."""

from __future__ import annotations

import contextlib
import sys
import types
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "ridgeline/catalog/catalog.jsonl"


class CatalogueHook(BuildHookInterface):
    """Compiles src/ridgeline/catalog/data into one file; stops the build where a record is wrong."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is made; in a checkout it only saves the first start the work."""
        package = Path(self.root) / "src" / "ridgeline"
        if version == "editable":
            warm(package)
            return
        compiled = Path(self.directory) / ".catalog.jsonl"
        compiled.parent.mkdir(parents=True, exist_ok=True)
        compiled.write_bytes(compile_catalogue(package))
        build_data["force_include"][str(compiled)] = TARGET
        self._compiled = compiled

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the intermediate file."""
        if version != "editable":
            self._compiled.unlink(missing_ok=True)


def bare_packages(package: Path) -> None:
    """Make the packages importable without what they offer, so that only the modules that compile are imported."""
    for name, folder in (("ridgeline", package), ("ridgeline.catalog", package / "catalog")):
        bare = types.ModuleType(name)
        bare.__path__ = [str(folder)]
        sys.modules[name] = bare


def warm(package: Path) -> None:
    """Compile the catalogue of a checkout; where a record is wrong, the first start says so."""
    bare_packages(package)
    from ridgeline.catalog.shelf import shipped_blob
    from ridgeline.errors import RidgelineError

    with contextlib.suppress(RidgelineError):
        shipped_blob()


def compile_catalogue(package: Path) -> bytes:
    """The compiled catalogue of the sources in `package`, marked as final."""
    bare_packages(package)
    from ridgeline.catalog import check, compiler, shelf

    records = shelf.resolve_extends(compiler.compile_folder(package / "catalog" / "data"))
    blob = shelf.dump(records, frozen=True)
    if problems := check.all_dangling(shelf.Shelf(blob)):
        raise SystemExit("\n".join(problems))
    return blob
