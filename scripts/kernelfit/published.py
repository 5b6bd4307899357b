"""Laws for parts without measured kernels: published achieved rates, and assumptions where there are none."""

from __future__ import annotations

import numpy as np

from kernelfit.chips import catalog
from kernelfit.chips import chip as chip_of
from kernelfit.least import Fitted
from ridgeline.device.gemm import COMMON_TILES, Product, TileLaw, tiled_gemm_s
from ridgeline.device.rates import rates_of

# Best rate of a 16-bit product that was published for a device [TFLOP/s], and where.
BEST = {
    "a100-pcie-80": (252.9, "stas00-accelerators"),
    "gh200-144": (828.6, "stas00-accelerators"),
    "mi300x": (668.4, "stas00-accelerators"),
    "mi325x": (784.9, "stas00-accelerators"),
    "mi355x": (1565.0, "stas00-accelerators"),
}
# Rate of a 16-bit product of that side, repeated without a rest, that was published for a device [TFLOP/s], and where.
# The power cap lowers the clock; products in other precisions are taken to draw as much power a cycle.
STEADY = {"t4": (24.0, 4096.0, "nvidia-forum-t4")}
# Systolic arrays: achieved share of peak (low, best, high) and of bandwidth, edge of the array, sublanes.
ARRAYS = {
    "tpu-v6e": ((0.82, 0.90, 0.92), 0.83, 256.0, 8.0, ("tpu-recipes",)),
    "tpu-v7": ((0.77, 0.827, 0.84), 0.871, 256.0, 8.0, ("tpu-recipes",)),
}
FORWARD = {"smooth_count": 4.0, "backward_flop_ratio": 2.5, "backward_rate_ratio": 0.86}
FLAT_SPREAD = (0.22, 0.55)


def best_fraction(device: str, base: dict[str, float], tiles: tuple, best_flop_per_s: float) -> float:
    """The `compute_frac` with which the fastest product of the law has the published best rate."""
    chip = catalog().chip(device)
    rates = rates_of(chip, "bf16", "published rate")
    sizes = np.array([2048.0, 4096.0, 6144.0, 8192.0, 12288.0, 16384.0])
    low, high = 0.1, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        law = TileLaw(**{**base, "compute_frac": middle, "sustained_frac": 1.0}, tiles=tiles)
        times = tiled_gemm_s(Product(sizes, sizes, sizes), law, rates, np.inf, False).time_s
        low, high = (middle, high) if (2 * sizes**3 / times).max() < best_flop_per_s else (low, middle)
    return middle


def steady_fraction(device: str, base: dict[str, float], tiles: tuple, side: float, flop_per_s: float) -> float:
    """The `sustained_frac` with which the law has the published rate of products that follow each other at once."""
    rates = rates_of(catalog().chip(device), "fp16", "published rate")
    low, high = 0.05, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        law = TileLaw(**{**base, "sustained_frac": middle, "sustained_s": 1e-9}, tiles=tiles)
        time_s = float(tiled_gemm_s(Product(side, side, side), law, rates, np.inf, False).time_s)
        low, high = (middle, high) if 2 * side**3 / time_s < flop_per_s else (low, middle)
    return middle


# Best achieved rate over many shapes of devices that were fitted, which is not used in any fit [TFLOP/s].
CHECKED = {
    ("a100-sxm4-80", "bf16"): 271.2,
    ("h100-sxm5-80", "bf16"): 794.5,
    ("h200-sxm-141", "bf16"): 794.5,
    ("b200-sxm", "bf16"): 1745.0,
    ("b300-sxm", "bf16"): 1769.0,
    ("gb200", "bf16"): 1822.0,
    ("h100-sxm5-80", "fp8"): 1402.6,
    ("h200-sxm-141", "fp8"): 1453.4,
    ("b200-sxm", "fp8"): 3432.5,
    ("b300-sxm", "fp8"): 3353.3,
    ("gb200", "fp8"): 3615.6,
}


