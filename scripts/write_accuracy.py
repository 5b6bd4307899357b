"""Write docs/accuracy.md: how far whole predictions are from published measurements, set by set.

    python scripts/write_accuracy.py --shared FOLDER     # all rows of FOLDER/corpus
    python scripts/write_accuracy.py                     # the reference cases that the package ships

The page is made by this command and never by hand. Nothing in the package is fitted to these rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ridgeline.catalog import load_catalog
from ridgeline.validation.run import score
from ridgeline.validation.scores import Report, ScoredRow

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, LEFT_OUT = DOCS / "accuracy.md", DOCS / "left-out-scores.json"
FILES = {
    "Training throughput": ("training", "training.csv"),
    "Peak memory of training": ("memory", "memory.csv"),
    "Inference of language models": ("inference", "inference_llm.csv"),
    "Other inference": ("inference", "inference_other.csv"),
    "Power and energy: language models": ("power", "mlenergy_llm.csv"),
    "Power and energy: pictures and films": ("power", "mlenergy_diffusion.csv"),
    "Power of audited servers": ("power", "mlperf_inference_power.csv"),
}
HEAD = """# How far whole predictions are from published measurements

Written by `python scripts/write_accuracy.py --shared FOLDER`; do not edit. {basis}

Error is |predicted / measured - 1| on speed (times inverted) or on memory; *bias* is the median of predicted /
measured - 1: positive is too fast or too much. *Inside* is the share of measurements within the 80 % interval.
*Naive* is 50 % of the dense 16-bit peak on model operations (x 1.5 in 8 bits, x 2.2 in 4), or 60 % of memory
bandwidth for decoding; for memory, the bytes of the states alone. Sets where the naive figure has the smaller
median error are marked **loses**. No figure is fitted to these rows; the form of the models was chosen by people
who had seen them, so unseen rows may score worse.

Noise floor: near-identical submissions to one benchmark differ by 3.5 % (median) and 12 % (90th percentile); the
same serving configuration moves 4-8 % between engine releases. Nothing much below that means anything.
"""


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def line(name: str, part: dict[str, Any]) -> str:
    naive, ours = part["baseline"]["median_ape"], part["median_ape"]
    mark = " **loses**" if naive is not None and ours is not None and naive < ours else ""
    figures = (part["median_ape"], part["p90_ape"], part["bias"], part["coverage_80"], naive)
    cells = [percent(value) for value in figures]
    rank = "-" if part["spearman"] is None else f"{part['spearman']:.3f}"
    return f"| {name}{mark} | {part['scored']} | {' | '.join(cells)} | {rank} |"


def section(title: str, report: Report) -> list[str]:
    data = report.to_dict()
    out = [f"\n## {title}\n", f"{data['rows']} rows, {data['scored']} scored.\n"]
    out.append("| set | rows | median % | p90 % | bias % | inside % | naive median % | rank agreement |")
    out.append("|---|---|---|---|---|---|---|---|")
    out.append(line("**all**", data))
    out += [line(name, part) for name, part in data["by"]["source"].items()]
    out.append("\n| family | rows | median % | p90 % | bias % | inside % | naive median % | rank agreement |")
    out.append("|---|---|---|---|---|---|---|---|")
    out += [line(name, part) for name, part in data["by"]["family"].items()]
    out.append("\nFarthest off, one a set:\n")
    out.append("| row | device | measured | predicted | ratio on speed |")
    out.append("|---|---|---|---|---|")
    out += [far(row) for row in farthest(report.scored)]
    out.append("\nNot scored:\n")
    out += [f"- {item['count']}: {item['reason']}" for item in data["skipped"][:20]]
    return out


def farthest(rows: list[ScoredRow]) -> list[ScoredRow]:
    worst: dict[str, ScoredRow] = {}
    for row in rows:
        held = worst.get(row.source)
        if held is None or off(row) > off(held):
            worst[row.source] = row
    return sorted(worst.values(), key=off, reverse=True)[:15]


def off(row: ScoredRow) -> float:
    return max(row.ratio, 1 / row.ratio)


def far(row: ScoredRow) -> str:
    return f"| {row.id} | {row.device} | {row.measured:.4g} {row.unit} | {row.predicted:.4g} | {row.ratio:.2f} |"


def table_of_sc21(report: Report) -> list[str]:
    """The six runs with data parallelism that peers are measured on (Narayanan 2021, table 2)."""
    rows = [row for row in report.scored if row.source == "sc21t2" and row.id >= "sc21t2-007"]
    if not rows:
        return []
    out = ["\n### Narayanan 2021, table 2: tensor, pipeline and data parallelism on 384 to 2,240 A100\n"]
    out += ["| row | step time, predicted / measured - 1 % |", "|---|---|"]
    out += [f"| {row.id} | {100 * (1 / row.ratio - 1):+.1f} |" for row in rows]
    mean = sum(abs(1 / row.ratio - 1) for row in rows) / len(rows)
    return [*out, f"\nMean of the absolute errors: {100 * mean:.1f} %.\n"]


def left_out_table() -> list[str]:
    """Rows that nobody looked at while developing, before and after (scripts/score_left_out.py)."""
    if not LEFT_OUT.exists():
        return []
    out = ["\n## Left out of development\n"]
    out.append(
        "Sets, devices and models of docs/left-out.json, chosen by a hash and committed before their next score:"
    )
    out.append("nobody looked at or scored them between the lines of this table.\n")
    out.append("| file | rows of it | state | rows | median % | p90 % | bias % | inside % | rank agreement |")
    out.append("|---|---|---|---|---|---|---|---|---|")
    states = json.loads(LEFT_OUT.read_text(encoding="utf-8"))
    names = sorted({name for files in states.values() for name in files})
    for name, part in ((name, part) for name in names for part in ("left out", "others")):
        for state, files in states.items():
            if name not in files:
                continue
            held = files[name][part]
            cells = [percent(held[key]) for key in ("median_ape", "p90_ape", "bias", "coverage_80")]
            rank = "-" if held["spearman"] is None else f"{held['spearman']:.3f}"
            out.append(f"| {name} | {part} | {state} | {held['scored']:.0f} | {' | '.join(cells)} | {rank} |")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, help="folder that holds corpus/")
    shared = parser.parse_args().shared
    cases = Path(__file__).resolve().parents[1] / "src" / "ridgeline" / "validation" / "cases"
    folder = shared / "corpus" if shared else cases
    basis = "Basis: the whole corpus of published rows." if shared else "Basis: the shipped reference cases."
    catalog = load_catalog()
    page = [HEAD.format(basis=basis)]
    page += left_out_table()
    for title, (kind, name) in FILES.items():
        if not (folder / name).exists():
            continue
        report = score(kind, str(folder / name), None, catalog)
        page += section(title, report)
        if name == "training.csv":
            page += table_of_sc21(report)
    PAGE.write_text("\n".join(page) + "\n", encoding="utf-8")
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
