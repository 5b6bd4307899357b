"""Fit of element-wise kernels on the profiles of the Vidur simulator and on cast kernels; check of projections."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from kernelfit.chips import chip as chip_of
from kernelfit.least import Fitted, Free, fit, scores
from kernelfit.tables import FOLDERS, split, table
from ridgeline.core import FrozenMap
from ridgeline.device import elementwise
from ridgeline.device.gemm import Product
from ridgeline.device.optime import gemm_times
from ridgeline.specs import Law

CORPUS = Path(os.environ.get("RIDGELINE_CORPUS", "../shared/corpus"))
DEVICES = {"a100": "a100-sxm4-80", "a40": "a40", "h100": "h100-sxm5-80"}
COLUMNS = {
    "norm": "input_layernorm_median_ms",
    "residual": "add_median_ms",
    "activation": "mlp_act_median_ms",
    "rope": "attn_rope_median_ms",
    "embedding": "emb_median_ms",
}
FREE: Free = {
    "memory_frac": (0.8, 0.3, 1.0),
    "unit_bytes_per_cycle": (6.0, 0.5, 100.0),
    "cached_bytes_per_cycle": (16.0, 2.0, 200.0),
    "launch_s": (2.5e-6, 5e-7, 2e-5),
}


@cache
def vidur() -> pd.DataFrame:
    """The profiles: milliseconds of kernels of one tensor-parallel rank."""
    return pd.read_csv(CORPUS / "vidur_mlp_ops.csv")


def moved_bytes(kind: str, f: pd.DataFrame) -> np.ndarray:
    """16-bit bytes in and out of each kernel of the profile."""
    head = f.n_embd / f.n_head
    gates = np.where(f.use_gated_mlp.astype(str) == "True", 3, 2)
    return np.asarray(
        f.num_tokens
        * 2
        * {
            "norm": 2 * f.n_embd,
            "residual": 3 * f.n_embd,
            "activation": gates * f.n_expanded_embd / f.tp,
            "rope": 2 * (f.n_head + f.n_kv_head) / f.tp * head,
            "embedding": 2 * f.n_embd,
        }[kind],
        dtype=float,
    )


@dataclass
class Data:
    device: str
    moved: np.ndarray
    seconds: np.ndarray


def predict(data: Data, values: dict[str, float]) -> np.ndarray:
    chip = chip_of(data.device)
    law = elementwise.ElementwiseLaw(**values)
    stream = elementwise.Stream(chip.memory_bandwidth_bytes_per_s, chip.l2_bytes, chip.unit_count * chip.clock_hz)
    return elementwise.elementwise_s(data.moved, 1.0, law, stream).time_s


def sets(kind: str) -> list[tuple[Data, Data]]:
    """Rows to fit and to score, by device. Times are rounded to a microsecond: rows under 2 us are left out."""
    found = []
    if kind == "cast":
        for device in FOLDERS:
            for framework in ("trtllm", "vllm"):
                frame = table(device, "quantize", framework, "scale_matrix_perf.parquet")
                if len(frame) and chip_of(device).unit_count:
                    parts = split(frame, 500, 1000)
                    found.append(
                        tuple(Data(device, 3.0 * (x.m * x.k).to_numpy(float), x.seconds.to_numpy()) for x in parts)
                    )
        return found
    for label, device in DEVICES.items():
        frame = vidur()[vidur()["device"] == label]
        seconds = frame[COLUMNS[kind]].to_numpy(float) * 1e-3
        keep = np.isfinite(seconds) & (seconds >= 2e-6)
        frame = frame[keep].assign(seconds=seconds[keep])
        parts = split(frame, 250, 1000)
        found.append(tuple(Data(device, moved_bytes(kind, x), x.seconds.to_numpy()) for x in parts))
    return found


def fit_all() -> tuple[list[Fitted], list[dict]]:
    """One law for all devices: figures by kind of operation, and those of streaming kernels for the rest."""
    rows, parameters, errors = [], {}, []
    for kind in (*COLUMNS, "cast"):
        pairs = sets(kind)
        values = fit(predict, [one for one, _ in pairs], FREE, 0.1)
        row: dict = {"kind": kind, "values": values}
        for device in dict.fromkeys(test.device for _, test in pairs):
            mine = [test for _, test in pairs if test.device == device]
            predicted = np.concatenate([predict(x, values) for x in mine])
            seconds = np.concatenate([x.seconds for x in mine])
            row[device] = scores(predicted, seconds)
            large = np.concatenate([x.moved for x in mine]) > 4e6
            row[f"{device}.large"] = scores(predicted[large], seconds[large])
            errors.append(row[device])
        if kind != "cast":
            without = fit(predict, [one for one, _ in pairs if one.device != "a40"], FREE, 0.1)
            a40 = next(test for _, test in pairs if test.device == "a40")
            row["a40 left out"] = scores(predict(a40, without), a40.seconds)
        rows.append(row)
        parameters |= {f"{kind}.{name}": value for name, value in values.items()}
        print(
            "elementwise",
            kind,
            {k: float(f"{v:.3g}") for k, v in values.items()},
            {k: [round(100 * x, 1) for x in v] for k, v in row.items() if isinstance(v, tuple)},
            flush=True,
        )
    p50, p90 = (float(np.mean([one[i] for one in errors])) for i in (0, 2))
    stream = {name: parameters[f"residual.{name}"] for name in FREE}
    parameters |= {f"default.{name}": value for name, value in stream.items()}
    # Fused training kernels were not measured: streaming kernels bound them from above.
    parameters |= {"fused.memory_frac": 0.8, "fused.unit_bytes_per_cycle": 20.0}
    note = (
        "norm, rope, activation and embedding are kernels of an inference engine of 2024; fused.* stands for fused "
        "training kernels, assumed between the norm kernels here (0.6) and plain addition (0.9)"
    )
    law = Fitted(
        "elementwise",
        "universal",
        "",
        parameters,
        p50,
        p90,
        250 * 15 + 500 * 18,
        "least squares on profiles of A100, A40 and H100 and on cast kernels of nine devices; scored on other rows",
        note,
        sources=("vidur-mlp-ops", "aiconfigurator-core", "ridgeline-kernel-laws"),
    )
    return [law], rows


def check_projections(laws: dict[str, Fitted]) -> list[dict]:
    """Projections, never fitted: A100 and H100 with their own laws, A40 with that of its architecture."""
    rows = []
    for label, device in DEVICES.items():
        f = vidur()[vidur()["device"] == label]
        source = laws[device] if device in laws else laws["ampere"]
        law = Law(
            kind="gemm.bf16",
            level=source.level,
            parameters=FrozenMap(source.parameters),
            ape_p50_frac=0,
            ape_p90_frac=0,
            fact="",
            tiles=source.tiles,
        )
        head = f.n_embd / f.n_head
        gates = np.where(f.use_gated_mlp.astype(str) == "True", 2, 1)
        shapes = {
            "attn_pre_proj": ((f.n_head + 2 * f.n_kv_head) * head / f.tp, f.n_embd),
            "attn_post_proj": (f.n_embd, f.n_head * head / f.tp),
            "mlp_up_proj": (gates * f.n_expanded_embd / f.tp, f.n_embd),
            "mlp_down_proj": (f.n_embd, f.n_expanded_embd / f.tp),
        }
        for name, (n, k) in shapes.items():
            seconds = f[f"{name}_median_ms"].to_numpy(float) * 1e-3
            product = Product(f.num_tokens.to_numpy(float), np.asarray(n, float), np.asarray(k, float))
            predicted = gemm_times(product, law, chip_of(device), "bf16").time_s
            keep = np.isfinite(seconds) & (seconds > 0)
            s = scores(predicted[keep], seconds[keep])
            bias = float(np.median(predicted[keep] / seconds[keep] - 1))
            rows.append({"device": device, "projection": name, "rows": int(keep.sum()), "error": s, "bias": bias})
            print("vidur", device, name, [round(100 * x, 1) for x in s], round(100 * bias, 1), flush=True)
    return rows
