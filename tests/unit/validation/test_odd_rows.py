"""Cells that cannot be: the row is counted with its reason, the others are scored, and nothing breaks."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import ridgeline.validation
from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import ScenarioError
from ridgeline.validation import run
from ridgeline.validation.each_row import RANGES

CASES = Path(ridgeline.validation.__file__).parent / "cases"
KINDS = {
    "training.csv": "training",
    "inference_llm.csv": "inference",
    "inference_other.csv": "inference",
    "memory.csv": "memory",
    "power_llm.csv": "power",
    "power_diffusion.csv": "power",
    "power_wall.csv": "power",
}
ODD = ("-1", "0", "1e30", "1e400", "nan", "-inf", "9" * 400, "1e-300")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The shipped catalogue."""
    return load_catalog(plugins=False)


def rows_of(name: str, count: int) -> tuple[list[str], list[dict[str, str]]]:
    with (CASES / name).open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        return list(reader.fieldnames or []), [row for row, _ in zip(reader, range(count), strict=False)]


def scored(folder: Path, name: str, rows: list[dict[str, str]], catalog: Catalog, **how: Any) -> dict[str, Any]:
    path = folder / name
    with path.open("w", newline="", encoding=how.get("encoding", "utf-8")) as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    training = str(CASES / "training.csv") if name == "memory.csv" else None
    return run(KINDS[name], str(path), training=training, catalog=catalog)


@pytest.mark.parametrize("name", KINDS)
def test_odd_numbers_are_counted_with_their_column(name: str, tmp_path: Path, catalog: Catalog) -> None:
    header, (row,) = rows_of(name, 1)
    columns = [column for column in RANGES if column in header]
    rows = [row | {column: value} for column in columns for value in ODD]
    report = scored(tmp_path, name, rows, catalog)
    reasons = {item["reason"]: item["count"] for item in report["skipped"]}
    assert report["rows"] == len(rows)
    for column in columns:
        count = sum(number for reason, number in reasons.items() if reason.startswith(f"{column} "))
        least = RANGES[column][0]
        assert count >= len(ODD) - (2 if least == 0 else 0), (column, reasons)
    assert [reason for reason in reasons if "not computable" in reason] == []


def test_a_degree_that_is_no_whole_number_and_a_precision_that_nobody_knows(tmp_path: Path, catalog: Catalog) -> None:
    _, rows = rows_of("training.csv", 12)
    odd = [rows[0] | {"tp": "1.5"}, *(row | {"precision": "fp17"} for row in rows[1:])]
    report = scored(tmp_path, "training.csv", odd, catalog)
    reasons = [item["reason"] for item in report["skipped"]]
    assert "tp '1.5' is no whole number" in reasons
    assert "precision 'fp17' is not known" in reasons


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path, catalog: Catalog) -> None:
    _, rows = rows_of("training.csv", 2)
    plain = scored(tmp_path, "training.csv", rows, catalog)
    marked = scored(tmp_path, "training.csv", rows, catalog, encoding="utf-8-sig")
    assert marked == plain


def test_a_file_without_rows_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    path = tmp_path / "none.csv"
    path.write_text(",".join(rows_of("training.csv", 0)[0]) + "\n")
    with pytest.raises(ScenarioError, match=r"none\.csv: holds no rows under its header"):
        run("training", str(path), catalog=catalog)
