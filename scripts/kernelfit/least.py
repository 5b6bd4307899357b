"""Least squares of logarithms with a soft-L1 loss, and the record that a fit leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import least_squares

Free = dict[str, tuple[float, float, float]]  # name: (start, low, high); fitted as logarithms


def fit(
    predict: Callable[[Any, dict[str, float]], np.ndarray], sets: Sequence[Any], free: Free, f_scale: float
) -> dict[str, float]:
    """Parameters that all `sets` (each with `seconds`) share; sets weigh the same whatever their number of rows."""
    names = list(free)
    low, high = (np.log([free[name][i] for name in names]) for i in (1, 2))
    rows = np.mean([len(one.seconds) for one in sets])

    def residual(x: np.ndarray) -> np.ndarray:
        values = dict(zip(names, np.exp(x), strict=True))
        parts = [
            (np.log(predict(one, values)) - np.log(one.seconds)) * np.sqrt(rows / len(one.seconds)) for one in sets
        ]
        return np.concatenate(parts)

    start = np.log([free[name][0] for name in names])
    found = least_squares(
        residual, start, bounds=(low, high), loss="soft_l1", f_scale=f_scale, x_scale=0.3, diff_step=1e-3, max_nfev=60
    )
    return dict(zip(names, np.exp(found.x), strict=True))


def scores(predicted: np.ndarray, measured: np.ndarray) -> tuple[float, float, float]:
    """Median, mean and 90th percentile of |predicted/measured - 1|."""
    error = np.abs(predicted / measured - 1)
    return float(np.median(error)), float(error.mean()), float(np.quantile(error, 0.9))


@dataclass
class Fitted:
    """One law to ship: where it holds, its parameters and how far it is from rows that it has not seen."""

    kind: str
    level: str
    scope: str  # device or architecture; "" for all
    parameters: dict[str, float]
    p50: float
    p90: float
    rows: int
    basis: str
    note: str = ""
    tiles: tuple[tuple[int, int], ...] = ()
    sources: tuple[str, ...] = ("aiconfigurator-core", "ridgeline-kernel-laws")
    fact_kind: str = "measured"
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    published_device: bool = False
