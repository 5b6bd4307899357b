"""The measured tables of aiconfigurator-core as data frames, and how rows are split into fitted and held out."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

SEED = 20261201
# Folder of the package for each device of the catalogue, and its architecture.
FOLDERS = {
    "a100-sxm4-80": "a100_sxm",
    "h100-sxm5-80": "h100_sxm",
    "h200-sxm-141": "h200_sxm",
    "b200-sxm": "b200_sxm",
    "gb200": "gb200",
    "b300-sxm": "b300_sxm",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}
# One device an architecture, for fits that are to hold for all.
REPRESENTATIVES = ("a100-sxm4-80", "h100-sxm5-80", "b200-sxm", "l40s", "rtx-pro-6000-server")
FRAMEWORKS = ("vllm", "trtllm", "sglang")


@cache
def root() -> Path:
    """Folder of the installed package."""
    import aiconfigurator_core

    return Path(aiconfigurator_core.__file__).parent / "systems" / "data"


def _version_key(name: str) -> tuple[int, ...]:
    digits = "".join(c if c.isdigit() else " " for c in name)
    return tuple(int(part) for part in digits.split())


def table(device: str, group: str, framework: str, name: str) -> pd.DataFrame:
    """One table in its newest version (versions sort as numbers, not as text), with `seconds`; empty if absent."""
    folder = root() / FOLDERS[device] / group / framework
    versions = sorted((p.name for p in folder.iterdir()) if folder.exists() else (), key=_version_key)
    versions = [v for v in versions if (folder / v / name).exists()]
    if not versions:
        return pd.DataFrame()
    frame = pd.read_parquet(folder / versions[-1] / name)
    frame["seconds"] = frame["latency"] * 1e-3
    frame.attrs["version"] = versions[-1]
    return frame[frame["seconds"] > 0]


def split(frame: pd.DataFrame, fit_count: int, test_count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Disjoint random rows to fit and to score; at most half of a small table is fitted."""
    order = np.random.default_rng(SEED).permutation(len(frame))
    fit_count = min(fit_count, len(frame) // 2)
    return frame.iloc[order[:fit_count]], frame.iloc[order[fit_count : fit_count + test_count]]
