"""Power of one chip from its activity, at the published clock (no capping, no temperature yet)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.core import model


@model(
    id="chip-power-from-activity",
    sources=("rl-power-form",),
    valid={"compute_frac": (0.0, 1.0), "memory_frac": (0.0, 1.0)},
)
def chip_power_w(
    idle_w: Any,
    tdp_w: Any,
    compute_frac: Any,
    memory_frac: Any,
    base_frac: Any,
    compute_share_frac: Any,
    memory_share_frac: Any,
) -> Any:
    """Mean draw of a busy chip [W].

    `compute_frac` and `memory_frac` are the shares of the peak matrix rate and of the memory bandwidth in use;
    `base_frac` is drawn by a chip that merely runs kernels, `compute_share_frac` and `memory_share_frac` come on
    top at full use of either; all three are shares of (TDP - idle).

        P = min(TDP, idle + (TDP - idle) (base + memory u_m + compute u_c))

    Assumes the clock that the peaks were stated at; does not model capping, voltage or leakage. The form is that
    of published utilisation models of GPU power; the shares are assumed facts with a range.

    >>> round(float(chip_power_w(70.0, 700.0, 0.5, 0.25, 0.45, 0.8, 0.2)), 6)
    637.0
    """
    share = base_frac + compute_share_frac * compute_frac + memory_share_frac * memory_frac
    return np.minimum(tdp_w, idle_w + (tdp_w - idle_w) * share)
