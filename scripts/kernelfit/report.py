"""docs/accuracy-kernels.md: errors by device and precision on rows that were not fitted."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np

from kernelfit.chips import chip as chip_of
from kernelfit.least import Fitted

HEAD = """# How far the kernel laws are from measured kernels

Written by `python scripts/fit_kernels.py --report`; do not edit. Error is |predicted / measured - 1|, given as
**median / 90th percentile** in percent. Tables: aiconfigurator-core {version} (Apache-2.0; not shipped), the newest
version of each engine's table. All scores are on random rows that no fit has seen.

Three distances:

* *fitted*: parameters of this device, other rows of its tables;
* *device left out*: only measured siblings of its architecture, and this device's datasheet;
* *architecture left out*: one device of each other architecture, and this device's datasheet.

Rows count as they stand in the tables (many short ones: 9-27 % of the 16-bit products take less than 5 us), which is
not the mix of a real step. Two engines that call the same vendor library for the same shape differ by 1-7 % in the
median and 8-45 % at the 90th percentile, so nothing much below 5 % would mean anything.
"""


def cell(score: tuple[float, float, float] | None) -> str:
    return "-" if score is None else f"{100 * score[0]:.1f} / {100 * score[2]:.0f}"


def grid(head: list[str], lines: list[list[str]]) -> str:
    out = ["| " + " | ".join(head) + " |", "|" + "|".join("---" for _ in head) + "|"]
    return "\n".join([*out, *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def mean(rows: list[dict], name: str) -> tuple[float, float, float] | None:
    known = [row[name] for row in rows if row.get(name)]
    return tuple(float(np.mean([one[i] for one in known])) for i in range(3)) if known else None  # type: ignore[return-value]


def report(laws: list[Fitted], rows: dict[str, list[dict]]) -> str:
    parts = [HEAD.format(version=version("aiconfigurator-core"))]
    parts += [_gemm(rows), _narrow(rows), _attention(rows), _moe(rows), _elementwise(rows), _published(laws), GAPS]
    return "\n".join(parts)


def _gemm(rows: dict[str, list[dict]]) -> str:
    names = ("own", "layers", "own.vllm", "own.trtllm", "own.sglang", "alone", "sibling", "left")
    lines = [[row["device"], str(row["rows"]), *(cell(row.get(name)) for name in names)] for row in rows["gemm"]]
    for title, kinds in (("mean, HBM", ("HBM",)), ("mean, GDDR", ("GDDR",))):
        group = [row for row in rows["gemm"] if chip_of(row["device"]).memory_type.startswith(kinds)]
        lines.append([f"**{title}**", "", *(cell(mean(group, name)) for name in names)])
    head = [
        "device",
        "rows",
        "fitted (3 engines)",
        "of these n, k >= 1024",
        "vLLM rows",
        "TensorRT-LLM rows",
        "SGLang rows",
        "fit on vLLM alone, vLLM rows",
        "device left out",
        "architecture left out",
    ]
    note = """
One set of nine parameters a device is shipped, fitted to the tables of three engines together. That costs 0.2-0.7
points on any one table against a fit on that table alone, and it is the better figure for a model: one of the
collections times products with weights that were never initialised, whose long kernels run up to 15 % faster than the
same products on random numbers in the other two (less switching, less power). Weights come from memory in a model; the
collections cycle 1-6 copies, and small ones stay in the cache of parts with a large one: the law has a switch for it.
"""
    lines2 = [
        [row["device"], row["projection"], str(row["rows"]), cell(row["error"]), f"{100 * row['bias']:+.0f}"]
        for row in rows["projections"]
    ]
    check = grid(["device", "projection", "rows", "error", "median bias %"], lines2)
    return "\n".join(
        [
            "## Matrix products, bf16\n",
            grid(head, lines),
            note,
            "### Never fitted: projections of transformer layers (Vidur profiles, fp16)\n",
            "A100 and H100 with their own laws, A40 with that of its architecture (fitted on A100).\n",
            check,
            "### Never fitted: best rates that others published (TFLOP/s)\n",
            grid(
                ["device", "precision", "published best", "best of the law", "difference %"],
                [
                    [
                        r["device"],
                        r["precision"],
                        f"{r['best']:g}",
                        f"{r['law']:.0f}",
                        f"{100 * (r['law'] / r['best'] - 1):+.0f}",
                    ]
                    for r in rows["rates"]
                ],
            ),
            "Published: best over many shapes, Machine Learning Engineering Open Book (source stas00-accelerators).\n",
        ]
    )


def _rate(row: dict) -> list[str]:
    difference = 100 * (row["law"] / row["best"] - 1)
    return [row["device"], row["precision"], f"{row['best']:g}", f"{row['law']:.0f}", f"{difference:+.0f}"]


def _narrow(rows: dict[str, list[dict]]) -> str:
    lines = []
    for name in ("gemm.fp8", "gemm.fp4", "gemm.int8"):
        for row in rows.get(name, ()):
            engines = (cell(row.get(f"own.{engine}")) for engine in ("vllm", "trtllm", "sglang"))
            lines.append([row["device"], row["law"], str(row["rows"]), cell(row["own"]), *engines])
    text = """
