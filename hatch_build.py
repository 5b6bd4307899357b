"""Build hook: the wheel carries the catalogue compiled, so that an installed package never reads YAML at start-up."""

from __future__ import annotations

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
        """Called before a wheel is made; a checkout in development compiles on its own."""
        if version == "editable":
            return
        compiled = Path(self.directory) / ".catalog.jsonl"
        compiled.parent.mkdir(parents=True, exist_ok=True)
        compiled.write_bytes(compile_catalogue(Path(self.root) / "src" / "ridgeline"))
        build_data["force_include"][str(compiled)] = TARGET
        self._compiled = compiled

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the intermediate file."""
        if version != "editable":
            self._compiled.unlink(missing_ok=True)


def compile_catalogue(package: Path) -> bytes:
    """The compiled catalogue of the sources in `package`, marked as final."""
    for name, folder in (("ridgeline", package), ("ridgeline.catalog", package / "catalog")):
        # Bare packages, so that only the modules that compile are imported and not what the package offers.
        bare = types.ModuleType(name)
        bare.__path__ = [str(folder)]
        sys.modules[name] = bare
    from ridgeline.catalog import check, compiler, shelf

    records = shelf.resolve_extends(compiler.compile_folder(package / "catalog" / "data"))
    blob = shelf.dump(records, frozen=True)
    if problems := check.all_dangling(shelf.Shelf(blob)):
        raise SystemExit("\n".join(problems))
    return blob