def check(laws: list[Fitted]) -> list[dict]:
    """Best rate of the laws of fitted devices against the published best rate."""
    named = {(law.scope, law.kind): law for law in laws if law.level == "device"}
    sides = np.array([1024.0, 2048.0, 3072.0, 4096.0, 6144.0, 8192.0, 12288.0, 16384.0])
    m, n, k = (x.ravel() for x in np.meshgrid(sides, sides, sides))
    rows = []
    for (device, precision), best in CHECKED.items():
        law = named[device, f"gemm.{precision}"]
        own = {name: x for name, x in law.parameters.items() if name not in ("unit_count", "clock_hz", "cache_bytes")}
        wide = 1.0 if precision == "fp8" else 2.0
        rates = rates_of(chip_of(device), precision, "check")
        product = Product(m, n, k, 1.0, wide, wide, 2.0)
        times = tiled_gemm_s(product, TileLaw(**own, tiles=law.tiles), rates, np.inf, True).time_s
        rows.append(
            {"device": device, "precision": precision, "best": best, "law": (2 * m * n * k / times).max() / 1e12}
        )
    return rows


def laws(named: dict[str, Fitted]) -> list[Fitted]:
    """Published laws; `named` are the fitted laws of 16-bit products by device or architecture ("" for all)."""
    found = []
    for device, (best, source) in BEST.items():
        base = named.get(catalog().chip(device).architecture, named[""])
        own = {k: v for k, v in base.parameters.items() if k not in ("unit_count", "clock_hz", "cache_bytes")}
        tiles = base.tiles or COMMON_TILES
        frac = best_fraction(device, own, tiles, best * 1e12)
        text = f"best published 16-bit product {best:g} TFLOP/s fixes compute_frac; else as {base.scope or 'all'}"
        found.append(
            Fitted(
                "gemm.bf16",
                "published",
                device,
                own | {"compute_frac": frac, "sustained_frac": 1.0},
                max(0.1, base.p50),
                max(0.27, base.p90),
                0,
                text,
                "error assumed",
                tiles=tiles,
                sources=(source, "ridgeline-kernel-laws"),
                fact_kind="derived",
                published_device=True,
            )
        )
    return found + _steady(named) + _arrays() + _flat()


def _steady(named: dict[str, Fitted]) -> list[Fitted]:
    """Laws of devices whose power cap one steady product shows; the rest is that of the architecture, or of all."""
    found = []
    for device, (rate, side, source) in STEADY.items():
        base = named.get(catalog().chip(device).architecture, named[""])
        own = {k: v for k, v in base.parameters.items() if k not in ("unit_count", "clock_hz", "cache_bytes")}
        tiles = base.tiles or COMMON_TILES
        frac = steady_fraction(device, own, tiles, side, rate * 1e12)
        text = f"a steady product of {rate:g} TFLOP/s fixes sustained_frac; else as {base.scope or 'all'}"
        found.append(
            _law(
                "gemm.bf16",
                device,
                own | {"sustained_frac": frac},
                (max(0.1, base.p50), max(0.27, base.p90)),
                text,
                note="error assumed",
                tiles=tiles,
                sources=(source, "ridgeline-kernel-laws"),
                fact_kind="derived",
                published_device=True,
            )
        )
    return found


def _array(frac: float, memory: float, edge: float, rows: float) -> dict[str, float]:
    return {
        "compute_frac": frac,
        "memory_frac": memory,
        "launch_s": 1e-6,
        "smooth_count": 4.0,
        "edge_count": edge,
        "row_count": rows,
    }


def _law(kind: str, scope: str, parameters: dict, spread: tuple[float, float], text: str, **more) -> Fitted:
    return Fitted(kind, "published", scope, parameters, *spread, 0, text, **more)