These rows time the quantisation of the activations too. It is fitted apart for each engine (a floor and bytes an
element of A) and left out of the shipped law, because casts are operations of their own in a step. Launch, memory and
cache parameters are those of bf16; no split over k. Block-scaled fp8 is not fitted: one collection timed it without
graphs.
"""
    return "\n".join(
        [
            "## Matrix products, narrow\n",
            grid(["device", "precision", "rows", "fitted (all engines)", "vLLM", "TensorRT-LLM", "SGLang"], lines),
            text,
        ]
    )


def _attention(rows: dict[str, list[dict]]) -> str:
    parts = ["## Attention\n"]
    titles = {
        "prefill": "### Prefill (causal, bf16; one query and heads wider than 256 left out)\n",
        "decode": "### Decode, bf16 cache\n",
        "decode.fp8": "### Decode, fp8 cache\n",
        "latent": "### Decode of latent attention (576/512), bf16 cache\n",
        "latent.fp8": "### Decode of latent attention, fp8 cache\n",
    }
    for name, title in titles.items():
        lines = [
            [
                row["device"],
                row["family"],
                str(row["rows"]),
                cell(row["own"]),
                cell(row["window"]),
                cell(row["sibling"]),
                cell(row["left"]),
            ]
            for row in rows[name]
        ]
        head = [
            "device",
            "kernels",
            "rows",
            "fitted",
            "sliding windows (never fitted)",
            "device left out",
            "architecture left out, same kernels",
        ]
        parts += [title, grid(head, lines)]
    parts.append("""
Parameters belong to the kernel family as much as to the chip; across families they do not carry, so there is no
"architecture left out" where a family was measured on one architecture only. Each row times one replayed graph that
also writes the cache: that floor (`replay_s`) is fitted and not used in a model. Some fitted figures are physical: an
exponential costs 0.05 cycles a score and unit on B200 and 0.03 on B300, whose special-function rate was doubled.
FlashAttention-2 decode does not split windowed caches over keys; that is not modelled (40 % there).
""")
    return "\n".join(parts)


def _moe(rows: dict[str, list[dict]]) -> str:
    lines = []
    for name in ("moe.bf16", "moe.fp8", "moe.fp4"):
        for row in rows[name]:
            lines.append(
                [
                    row["device"],
                    row["law"],
                    row["source"].replace("vllm_", "").replace("_", " "),
                    str(row["rows"]),
                    cell(row["own"]),
                    cell(row["balanced"]),
                    cell(row["power"]),
                    cell(row.get("sibling")),
                    f"{row['values']['other_s'] * 1e6:.0f}",
                ]
            )
    head = [
        "device",
        "precision",
        "kernel",
        "rows",
        "fitted",
        "balanced",
        "power law",
        "device left out",
        "us a layer for routing, gather, sum",
    ]
    text = """
A layer of experts: two grouped products (the tile law with as many products as experts have rows), activation, gather
and weighted sum. Power-law rows are those of the busiest device of an expert-parallel group. The last column is
measured with the products and left out of the shipped law.
"""
    return "\n".join(["## Products of experts\n", grid(head, lines), text])


def _elementwise(rows: dict[str, list[dict]]) -> str:
    lines = []
    for row in rows["elementwise"]:
        for device in (
            key
            for key in row
            if key in {d for d in row if isinstance(row[d], tuple)} and not key.endswith(("large", "out"))
        ):
            lines.append(
                [
                    row["kind"],
                    device,
                    cell(row[device]),
                    cell(row.get(f"{device}.large")),
                    cell(row.get("a40 left out")) if device == "a40" else "-",
                ]
            )
    values = [
        [
            row["kind"],
            *(
                f"{row['values'][name]:.3g}"
                for name in ("memory_frac", "unit_bytes_per_cycle", "cached_bytes_per_cycle")
            ),
            f"{row['values']['launch_s'] * 1e6:.1f}",
        ]
        for row in rows["elementwise"]
    ]
    text = """
One set for all devices. Norm, rotary, activation and embedding kernels of that engine are bound by what their
instructions let through a compute unit on A100 and H100 (and by memory on A40); fused training kernels are not in the
data and are assumed at 0.8 of bandwidth (0.6-0.9).
"""
    return "\n".join(
        [
            "## Element-wise work\n",
            grid(["kind", "share of bandwidth", "B/cycle/unit", "cached B/cycle/unit", "floor us"], values),
            grid(["kind", "device", "all sizes", "over 4 MB", "left out of the fit"], lines),
            text,
        ]
    )


def _published(laws: list[Fitted]) -> str:
    lines = []
    for law in laws:
        if law.level == "published":
            ranges = "; ".join(f"{name} {low:g}-{high:g}" for name, (low, high) in law.ranges.items())
            lines.append(
                [
                    law.kind,
                    law.scope or "all",
                    f"{law.parameters['compute_frac']:.2f}",
                    ranges or "-",
                    law.fact_kind,
                    ", ".join(law.sources),
                ]
            )
    return "\n".join(
        [
            "## Without measured kernels\n",
            "Shares of peak from published best rates, or assumed; the interval is wide on purpose.\n",
            grid(["law", "where", "compute_frac", "range", "kind", "sources"], lines),
        ]
    )


GAPS = """## Known gaps

* Products with n or k below 256, and products of one row under 5 us on A100 and L40S (predicted 20-30 % too slow: the
  libraries use other kernels there).
* Misaligned n or k, stream-K, pairs of blocks: not in the tables, not modelled.
* Attention on parts without FlashAttention kernels of their own (Volta, CDNA, Xe) uses the FA2 set: untested.
* The dense (not paged) attention of training uses the paged kernels' parameters; FlashAttention papers give rates
  within 10 % of them on A100 and H100. Backward: five products for two at 0.86 of the forward rate (FlashAttention-2's
  paper).
* fp8 with block scales: the law of fp8 stands in. Weight-only formats: narrower bytes in the law of bf16; a plugin of
  TensorRT-LLM on A100 is 30 % (8 bit) to 60 % (4 bit) slower than that for few rows, because unpacking is not
  modelled; the interval of such products is widened.
* int8: one plugin on A100 only.
"""
