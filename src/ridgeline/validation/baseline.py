"""The naive figures that every prediction must beat: a flat share of the peak, and of the memory bandwidth.

Half of the device's dense 16-bit peak on the model's own FLOP (1.5 and 2.2 times as fast in 8 and 4 bits), and for
decoding 60 % of the memory bandwidth. These are the corpus's definition and nobody's model.
"""

from __future__ import annotations

from ridgeline.errors import MissingFact
from ridgeline.specs import Chip

PEAK_FRAC = 0.5
BANDWIDTH_FRAC = 0.6
SPEEDUP = {"fp8": 1.5, "mxfp8": 1.5, "nvfp4": 2.2, "mxfp4": 2.2, "fp4": 2.2}
# Whose peak is taken, first the format asked for where it is a wide one.
_WIDE = ("bf16", "fp16", "tf32", "fp32")


def flat_peak_flop_per_s(chip: Chip, precision: str) -> float:
    """The rate that the naive figure grants one device [FLOP/s]; `MissingFact` where the chip has no wide peak."""
    order = (precision, *_WIDE) if precision in ("tf32", "fp32") else _WIDE
    for wide in order:
        if chip.has_peak(wide):
            return PEAK_FRAC * SPEEDUP.get(precision, 1.0) * chip.peak(wide)
    if chip.has_peak("int8"):
        return PEAK_FRAC * chip.peak("int8")
    raise MissingFact(chip.fact_id("peak_dense_flop_per_s.bf16"), "naive figure")


def compute_baseline_s(flop: float, chip: Chip, precision: str, devices_count: float) -> float:
    """Time of `flop` at the flat rate on `devices_count` devices.

    >>> compute_baseline_s(1e15, Chip(id="c", peak_dense_flop_per_s={"bf16": 1e15}), "fp8", 2)  # doctest: +SKIP
    0.6666666666666666
    """
    return flop / (flat_peak_flop_per_s(chip, precision) * devices_count)


def decode_baseline_s(moved_bytes: float, chip: Chip, devices_count: float) -> float:
    """Time to read `moved_bytes` (weights and caches of a step) at 60 % of the bandwidth of `devices_count` devices."""
    bandwidth = chip.need("memory_bandwidth_bytes_per_s", "naive figure")
    return moved_bytes / (BANDWIDTH_FRAC * bandwidth * devices_count)
