"""Fit of the tile law of matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kernelfit.chips import chip as chip_of
from kernelfit.chips import stand_ins
from kernelfit.least import Fitted, Free, fit, scores
from kernelfit.tables import FOLDERS, FRAMEWORKS, REPRESENTATIVES, split, table
from ridgeline.device.gemm import COMMON_TILES, Product, TileLaw, tiled_gemm_s
from ridgeline.device.rates import rates_of
from ridgeline.specs import Chip, bytes_per_element

WIDE_TILES = ((128, 192), (192, 128))
TILES = {"hopper": COMMON_TILES + WIDE_TILES, "blackwell": COMMON_TILES + WIDE_TILES}
FREE: Free = {
    "launch_cycles": (4000.0, 200.0, 40000.0),
    "ramp_cycles": (3500.0, 200.0, 40000.0),
    "compute_frac": (0.8, 0.3, 1.0),
    "memory_frac": (0.8, 0.3, 1.0),
    "feed_flop_per_byte": (55.0, 10.0, 400.0),
    "wave_k_count": (160.0, 5.0, 2000.0),
    "split_s": (2.4e-6, 1e-7, 3e-5),
    "cache_bytes_per_cycle": (8.0, 2.0, 64.0),
    "sustained_frac": (0.95, 0.4, 1.0),
}
FIXED = {"sustained_s": 1e-3, "soft_frac": 0.5, "smooth_count": 4.0, "output_weight": 1.25}
# Quantisation of the activations, timed with the product: a floor and bytes for each element of A.
QUANT: Free = {"quant_s": (2e-6, 1e-8, 5e-5), "quant_bytes": (4.0, 0.05, 40.0)}
DTYPES = {"fp8": ("fp8", "fp8"), "fp4": ("nvfp4", "nvfp4"), "int8": ("sq", "int8")}  # law: (table, precision)
F_SCALE = 0.1


@dataclass
class Data:
    """Rows of one table: one device, framework and precision."""

    device: str
    framework: str
    precision: str
    b_precision: str
    copies: np.ndarray
    m: np.ndarray
    n: np.ndarray
    k: np.ndarray
    seconds: np.ndarray

    @property
    def chip(self) -> Chip:
        return chip_of(self.device)


def copies_of(framework: str, chip: Chip, weight_bytes: np.ndarray) -> np.ndarray:
    """Weight copies that a collection cycles through, read in its collector: 6, or what fills the cache, up to 5."""
    if framework == "trtllm":
        return np.clip(np.ceil(chip.l2_bytes / weight_bytes), 1.0, 5.0)
    return np.full(len(weight_bytes), 6.0)


@cache
def load(
    device: str, framework: str, dtype: str, precision: str, counts: tuple[int, int], b_precision: str = ""
) -> tuple[Data, Data] | None:
    """Rows to fit and rows to score."""
    frame = table(device, "gemm", framework, "gemm_perf.parquet")
    if not len(frame) or dtype not in set(frame["gemm_dtype"]):
        return None
    parts = []
    for rows in split(frame[frame["gemm_dtype"] == dtype], *counts):
        m, n, k, seconds = (rows[c].to_numpy(float) for c in ("m", "n", "k", "seconds"))
        b = b_precision or precision
        copies = copies_of(framework, chip_of(device), n * k * bytes_per_element(b))
        if dtype == "nvfp4" and framework == "vllm":
            copies = np.ones_like(copies)
        parts.append(Data(device, framework, precision, b, copies, m, n, k, seconds))
    return parts[0], parts[1]


def law_of(values: dict[str, float], tiles: Sequence[tuple[int, int]]) -> TileLaw:
    own = {name: value for name, value in values.items() if not name.startswith("quant")}
    return TileLaw(**{**FIXED, **own}, tiles=tuple(tiles))


def predict(data: Data, values: dict[str, float], tiles: Sequence[tuple[int, int]] = ()) -> np.ndarray:
    law = law_of(values, tiles or TILES.get(data.chip.architecture, COMMON_TILES))
    product = Product(
        data.m, data.n, data.k, 1.0, bytes_per_element(data.precision), bytes_per_element(data.b_precision)
    )
    rates = rates_of(data.chip, data.precision, "fit")
    quant = values.get(f"quant_s.{data.framework}", 0.0)
    moved = values.get(f"quant_bytes.{data.framework}", 0.0) * data.m * data.k
    return tiled_gemm_s(product, law, rates, data.copies, True).time_s + quant + moved / rates.bandwidth_bytes_per_s


def layer_like(data: Data) -> Data:
    """Rows of the size of a layer's matrices: n and k of 1024 and more."""
    keep = (data.n >= 1024) & (data.k >= 1024)
    columns = {name: getattr(data, name)[keep] for name in ("copies", "m", "n", "k", "seconds")}
    return replace(data, **columns)


