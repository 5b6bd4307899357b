"""Fit of the law of expert products to TensorRT-LLM's own kernels (cutlass), in the last release that has them."""

from __future__ import annotations

from functools import cache

import pandas as pd

from kernelfit import moe
from kernelfit.chips import chip as chip_of
from kernelfit.chips import stand_ins
from kernelfit.engine_attention import DEVICES, FAMILY
from kernelfit.least import Fitted, fit, scores
from kernelfit.tables import FOLDERS, root, split

RELEASE = "1.3.0rc20"
SOURCE = "moe_torch_flow_cutlass"
DTYPES = {"bf16": ("bfloat16", "bf16"), "fp8": ("fp8", "fp8"), "fp4": ("nvfp4", "nvfp4")}
FITTED_ROWS = 900


@cache
def load(device: str, law: str) -> tuple[moe.Data, moe.Data] | None:
    """Rows to fit and rows to score."""
    path = root() / FOLDERS[device] / "moe" / "trtllm" / RELEASE / "moe_perf.parquet"
    dtype, precision = DTYPES[law]
    if not path.exists() or not chip_of(device).has_peak(precision):
        return None
    frame = pd.read_parquet(path)
    frame["seconds"] = frame["latency"] * 1e-3
    frame = frame[(frame["moe_dtype"] == dtype) & (frame["kernel_source"] == SOURCE) & (frame["seconds"] > 0)]
    if len(frame) < 500:
        return None
    one, two = split(frame, FITTED_ROWS, 3000)
    return moe._data(one, device, precision, SOURCE), moe._data(two, device, precision, SOURCE)


def fit_all() -> list[Fitted]:
    """Laws by device, and by architecture for siblings that were not measured."""
    laws: list[Fitted] = []
    for law in DTYPES:
        groups: dict[str, list[str]] = {}
        for device in DEVICES:
            found = load(device, law)
            if found is None:
                continue
            values = fit(moe.predict, [found[0]], moe.FREE, 0.15)
            s = scores(moe.predict(found[1], values), found[1].seconds)
            shipped = moe.shipped(device, values) | stand_ins(device)
            basis = f"least squares on the TensorRT-LLM {RELEASE} table ({SOURCE}); scored on other rows"
            tiles = moe.gemm.TILES.get(chip_of(device).architecture, moe.COMMON_TILES)
            note = f"measured with {values['other_s'] * 1e6:.0f} us a layer for routing, gather and sum, left out here"
            kind = f"moe.{law}.{FAMILY}"
            laws.append(Fitted(kind, "device", device, shipped, s[0], s[2], FITTED_ROWS, basis, note, tiles=tiles))
            groups.setdefault(chip_of(device).architecture, []).append(device)
            print(device, kind, [round(100 * x, 1) for x in s], flush=True)
        for architecture, devices in groups.items():
            laws.append(_of_architecture(law, architecture, devices))
    return laws


def _of_architecture(law: str, architecture: str, devices: list[str]) -> Fitted:
    values = fit(moe.predict, [load(d, law)[0] for d in devices], moe.FREE, 0.15)
    left = []
    for device in devices if len(devices) > 1 else ():
        others = fit(moe.predict, [load(d, law)[0] for d in devices if d != device], moe.FREE, 0.15)
        rows = load(device, law)[1]
        left.append(scores(moe.predict(rows, others), rows.seconds))
    p50 = sum(s[0] for s in left) / len(left) if left else 0.25
    p90 = sum(s[2] for s in left) / len(left) if left else 0.6
    note = "error: measured sibling left out" if left else "error assumed: one device measured"
    tiles = moe.gemm.TILES.get(architecture, moe.COMMON_TILES)
    rows = FITTED_ROWS * len(devices)
    own = moe.shipped(devices[0], values)
    basis = f"fit of {', '.join(devices)}"
    return Fitted(f"moe.{law}.{FAMILY}", "architecture", architecture, own, p50, p90, rows, basis, note, tiles=tiles)
