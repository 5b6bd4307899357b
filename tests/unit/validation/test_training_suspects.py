"""Training rows that contradict their table are counted with the reason, not scored."""

from __future__ import annotations

import csv
from pathlib import Path

import ridgeline.validation
from ridgeline.catalog import load_catalog
from ridgeline.validation import run
from ridgeline.validation.training_suspects import SUSPECTS

CASES = Path(ridgeline.validation.__file__).parent / "cases" / "training.csv"


def test_a_suspect_is_skipped_with_its_evidence(tmp_path: Path) -> None:
    with CASES.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        columns, row = list(reader.fieldnames or []), next(row for row in reader if row["id"].startswith("mosaic-"))
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows([row | {"id": "mosaic-179"}, row | {"id": "mosaic-001"}])
    found = run("training", str(path), catalog=load_catalog(plugins=False))
    assert found["scored"] == 1
    (skipped,) = found["skipped"]
    assert skipped["count"] == 1
    assert "below its neighbours" in skipped["reason"]


def test_every_suspect_names_a_row_and_its_evidence() -> None:
    assert all(id.rsplit("-", 1)[1].isdigit() and len(id.rsplit("-", 1)[1]) == 3 for id in SUSPECTS)
    assert all(len(reason) > 20 for reason in SUSPECTS.values())
