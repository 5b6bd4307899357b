"""Fit of the law of expert products to the kernels of an older release of vLLM, where a table of it was published.

Releases of 2025 and early 2026 chose other kernels and tile sizes for mixtures on Blackwell than those of the newest
table, which are up to twice as fast.
"""

from __future__ import annotations

from functools import cache

import pandas as pd

from kernelfit import moe
from kernelfit.chips import chip as chip_of
from kernelfit.chips import stand_ins
from kernelfit.least import Fitted, fit, scores
from kernelfit.tables import FOLDERS, root, split

RELEASE = "0.19.0"
FAMILY = "vllm-0.19"
DEVICES = ("h200-sxm-141", "b200-sxm")
DTYPES = {"bf16": ("bfloat16", "bf16"), "fp8": ("fp8_block", "fp8")}
FITTED_ROWS = 1500


@cache
def load(device: str, law: str) -> tuple[moe.Data, moe.Data, str] | None:
    """Rows to fit, rows to score and the kernel that most rows are of."""
    path = root() / FOLDERS[device] / "moe" / "vllm" / RELEASE / "moe_perf.parquet"
    dtype, precision = DTYPES[law]
    if not path.exists():
        return None
    frame = pd.read_parquet(path)
    frame["seconds"] = frame["latency"] * 1e-3
    frame = frame[(frame["moe_dtype"] == dtype) & (frame["seconds"] > 0)]
    if len(frame) < 500:
        return None
    source = frame["kernel_source"].value_counts().index[0]
    frame = frame[frame["kernel_source"] == source]
    one, two = split(frame, FITTED_ROWS, 4000)
    return moe._data(one, device, precision, source), moe._data(two, device, precision, source), source


def fit_all() -> list[Fitted]:
    """Laws by device, and the mean of the architecture where one part of it was measured."""
    laws: list[Fitted] = []
    for law in DTYPES:
        for device in DEVICES:
            found = load(device, law)
            if found is None:
                continue
            values = fit(moe.predict, [found[0]], moe.FREE, 0.15)
            s = scores(moe.predict(found[1], values), found[1].seconds)
            shipped = moe.shipped(device, values) | stand_ins(device)
            basis = f"least squares on the vLLM {RELEASE} table ({found[2]}); scored on other rows"
            architecture = chip_of(device).architecture
            tiles = moe.gemm.TILES.get(architecture, moe.COMMON_TILES)
            note = f"measured with {values['other_s'] * 1e6:.0f} us a layer for routing, gather and sum, left out here"
            kind = f"moe.{law}.{FAMILY}"
            laws.append(Fitted(kind, "device", device, shipped, s[0], s[2], FITTED_ROWS, basis, note, tiles=tiles))
            one = f"fit of {device}"
            note = "error assumed: one device measured"
            laws.append(
                Fitted(kind, "architecture", architecture, shipped, 0.25, 0.6, FITTED_ROWS, one, note, tiles=tiles)
            )
            print(device, kind, found[2], [round(100 * x, 1) for x in s], flush=True)
    return laws
