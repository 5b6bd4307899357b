"""Reading a file of published measurements: columns checked, cells as text or numbers."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ridgeline.errors import ScenarioError

# Commas between groups of three digits only: "32,64" is a list, "1,024" a number.
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
# Columns that decide what a file is; every one must be there.
COLUMNS: dict[str, tuple[str, ...]] = {
    "training": ("id", "model", "family", "device", "n_devices", "framework", "precision", "metric", "value"),
    "memory": ("id", "peak_mem", "unit", "kind"),
    "inference-llm": ("id", "model", "device", "engine", "weight_precision", "input_len", "metric", "value"),
    "power-llm": ("id", "task", "model_id", "gpu", "n_gpus", "avg_power_w", "energy_per_token_j"),
    "power-diffusion": ("id", "task", "model_id", "gpu", "n_gpus", "avg_power_w", "energy_per_item_j"),
    "power-wall": ("id", "platform", "accelerator", "accelerators_per_node", "model", "avg_system_power_w"),
    "inference-other": ("id", "model", "task", "device", "engine", "precision", "batch", "metric", "value"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the file. Blank cells mean that the source does not say."""

    cells: Mapping[str, str]
    line: int

    @property
    def id(self) -> str:
        """Identifier; its prefix names the set."""
        return self.text("id")

    @property
    def source(self) -> str:
        """The set that the row belongs to: its id without the running number.

        >>> Row({"id": "sc21t2-001"}, 2).source
        'sc21t2'
        """
        return self.id.rsplit("-", 1)[0]

    def text(self, column: str) -> str:
        """The cell, stripped; empty where blank or where the file has no such column."""
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """The cell as a number, None where blank or not a number ("max load", "32,64")."""
        text = self.text(column)
        if _THOUSANDS.fullmatch(text):
            text = text.replace(",", "")
        try:
            value = float(text)
        except ValueError:
            return None
        return value if value == value and abs(value) != float("inf") else None

    def count(self, column: str) -> int | None:
        """The cell as a whole number, None where it is none."""
        value = self.number(column)
        return int(value) if value is not None and value == int(value) else None


def read_rows(path: str | Path, kind: str) -> list[Row]:
    """All rows of a CSV file of `kind` (a key of `COLUMNS`); `ScenarioError` naming file and cause where it is none."""
    header, rows = _read(Path(path))
    missing = [column for column in COLUMNS[kind] if column not in header]
    if missing:
        raise ScenarioError(
            f"{path}: not a {kind} file: columns missing: {', '.join(missing)}; found {', '.join(header[:12])}"
        )
    if not rows:
        raise ScenarioError(f"{path}: holds no rows under its header")
    return rows


def inference_kind(path: str | Path) -> str:
    """Which of the two inference files `path` is, by its columns."""
    return _kind_of(path, "an inference file", ("inference-llm", "inference-other"))


def power_kind(path: str | Path) -> str:
    """Which of the three files of power `path` is, by its columns."""
    return _kind_of(path, "a file of power", ("power-llm", "power-diffusion", "power-wall"))


def _kind_of(path: str | Path, what: str, kinds: tuple[str, ...]) -> str:
    header, _ = _read(Path(path))
    for kind in kinds:
        if all(column in header for column in COLUMNS[kind]):
            return kind
    wanted = " or ".join(", ".join(COLUMNS[kind]) for kind in kinds)
    raise ScenarioError(f"{path}: not {what}: needs the columns {wanted}; found {', '.join(header[:12])}")


def _read(path: Path) -> tuple[list[str], list[Row]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            header = list(reader.fieldnames or [])
            rows = [Row(cells, line) for line, cells in enumerate(reader, start=2)]
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:
        raise ScenarioError(f"{path}: not a CSV file in UTF-8: {error}") from error
    if not header:
        raise ScenarioError(f"{path}: the file is empty")
    return header, rows
