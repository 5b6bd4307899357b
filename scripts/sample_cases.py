"""Choose the reference cases that the package ships from files of published measurements.

    python scripts/sample_cases.py --shared FOLDER

For each set (the prefix of `id`) an even spread of its rows in file order, whatever is predicted for them: every
k-th row, so that nothing is chosen by how well it fits. Memory cases come with their training rows.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "src" / "ridgeline" / "validation" / "cases"
ROWS_PER_SET = {
    "training": 6,
    "memory": 4,
    "inference_llm": 6,
    "inference_other": 8,
    "power_llm": 24,
    "power_diffusion": 24,
    "power_wall": 24,
}
# Names of the files of power in the corpus.
FILES = {
    "power_llm": "mlenergy_llm",
    "power_diffusion": "mlenergy_diffusion",
    "power_wall": "mlperf_inference_power",
}


def spread(rows: list[dict[str, str]], count: int) -> list[dict[str, str]]:
    """`count` rows at even distances, the first included; all where there are no more."""
    if len(rows) <= count:
        return rows
    return [rows[i * len(rows) // count] for i in range(count)]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def sample(rows: list[dict[str, str]], count: int) -> list[dict[str, str]]:
    sets: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        sets[row["id"].rsplit("-", 1)[0]].append(row)
    return [row for name in sorted(sets) for row in spread(sets[name], count)]


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path.name}: {len(rows)} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True, help="folder that holds corpus/")
    corpus = parser.parse_args().shared / "corpus"
    TARGET.mkdir(exist_ok=True)
    chosen = {
        name: sample(read(corpus / f"{FILES.get(name, name)}.csv"), count) for name, count in ROWS_PER_SET.items()
    }
    have = {row["id"] for row in chosen["training"]}
    needed = {row["id"] for row in chosen["memory"]} - have
    chosen["training"] += [row for row in read(corpus / "training.csv") if row["id"] in needed]
    for name, rows in chosen.items():
        write(TARGET / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
