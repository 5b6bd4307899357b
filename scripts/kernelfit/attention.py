"""Fit of the attention laws, prefill and decode, per kernel family."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from kernelfit import gemm
from kernelfit.chips import chip as chip_of
from kernelfit.chips import stand_ins
from kernelfit.least import Fitted, Free, fit, scores
from kernelfit.tables import FOLDERS, split, table
from ridgeline.device import attention
from ridgeline.device.rates import rates_of
from ridgeline.specs import Chip

F_SCALE = 0.15
WIDTH = {"bfloat16": 2.0, "fp8": 1.0}
# Kernel family of each vLLM table, by architecture.
FAMILY = {"ampere": "fa2", "ada": "fa2", "blackwell-consumer": "fa2", "hopper": "fa3", "blackwell": "flashinfer"}
# Rows of queries that a block of threads handles, and whether short groups of heads are packed into one block.
SHAPE = {"fa2": (64.0, 0.0), "fa3": (128.0, 1.0), "flashinfer": (128.0, 0.0)}
PREFILL: Free = {
    "replay_s": (6e-6, 1e-7, 6e-5),
    "block_cycles": (3000.0, 1.0, 30000.0),
    "compute_frac": (0.75, 0.3, 1.0),
    "score_cycles": (0.02, 1e-4, 0.5),
    "memory_frac": (0.8, 0.2, 1.0),
    "write_frac": (0.6, 0.05, 1.0),
    "balance_count": (2.0, 1.0, 8.0),
}
# Backward: five products instead of two; 63 against 73 % of peak (FlashAttention-2 on A100).
PREFILL_FIXED = {"backward_flop_ratio": 2.5, "backward_rate_ratio": 0.86, "smooth_count": 4.0}
DECODE: Free = {
    "replay_s": (5e-6, 1e-7, 6e-5),
    "feed_bytes_per_cycle": (30.0, 3.0, 200.0),
    "block_cycles": (1500.0, 10.0, 30000.0),
    "split_s": (2e-6, 1e-8, 3e-5),
    "memory_frac": (0.85, 0.2, 1.0),
    "cache_gain": (2.0, 1.0, 10.0),
    "head_s": (1e-9, 1e-12, 1e-7),
    "smooth_count": (2.0, 1.0, 8.0),
}
DECODE_FIXED = {"compute_frac": 0.6}
LATENT: Free = DECODE | {"compute_frac": (0.6, 0.05, 1.0)}


@dataclass
class Data:
    """Rows of one device: shapes as arrays."""

    device: str
    family: str
    element_bytes: float
    frame: pd.DataFrame

    def __getattr__(self, name: str) -> np.ndarray:
        return self.frame[name].to_numpy(float)

    @property
    def chip(self) -> Chip:
        return chip_of(self.device)

    @property
    def window(self) -> np.ndarray:
        if "window_size" not in self.frame:
            return np.full(len(self.frame), np.inf)
        return np.where(self.window_size > 0, self.window_size, np.inf)


def floor_cycles(device: str) -> float:
    """Launch floor in a stream: that of a product on the same device."""
    values = gemm.device_fit(device)
    return float((values["launch_cycles"] ** 4 + values["ramp_cycles"] ** 4) ** 0.25)


def predict_prefill(data: Data, values: dict[str, float]) -> np.ndarray:
    """The measured operation: a replayed graph that writes keys and values to the cache and attends."""
    tile, pack = SHAPE[data.family]
    own = {k: values[k] for k in ("block_cycles", "compute_frac", "score_cycles", "memory_frac", "balance_count")}
    law = attention.PrefillLaw(
        **PREFILL_FIXED, **own, launch_cycles=floor_cycles(data.device), pack_groups=pack, tile_queries=tile
    )
    d, heads, kv = data.head_dim, data.num_heads, data.num_key_value_heads
    scores_ = attention.Scores(data.batch_size, data.isl, data.isl, heads, kv, d, d, data.window)
    rates = rates_of(data.chip, "bf16", "fit")
    written = 4.0 * data.batch_size * data.isl * kv * d * 2.0
    time = attention.prefill_s(scores_, law, rates).time_s
    return time + values["replay_s"] + written / (values["write_frac"] * rates.bandwidth_bytes_per_s)


def predict_decode(data: Data, values: dict[str, float]) -> np.ndarray:
    keys = np.minimum(data.step + 1.0, data.window)
    d, heads, kv = data.head_dim, data.num_heads, data.num_key_value_heads
    own = {k: values[k] for k in DECODE if k != "replay_s"}
    grouped = 1.0 if data.family == "fa2" else 0.0
    law = attention.DecodeLaw(**DECODE_FIXED, **own, launch_cycles=floor_cycles(data.device), split_groups_only=grouped)
    scores_ = attention.Scores(data.batch_size, 1.0, keys, heads, kv, d, d)
    read = data.batch_size * keys * kv * 2.0 * d * data.element_bytes
    rates = rates_of(data.chip, "bf16", "fit")
    return attention.decode_s(scores_, read, law, rates, True).time_s + values["replay_s"]


def predict_latent(data: Data, values: dict[str, float]) -> np.ndarray:
    """Latent attention in the compressed space: one key head of 576, values are its first 512."""
    own = {k: values[k] for k in LATENT if k != "replay_s"}
    law = attention.DecodeLaw(**own, launch_cycles=floor_cycles(data.device), split_groups_only=0.0)
    keys = data.step + 1.0
    scores_ = attention.Scores(data.batch_size, 1.0, keys, data.num_heads, 1.0, 576.0, 512.0)
    rates = rates_of(data.chip, "bf16", "fit")
    read = data.batch_size * keys * 576.0 * data.element_bytes
    return attention.decode_s(scores_, read, law, rates, True).time_s + values["replay_s"]


PHASES = {
    "prefill": ("context", predict_prefill, PREFILL),
    "decode": ("generation", predict_decode, DECODE),
    "decode-latent": ("", predict_latent, LATENT),
}


@cache
def load(device: str, phase: str, kv_dtype: str) -> tuple[Data, Data, Data] | None:
    """Rows to fit, to score, and with windows (never fitted). One query is decode; wide heads use other kernels."""
    if phase == "decode-latent":
        return _load_latent(device, kv_dtype)
    frame = table(device, "attention", "vllm", f"{PHASES[phase][0]}_attention_perf.parquet")
    keep = (frame["attn_dtype"] == "bfloat16") & (frame["kv_cache_dtype"] == kv_dtype) & (frame["head_dim"] <= 256)
    other = "fa4|triton|decode" if phase == "prefill" else "fa4|triton"
    keep &= ~frame["kernel_source"].str.contains(other)
    if phase == "prefill":
        keep &= frame["isl"] > 1
    frame = frame[keep]
    if len(frame) < 500:
        return None
    family = FAMILY[chip_of(device).architecture]
    if frame["kernel_source"].iloc[0].startswith("vllm_flashinfer"):
        family = "flashinfer"
    windowed = frame["window_size"] > 0 if "window_size" in frame else pd.Series(False, index=frame.index)
    one, two = split(frame[~windowed], 1500, 5000)
    wide = WIDTH[kv_dtype]
    return Data(device, family, wide, one), Data(device, family, wide, two), Data(device, family, wide, frame[windowed])


def _load_latent(device: str, kv_dtype: str) -> tuple[Data, Data, Data] | None:
    """Latent decode of SGLang and TensorRT-LLM (FA2 parts run Triton there; fp8 on FA3 is two
    different operations in the two tables, a factor of five apart)."""
    family = FAMILY[chip_of(device).architecture]
    frames = [table(device, "mla", name, "generation_mla_perf.parquet") for name in ("sglang", "trtllm")]
    frames = [f[f["kv_cache_dtype"] == kv_dtype] for f in frames if len(f)]
    if family == "fa2" or not frames or (family == "fa3" and kv_dtype == "fp8"):
        return None
    frame = pd.concat(frames, ignore_index=True)
    one, two = split(frame, 1200, 5000)
    wide = WIDTH[kv_dtype]
    return Data(device, family, wide, one), Data(device, family, wide, two), Data(device, family, wide, frame.iloc[:0])


@cache
def fitted(devices: tuple[str, ...], phase: str, kv_dtype: str) -> dict[str, float]:
    sets = [pair[0] for d in devices if (pair := load(d, phase, kv_dtype))]
    return fit(PHASES[phase][1], sets, PHASES[phase][2], F_SCALE)


def score(phase: str, values: dict[str, float], data: Data) -> tuple[float, float, float] | None:
    if not len(data.frame):
        return None
    return scores(PHASES[phase][1](data, values), data.seconds)


def parameters(device: str, family: str, phase: str, values: dict[str, float]) -> dict[str, float]:
    """What is shipped: without the writing of the cache, an operation of its own."""
    own = {k: v for k, v in values.items() if k != "write_frac"} | {"launch_cycles": floor_cycles(device)}
    if phase == "decode-latent":
        return own | {"split_groups_only": 0.0}
    if phase == "decode":
        return own | DECODE_FIXED | {"split_groups_only": 1.0 if family == "fa2" else 0.0}
    tile, pack = SHAPE[family]
    return own | PREFILL_FIXED | {"tile_queries": tile, "pack_groups": pack}


def fit_phase(phase: str, kv_dtype: str) -> tuple[list[Fitted], list[dict]]:
    """Laws of one phase: per device, per architecture, and per family for what was not measured."""
    laws, rows = [], []
    suffix = "" if kv_dtype == "bfloat16" else ".fp8"
    families: dict[str, list[str]] = {}
    for device in FOLDERS:
        found = load(device, phase, kv_dtype)
        if found is None:
            continue
        family = found[0].family
        values = fitted((device,), phase, kv_dtype)
        s = score(phase, values, found[1])
        mates = tuple(d for d in FOLDERS if d != device and (x := load(d, phase, kv_dtype)) and x[0].family == family)
        same = tuple(d for d in mates if chip_of(d).architecture == chip_of(device).architecture)
        foreign = tuple(d for d in mates if d not in same)
        row = {"device": device, "family": family, "kv": kv_dtype, "rows": len(found[1].frame), "own": s}
        row["window"] = score(phase, values, found[2])
        row["sibling"] = score(phase, fitted(same, phase, kv_dtype), found[1]) if same else None
        row["left"] = score(phase, fitted(foreign, phase, kv_dtype), found[1]) if foreign else None
        rows.append(row)
        families.setdefault(family, []).append(device)
        kind = f"attention-{phase}.{family}{suffix}"
        source = "SGLang and TensorRT-LLM tables" if phase == "decode-latent" else "vLLM table"
        basis = f"least squares on the {source} ({kv_dtype} cache); scored on other rows"
        laws.append(
            Fitted(
                kind,
                "device",
                device,
                parameters(device, family, phase, values) | stand_ins(device),
                s[0],
                s[2],
                1500,
                basis,
            )
        )
        print(device, phase, family, kv_dtype, [round(100 * x, 1) for x in s], flush=True)
    for family, devices in families.items():
        laws += _wider(phase, kv_dtype, f"attention-{phase}.{family}{suffix}", family, devices, rows)
    return laws, rows


def _wider(phase: str, kv_dtype: str, kind: str, family: str, devices: list[str], rows: list[dict]) -> list[Fitted]:
    """Laws for devices that were not measured: of the architecture, and for all where kernels run everywhere (FA2)."""
    laws = []
    mine = {row["device"]: row for row in rows if row["family"] == family}
    for architecture in dict.fromkeys(chip_of(d).architecture for d in devices):
        group = tuple(d for d in devices if chip_of(d).architecture == architecture)
        values = fitted(group, phase, kv_dtype)
        name = "sibling" if len(group) > 1 else "left"
        known = [mine[d][name] for d in group if mine[d][name]]
        p50, p90 = (float(np.mean([x[i] for x in known])) for i in (0, 2)) if known else (0.25, 0.6)
        note = {"sibling": "error: measured sibling left out", "left": "error: architecture left out"}[name]
        laws.append(
            Fitted(
                kind,
                "architecture",
                architecture,
                parameters(group[0], family, phase, values),
                p50,
                p90,
                1500 * len(group),
                f"fit of {', '.join(group)}",
                note,
            )
        )
    if len({chip_of(d).architecture for d in devices}) == 1 or family != "fa2":
        return laws  # kernels of one architecture
    values = fitted(tuple(devices), phase, kv_dtype)
    known = [row["left"] for row in mine.values() if row["left"]]
    p50, p90 = (float(np.mean([x[i] for x in known])) for i in (0, 2)) if known else (0.25, 0.6)
    note = (
        "error: architecture left out" if known else "error assumed: one architecture measured, families do not carry"
    )
    laws.append(
        Fitted(
            kind,
            "universal",
            "",
            parameters(devices[0], family, phase, values),
            p50,
            p90,
            1500 * len(devices),
            f"fit of {', '.join(devices)}",
            note,
        )
    )
    return laws
