"""`ridgeline validate`: one call for every kind of file, one object back."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import UnknownName
from ridgeline.files import whole_file
from ridgeline.validation.scores import Report, ScoredRow

COLUMNS = ("id", "measured", "predicted", "low", "high", "unit", "fills", "notes")
KINDS = ("training", "memory", "inference", "power")
# The reference cases that the package ships: an even spread of each published set (scripts/sample_cases.py).
SHIPPED = {
    "training": ("training.csv",),
    "memory": ("memory.csv",),
    "inference": ("inference_llm.csv", "inference_other.csv"),
    "power": ("power_llm.csv", "power_diffusion.csv", "power_wall.csv"),
}


def run(
    kind: str,
    path: str | None = None,
    *,
    training: str | None = None,
    rows: str | None = None,
    catalog: Catalog | None = None,
) -> dict[str, Any]:
    """Score the file `path` of published measurements of `kind` ("training", "memory", "inference", "power").

    Without `path` the reference cases that the package ships are scored. `training` names the training rows that a
    memory file refers to; `rows` a CSV file to write with a line for each scored row. Returns the object that
    `--json` prints: counts, skipped reasons, errors on speed, bias, coverage of the 80 % intervals, rank agreement,
    the naive baseline, and the same by source, device and family.
    """
    known = _scorers()
    if kind not in known:
        raise UnknownName("kind of validation", kind, known)
    if rows is None:
        return score(kind, path, training, catalog or load_catalog()).to_dict()
    with whole_file(Path(rows), "--rows") as write:
        report = score(kind, path, training, catalog or load_catalog())
        write(rows_text(report.scored))
    return report.to_dict()


def score(kind: str, path: str | None, training: str | None, catalog: Catalog) -> Report:
    """The report of one file, or of all shipped cases of `kind` together."""
    scorer = _scorers()[kind]
    if path is not None:
        return scorer(path, catalog, training)
    folder = Path(__file__).parent / "cases"
    parts = [scorer(str(folder / name), catalog, training) for name in SHIPPED[kind]]
    whole = Report(kind, "shipped reference cases", sum(part.rows_count for part in parts))
    for part in parts:
        whole.scored += part.scored
        for reason, count in part.skipped.items():
            whole.skipped[reason] = whole.skipped.get(reason, 0) + count
    return whole


def _scorers() -> dict[str, Callable[[str, Catalog, str | None], Report]]:
    from ridgeline.validation.inference import score_inference
    from ridgeline.validation.memory import score_memory
    from ridgeline.validation.power import score_power
    from ridgeline.validation.training import score_training

    return {
        "training": lambda path, catalog, _: score_training(path, catalog),
        "memory": lambda path, catalog, training: score_memory(path, catalog, training),
        "inference": lambda path, catalog, _: score_inference(path, catalog),
        "power": lambda path, catalog, _: score_power(path, catalog),
    }


def rows_text(rows: Sequence[ScoredRow]) -> str:
    """CSV with a line for each scored row."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(COLUMNS)
    for row in rows:
        numbers = (row.measured, row.predicted, row.low, row.high)
        cells = (row.id, *(f"{x:.6g}" for x in numbers), row.unit, "; ".join(row.fills), "; ".join(row.notes))
        writer.writerow(cells)
    return stream.getvalue()