def _arrays() -> list[Fitted]:
    found = []
    for device, ((low, best, high), memory, edge, rows, sources) in ARRAYS.items():
        text = "published achieved share of peak and of bandwidth; padding to the array"
        for kind in ("gemm.bf16", "gemm.fp8", "gemm.int8"):
            note = "spread between published sizes and timings" if kind == "gemm.bf16" else "taken from 16-bit products"
            spread = (0.06, 0.15) if kind == "gemm.bf16" else (0.12, 0.3)
            found.append(
                _law(
                    kind,
                    device,
                    _array(best, memory, edge, rows),
                    spread,
                    text,
                    note=note,
                    sources=(*sources, "ridgeline-kernel-laws"),
                    fact_kind="derived",
                    published_device=True,
                    ranges={"compute_frac": (low, high)},
                )
            )
    for kind in ("gemm.bf16", "gemm.fp8", "gemm.int8"):
        found.append(
            _law(
                kind,
                "tpu",
                _array(0.85, 0.84, 128.0, 8.0),
                (0.08, 0.2),
                "mean of v6e and v7, of which alone rates of products are published",
                sources=("tpu-recipes", "ridgeline-kernel-laws"),
                fact_kind="derived",
                ranges={"compute_frac": (0.77, 0.92)},
            )
        )
    found.append(
        _law(
            "attention-prefill.compiled",
            "tpu",
            {"compute_frac": 0.5, "memory_frac": 0.8, "launch_s": 5e-6, **FORWARD},
            (0.2, 0.5),
            "no kernel rate published; between GPU kernels of 2022 and 2024",
            sources=("ridgeline-kernel-laws",),
            fact_kind="assumed",
            ranges={"compute_frac": (0.3, 0.7)},
        )
    )
    found.append(
        _law(
            "attention-decode.compiled",
            "tpu",
            {"compute_frac": 0.3, "memory_frac": 0.7, "launch_s": 5e-6, **FORWARD},
            (0.2, 0.5),
            "no kernel rate published",
            sources=("ridgeline-kernel-laws",),
            fact_kind="assumed",
            ranges={"memory_frac": (0.5, 0.85)},
        )
    )
    gaudi = {"gaudi2": (418.7, "bf16", 826.5), "gaudi3": (1243.0, "bf16", 1289.5)}
    for device, (wide, _, narrow) in gaudi.items():
        chip = catalog().chip(device)
        for kind, best, precision in (("gemm.bf16", wide, "bf16"), ("gemm.fp8", narrow, "fp8")):
            frac = best * 1e12 / chip.peak(precision)
            found.append(
                _law(
                    kind,
                    device,
                    _array(frac, 0.85, 128.0, 1.0),
                    (0.1, 0.3),
                    f"best published product {best:g} TFLOP/s over the peak of the catalogue; bandwidth share assumed",
                    sources=("stas00-accelerators", "ridgeline-kernel-laws"),
                    fact_kind="derived",
                    published_device=True,
                    ranges={"memory_frac": (0.7, 0.92)},
                )
            )
    # The cores of a chip share a product, each with an array of 128 of its own: two cores, four logical ones of trn2.
    for scope, edge in (("neuron", 256.0), ("trainium2", 512.0)):
        for kind in ("gemm.bf16", "gemm.fp8", "gemm.int8"):
            found.append(
                _law(
                    kind,
                    scope,
                    _array(0.6, 0.8, edge, 1.0),
                    (0.2, 0.45),
                    "no rate of products is published for these parts; cores share a product, each with its own array",
                    sources=("ridgeline-kernel-laws", "aws-neuron-docs"),
                    fact_kind="assumed",
                    published_device=scope == "trainium2",
                    ranges={"compute_frac": (0.4, 0.85)},
                )
            )
    return found


def _flat() -> list[Fitted]:
    """What holds for all where nothing better is known."""
    rate = {"launch_s": 3e-6, "memory_frac": 0.8}
    project = ("ridgeline-kernel-laws",)
    return [
        _law(
            "gemm",
            "",
            _array(0.6, 0.8, 1.0, 1.0) | {"launch_s": 3e-6},
            FLAT_SPREAD,
            "parts whose units, clock or cache are not known: published shares of peak lie between 0.47 and 0.97",
            sources=("stas00-accelerators", *project),
            fact_kind="assumed",
            ranges={"compute_frac": (0.3, 0.9)},
        ),
        _law(
            "attention-prefill",
            "",
            {"compute_frac": 0.4, **rate, **FORWARD},
            FLAT_SPREAD,
            "as gemm, less",
            sources=project,
            fact_kind="assumed",
            ranges={"compute_frac": (0.2, 0.7)},
        ),
        _law(
            "attention-decode",
            "",
            {"compute_frac": 0.3, **rate, **FORWARD},
            FLAT_SPREAD,
            "as gemm",
            sources=project,
            fact_kind="assumed",
            ranges={"memory_frac": (0.5, 0.9)},
        ),
        _law(
            "attention-prefill.fa1",
            "",
            {"compute_frac": 0.33, **rate, **FORWARD},
            (0.12, 0.3),
            "FlashAttention-2's paper: the first version reaches 25-40 % of the peak of an A100",
            sources=("dao-2023-flashattention2",),
            fact_kind="paper",
            ranges={"compute_frac": (0.25, 0.40)},
        ),
        _law(
            "attention-prefill.fa2",
            "hopper",
            {"compute_frac": 0.38, **rate, **FORWARD},
            (0.1, 0.25),
            "FlashAttention-3's paper: FlashAttention-2 reaches 35 % of the peak of an H100",
            sources=("shah-2024-flashattention3",),
            fact_kind="paper",
            ranges={"compute_frac": (0.30, 0.42)},
        ),
    ]