def bf16(device: str, fit_count: int) -> list[tuple[Data, Data]]:
    """The three collections of 16-bit products of one device."""
    found = [load(device, name, "bfloat16", "bf16", (fit_count, 6000)) for name in FRAMEWORKS]
    return [pair for pair in found if pair]


def score(
    values: dict[str, float], tests: Iterable[Data], tiles: Sequence[tuple[int, int]] = ()
) -> tuple[float, float, float]:
    tests = list(tests)
    predicted = np.concatenate([predict(one, values, tiles) for one in tests])
    return scores(predicted, np.concatenate([one.seconds for one in tests]))


@cache
def device_fit(device: str) -> dict[str, float]:
    """Own fit on all three collections."""
    return fit(predict, [one for one, _ in bf16(device, 1200)], FREE, F_SCALE)


@cache
def pooled_fit(devices: tuple[str, ...], common: bool) -> dict[str, float]:
    """One set for several devices."""
    sets = [one for device in devices for one, _ in bf16(device, 450)]
    tiles = COMMON_TILES if common else ()
    return fit(lambda d, v: predict(d, v, tiles), sets, FREE, F_SCALE)


def siblings(device: str) -> tuple[str, ...]:
    return tuple(d for d in FOLDERS if chip_of(d).architecture == chip_of(device).architecture and d != device)


def others(device: str) -> tuple[str, ...]:
    """One device of each other architecture."""
    return tuple(d for d in REPRESENTATIVES if chip_of(d).architecture != chip_of(device).architecture)


def shipped(values: dict[str, float]) -> dict[str, float]:
    return {**values, **FIXED}


def fit_all() -> tuple[list[Fitted], list[dict]]:
    """Laws of 16-bit products at all levels, and the rows of the report."""
    laws, rows = [], []
    for device in FOLDERS:
        pairs = bf16(device, 1200)
        tests = [test for _, test in pairs]
        own = device_fit(device)
        s = score(own, tests)
        sibling = score(pooled_fit(siblings(device), False), tests) if siblings(device) else None
        left = score(pooled_fit(others(device), True), tests, COMMON_TILES)
        single = fit(predict, [pairs[0][0]], FREE, F_SCALE)
        row = {"device": device, "rows": sum(len(t.seconds) for t in tests), "own": s, "sibling": sibling, "left": left}
        row |= {f"own.{t.framework}": score(own, [t]) for t in tests}
        row["layers"] = score(own, [layer_like(t) for t in tests])
        row["alone"] = score(single, [pairs[0][1]])
        rows.append(row)
        tiles = TILES.get(chip_of(device).architecture, COMMON_TILES)
        basis = "least squares on three public collections (vLLM, TensorRT-LLM, SGLang); scored on other rows"
        laws.append(
            Fitted(
                "gemm.bf16", "device", device, shipped(own) | stand_ins(device), s[0], s[2], 3600, basis, tiles=tiles
            )
        )
        print(device, [round(100 * x, 1) for x in s], flush=True)
    for architecture in dict.fromkeys(chip_of(d).architecture for d in FOLDERS):
        group = tuple(d for d in FOLDERS if chip_of(d).architecture == architecture)
        values = pooled_fit(group, False) if len(group) > 1 else device_fit(group[0])
        mine = [row for row in rows if row["device"] in group]
        kind = "sibling" if len(group) > 1 else "left"
        p50, p90 = (float(np.mean([row[kind][i] for row in mine])) for i in (0, 2))
        note = (
            "error: measured sibling left out"
            if len(group) > 1
            else "error: as if the architecture had not been measured"
        )
        tiles = TILES.get(architecture, COMMON_TILES)
        laws.append(
            Fitted(
                "gemm.bf16",
                "architecture",
                architecture,
                shipped(values),
                p50,
                p90,
                1350 * len(group),
                f"fit of {', '.join(group)}",
                note,
                tiles=tiles,
            )
        )
    values = pooled_fit(REPRESENTATIVES, True)
    p50, p90 = (float(np.mean([row["left"][i] for row in rows])) for i in (0, 2))
    laws.append(
        Fitted(
            "gemm.bf16",
            "universal",
            "",
            shipped(values),
            p50,
            p90,
            6750,
            "one device an architecture",
            "error: architecture left out",
            tiles=COMMON_TILES,
        )
    )
    return laws, rows


