"""Score the row sets that were left out of development (docs/left-out.json) apart from the others.

    python scripts/score_left_out.py --shared FOLDER --label "before"

Adds the figures under the label to docs/left-out-scores.json, from which scripts/write_accuracy.py makes its table of
before and after. The sets are chosen by a hash, not by us; their rows are not looked at between the two scores.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from ridgeline.catalog import load_catalog
from ridgeline.validation.run import score
from ridgeline.validation.scores import summary

DOCS = Path(__file__).resolve().parents[1] / "docs"
LIST, SCORES = DOCS / "left-out.json", DOCS / "left-out-scores.json"
SHOWN = ("scored", "median_ape", "p90_ape", "bias", "coverage_80", "spearman")


def left_out_ids(path: Path, rule: dict[str, Any]) -> set[str]:
    """Ids of the rows of one file whose set, or device or model of a set, is left out."""
    found = set()
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for row in csv.DictReader(stream):
            name = row["id"].rsplit("-", 1)[0]
            parts = rule["parts"].get(name, {})
            if name in rule["sets"] or any(row[column] in values for column, values in parts.items()):
                found.add(row["id"])
    return found


def figures(rows: list[Any]) -> dict[str, float | None]:
    """The figures of some rows that the page shows."""
    whole = summary(rows)
    return {key: None if whole[key] is None else round(float(whole[key]), 4) for key in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True, help="folder that holds corpus/")
    parser.add_argument("--file", help="one file of the list alone; the others keep what they have")
    parser.add_argument("--label", required=True, help="what the figures are called in the table")
    asked = parser.parse_args()
    held = json.loads(SCORES.read_text(encoding="utf-8")) if SCORES.exists() else {}
    catalog, found = load_catalog(), held.setdefault(asked.label, {})
    for name, rule in json.loads(LIST.read_text(encoding="utf-8"))["files"].items():
        if asked.file not in (None, name):
            continue
        path = asked.shared / "corpus" / name
        kind = "training" if name == "training.csv" else "inference" if name.startswith("inference") else "power"
        scored = score(kind, str(path), None, catalog).scored
        ids = left_out_ids(path, rule)
        # A row of a power file gives two figures, told apart behind a dot.
        out = [row for row in scored if row.id.split(".")[0] in ids]
        others = [row for row in scored if row.id.split(".")[0] not in ids]
        found[name] = {"left out": figures(out), "others": figures(others)}
        print(name, json.dumps(found[name]))
    SCORES.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
