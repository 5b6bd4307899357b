"""Fit of expert products: two grouped products, an activation and the gather and sum around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

from kernelfit import gemm
from kernelfit.chips import chip as chip_of
from kernelfit.chips import stand_ins
from kernelfit.least import Fitted, Free, fit, scores
from kernelfit.tables import FOLDERS, split, table
from ridgeline.device.gemm import COMMON_TILES, Product, tiled_gemm_s
from ridgeline.device.rates import rates_of
from ridgeline.specs import Chip, bytes_per_element

DRAWS = 6
OWN = ("launch_cycles", "compute_frac", "memory_frac", "feed_flop_per_byte", "wave_k_count")
FREE: Free = {
    "launch_cycles": (5000.0, 500.0, 60000.0),
    "compute_frac": (0.7, 0.1, 1.0),
    "memory_frac": (0.7, 0.1, 1.0),
    "feed_flop_per_byte": (55.0, 10.0, 800.0),
    "wave_k_count": (160.0, 5.0, 3000.0),
    "other_s": (5e-6, 1e-7, 1e-4),
    "other_frac": (0.4, 0.03, 1.0),
}
DTYPES = {"bf16": ("bfloat16", "bf16"), "fp8": ("fp8", "fp8"), "fp4": ("nvfp4", "nvfp4")}


@cache
def routed(tokens: int, experts: int, topk: int, ep: int, alpha: float) -> tuple[float, float]:
    """Rows and touched experts of the measured device.

    Balanced: an equal share. Power law: counts drawn as the collection draws them, and the busiest device of the
    group (mean of a few draws).
    """
    if alpha == 0.0:
        return tokens * topk / ep, min(experts, tokens * topk) / ep
    rng = np.random.default_rng(7)
    rows, touched = [], []
    for _ in range(DRAWS):
        low, high = (1.0, tokens * 0.8) if tokens * topk > experts else (0.01, 2.0)
        power = 1.0 - alpha
        share = ((high**power - low**power) * rng.random(experts) + low**power) ** (1.0 / power)
        count = np.minimum(np.round(share / share.sum() * tokens * topk), tokens)
        order = np.argsort(-count)
        missing = int(tokens * topk - count.sum())
        for i in range(abs(missing)):
            at = order[i % experts]
            if 0 <= count[at] + np.sign(missing) <= tokens:
                count[at] += np.sign(missing)
        groups = count.reshape(ep, -1) if experts % ep == 0 else count[None]
        best = groups[groups.sum(1).argmax()]
        rows.append(best.sum())
        touched.append((best > 0).sum())
    return float(np.mean(rows)), float(np.mean(touched))


@dataclass
class Data:
    """Rows of one device and precision. `other_rows` pass through the activation: all rows where kernels mask experts
    that live elsewhere instead of leaving their rows out."""

    device: str
    precision: str
    tokens: np.ndarray
    rows: np.ndarray
    other_rows: np.ndarray
    touched: np.ndarray
    hidden: np.ndarray
    inter: np.ndarray
    ragged: np.ndarray
    seconds: np.ndarray

    @property
    def chip(self) -> Chip:
        return chip_of(self.device)


@cache
def load(device: str, law: str) -> tuple[Data, Data, str] | None:
    dtype, precision = DTYPES[law]
    # On Hopper the fp8 kernel of the vLLM table reads weights at a sixth of the bandwidth; block-scaled Triton is used.
    hopper = law == "fp8" and chip_of(device).architecture == "hopper"
    framework = "sglang" if hopper else "vllm"
    dtype = "fp8_block" if hopper else dtype
    frame = table(device, "moe", framework, "moe_perf.parquet")
    if not len(frame) or not chip_of(device).has_peak(precision):
        return None
    frame = frame[frame["moe_dtype"] == dtype]
    if len(frame) < 500:
        return None
    source = frame["kernel_source"].value_counts().index[0]
    frame = frame[frame["kernel_source"] == source]
    one, two = split(frame, 1500, 4000)
    return _data(one, device, precision, source), _data(two, device, precision, source), source


def _data(frame: pd.DataFrame, device: str, precision: str, source: str) -> Data:
    alpha = frame["distribution"].str.extract(r"power_law_([\d.]+)")[0].astype(float).fillna(0.0)
    keys = zip(frame.num_tokens, frame.num_experts, frame.topk, frame.moe_ep_size, alpha, strict=True)
    pairs = np.array([routed(*map(int, key[:4]), float(key[4])) for key in keys])
    masks = "triton" in source or "fused_moe" in source
    every = (frame.num_tokens * frame.topk).to_numpy(float)
    return Data(
        device,
        precision,
        frame.num_tokens.to_numpy(float),
        pairs[:, 0],
        every if masks else pairs[:, 0],
        np.maximum(pairs[:, 1], 1.0),
        frame.hidden_size.to_numpy(float),
        (frame.inter_size / frame.moe_tp_size).to_numpy(float),
        (alpha > 0).to_numpy(),
        frame.seconds.to_numpy(),
    )


def predict(data: Data, values: dict[str, float]) -> np.ndarray:
    """The measured operation: gate and up, activation, down, gather and weighted sum; the same experts every time."""
    wide = bytes_per_element(data.precision)
    base = gemm.law_of(gemm.device_fit(data.device), gemm.TILES.get(data.chip.architecture, COMMON_TILES))
    law = replace(base, split_count_max=1.0, **{name: values[name] for name in OWN})
    rates = rates_of(data.chip, data.precision, "fit")
    m = np.maximum(data.rows / data.touched, 1e-3)
    total = np.zeros_like(m)
    for n, k in ((2 * data.inter, data.hidden), (data.hidden, data.inter)):
        equal, ragged = (
            tiled_gemm_s(Product(m, n, k, data.touched, wide, wide, 2.0, r), law, rates, 1.0, True).time_s
            for r in (False, True)
        )
        total += np.where(data.ragged, ragged, equal)
    moved = 2.0 * (data.other_rows * (3 * data.inter + 2 * data.hidden) + data.tokens * data.hidden)
    return total + values["other_s"] + moved / (values["other_frac"] * rates.bandwidth_bytes_per_s)


def shipped(device: str, values: dict[str, float]) -> dict[str, float]:
    base = gemm.device_fit(device)
    return gemm.FIXED | base | {name: values[name] for name in OWN} | {"split_count_max": 1.0}


def fit_all(law: str) -> tuple[list[Fitted], list[dict]]:
    """Laws of expert products in one precision, by device and architecture, and for all."""
    laws, rows = [], []
    free = FREE
    for device in FOLDERS:
        found = load(device, law)
        if found is None:
            continue
        one, two, source = found
        values = fit(predict, [one], free, 0.15)
        predicted = predict(two, values)
        s = scores(predicted, two.seconds)
        row = {"device": device, "law": law, "source": source, "rows": len(two.seconds), "own": s, "values": values}
        for name, mask in (("balanced", ~two.ragged), ("power", two.ragged)):
            row[name] = scores(predicted[mask], two.seconds[mask]) if mask.sum() > 50 else None
        mates = [d for d in gemm.siblings(device) if load(d, law)]
        if mates:
            row["sibling"] = scores(
                predict(two, fit(predict, [load(d, law)[0] for d in mates], free, 0.15)), two.seconds
            )
        rows.append(row)
        note = f"measured with {values['other_s'] * 1e6:.0f} us a layer for routing, gather and sum, left out here"
        laws.append(
            Fitted(
                f"moe.{law}",
                "device",
                device,
                shipped(device, values) | stand_ins(device),
                s[0],
                s[2],
                1500,
                f"least squares on the table of {source}; scored on other rows",
                note,
            )
        )
        print(device, "moe", law, source, [round(100 * x, 1) for x in s], flush=True)
    for architecture in dict.fromkeys(chip_of(x.scope).architecture for x in laws):
        group = [x for x in laws if x.level == "device" and chip_of(x.scope).architecture == architecture]
        best = min(group, key=lambda x: x.p50)
        known = [r["sibling"] for r in rows if r.get("sibling") and chip_of(r["device"]).architecture == architecture]
        p50, p90 = (
            (float(np.mean([x[i] for x in known])) for i in (0, 2)) if known else (1.5 * best.p50, 1.5 * best.p90)
        )
        plain = {k: v for k, v in best.parameters.items() if k not in ("unit_count", "clock_hz", "cache_bytes")}
        note = "error: measured sibling left out" if known else "error widened by 1.5: not tested on a sibling"
        laws.append(
            Fitted(
                f"moe.{law}",
                "architecture",
                architecture,
                plain,
                p50,
                p90,
                best.rows,
                f"fit of {best.scope}",
                note,
                tiles=best.tiles,
            )
        )
    return laws, rows