def fit_narrow(law: str) -> tuple[list[Fitted], list[dict]]:
    """Laws of fp8 or fp4 products; quantisation of activations is fitted apart, by collection, and not shipped."""
    dtype, precision = DTYPES[law]
    laws, rows = [], []
    for device in FOLDERS:
        pairs = [p for name in FRAMEWORKS if (p := load(device, name, dtype, precision, (1200, 5000)))]
        if not pairs or not chip_of(device).has_peak(precision):
            continue
        wide = device_fit(device)
        kept = {name: wide[name] for name in ("launch_cycles", "ramp_cycles", "cache_bytes_per_cycle", "memory_frac")}
        free: Free = {name: FREE[name] for name in FREE if name not in kept and name != "split_s"}
        kept |= {"split_s": wide["split_s"], "split_count_max": 1.0}
        for one, _ in pairs if law != "int8" else ():
            free |= {f"{name}.{one.framework}": bounds for name, bounds in QUANT.items()}
        values = fit(lambda d, v, kept=kept: predict(d, {**kept, **v}), [one for one, _ in pairs], free, 0.15)
        full = {**kept, **values}
        tests = [test for _, test in pairs]
        s = score(full, tests)
        row = {"device": device, "law": law, "rows": sum(len(t.seconds) for t in tests), "own": s}
        row |= {f"own.{t.framework}": score(full, [t]) for t in tests}
        row["quant"] = {k: v for k, v in values.items() if k.startswith("quant")}
        rows.append(row)
        core = {name: value for name, value in full.items() if not name.startswith("quant")}
        basis = "launch, ramp, memory and cache as gemm.bf16; quantisation of activations fitted apart and left out"
        tiles = TILES.get(chip_of(device).architecture, COMMON_TILES)
        laws.append(
            Fitted(
                f"gemm.{law}",
                "device",
                device,
                shipped(core) | stand_ins(device),
                s[0],
                s[2],
                1200 * len(pairs),
                basis,
                tiles=tiles,
            )
        )
        print(
            device, law, [round(100 * x, 1) for x in s], {k: float(f"{v:.3g}") for k, v in values.items()}, flush=True
        )
    for architecture in dict.fromkeys(chip_of(x.scope).architecture for x in laws):
        group = [x for x in laws if x.level == "device" and chip_of(x.scope).architecture == architecture]
        best = min(group, key=lambda x: x.p50)
        plain = {k: v for k, v in best.parameters.items() if k not in ("unit_count", "clock_hz", "cache_bytes")}
        laws.append(
            Fitted(
                f"gemm.{law}",
                "architecture",
                architecture,
                plain,
                1.3 * best.p50,
                1.3 * best.p90,
                best.rows,
                f"fit of {best.scope}",
                "error widened by 1.3: not tested on a sibling",
                tiles=best.tiles,
            )
        )
    return laws, rows
