"""Parameters of the kernel and collective laws: fitted, cited, with their residuals.

The laws live in `device` and `network`; the numbers live in `catalog/data/efficiency/` and are loaded into these
records. Each record says at which level it was made: "device" (fitted on this device), "architecture" (a sibling),
"universal" (all fitted devices), "published" (from published achieved rates), and how far the law was from its own
measurements, which is where intervals come from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline.core import FrozenMap, sigma_of_residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Named parameters of one law on one device, in SI or normalised units.

    `ape_p50_frac` and `ape_p90_frac` are the median and 90th-percentile error on held-out measurements of the
    level at which the parameters were made. `fact` is the id of the record.
    """

    kind: str
    level: str
    parameters: FrozenMap[str, float]
    ape_p50_frac: float
    ape_p90_frac: float
    fact: str
    tiles: tuple[tuple[int, int], ...] = ()

    @property
    def sigma(self) -> float:
        """Log standard deviation for intervals."""
        return sigma_of_residuals(self.ape_p50_frac, self.ape_p90_frac)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All laws for one chip. `laws` is keyed by kernel family, optionally with a precision or variant after a dot:
    "gemm.bf16", "gemm.fp8", "attention-prefill.fa3", "attention-decode.flashinfer", "elementwise", "moe",
    "collective.all_reduce"... The device and network layers say which keys they read and in which order."""

    chip: str
    laws: FrozenMap[str, Law] = field(default_factory=FrozenMap)
