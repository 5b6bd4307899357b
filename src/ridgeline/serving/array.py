"""Networks on fixed arrays of multipliers: FPGA engines, dataflow chips and USB accelerators that run 8-bit graphs.

Such parts have no kernels to time. An image takes its operations at an achieved share of the array's peak and a fixed
time to fill and drain; what does not stay on the chip is loaded again for every batch; the host prepares inputs.
Equation, for a batch of b images on n cores:
device = load + ceil(b / n) (ops / (e P / n) + fixed), load = fixed + bytes that are not resident / link, once a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ridgeline.core import Breakdown, Interval, leaf, total
from ridgeline.core import model as formula
from ridgeline.errors import BadPlan, MissingFact
from ridgeline.specs import Calibration, Chip, Law

Mode = Literal["latency", "one-thread", "threads", "batch"]
PRECISION = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayWork:
    """One image: `ops_count` operations (a multiply-add is two), `weights_bytes`, `pixels_count` of the input,
    `moved_bytes` of weights and feature maps that pass through memory (0: not known). `attention`: whether it
    multiplies feature maps by each other, for which such arrays are not made. `widest_bytes`: the maps that have to be
    kept at once; where they fit a core's memory, none of them pass through that of the chip. `outputs_count`: elements
    that leave the array, which the host widens and searches (boxes of a detector)."""

    ops_count: float
    weights_bytes: float = 0.0
    pixels_count: float = 0.0
    moved_bytes: float = 0.0
    attention: bool = False
    widest_bytes: float = 0.0
    outputs_count: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayEstimate:
    """Time of one batch on one core, and images a second of the whole part, each with its interval."""

    latency_s: Interval
    samples_per_s: Interval
    time: Breakdown


def array_law(calibration: Calibration, chip: Chip) -> Law:
    """The law of arrays of `chip`; `MissingFact` where there is none."""
    law = calibration.laws.get(f"array.{PRECISION}")
    if law is None:
        raise MissingFact(f"{chip.id}.efficiency.array.{PRECISION}", "time on a fixed array")
    return law


def estimate_array(work: ArrayWork, chip: Chip, calibration: Calibration, batch: float, mode: Mode) -> ArrayEstimate:
    """Latency and rate of a network on a fixed array.

    `mode`: "latency" and "one-thread": one image after the other, the host's preparation in between; "threads": all
    cores fed by as many threads as the host has; "batch": the part alone, inputs prepared beforehand.
    """
    if batch <= 0 or work.ops_count <= 0:
        raise BadPlan(f"{batch:g} images of {work.ops_count:g} operations")
    law = array_law(calibration, chip)
    figures = law.parameters
    cores = figures["core_count"]
    share = figures["compute_frac"] * (figures["attention_frac"] if work.attention else 1.0)
    image_s = array_image_s(work.ops_count, share * chip.peak(PRECISION) / cores, figures["image_s"])
    load_s = _load_s(work, figures)
    host_s = work.pixels_count * figures["host_pixel_s"] + figures["host_image_s"]
    host_s += work.outputs_count * figures.get("host_output_s", 0.0)
    alone = mode != "batch"
    turns = math.ceil(batch / cores)  # images of a batch go to the cores side by side
    tree = total(
        "batch",
        "s",
        [
            leaf("array", turns * image_s, "s", model="fixed-array", uses=(law.fact,)),
            leaf("weights", load_s, "s", uses=(law.fact,)),
            leaf("host", batch * host_s if alone else 0.0, "s", uses=(law.fact,)),
        ],
    )
    latency = Interval.from_sigma(tree.value, law.sigma)
    if mode != "threads":
        return ArrayEstimate(latency_s=latency, samples_per_s=latency.inverted(batch), time=tree)
    rates = [cores * batch / (batch * image_s + cores * load_s)]
    if host_s > 0:
        rates.append(figures["host_workers_count"] / host_s)
    kept = 0 < work.widest_bytes <= figures["map_bytes"]
    if work.moved_bytes > 0 and not kept and chip.memory_bandwidth_bytes_per_s:
        rates.append(figures["memory_frac"] * chip.memory_bandwidth_bytes_per_s / work.moved_bytes)
    rate = sum(each**-_SHARP for each in rates) ** (-1.0 / _SHARP)
    return ArrayEstimate(latency_s=latency, samples_per_s=Interval.from_sigma(rate, law.sigma), time=tree)


def _load_s(work: ArrayWork, figures: Mapping[str, float]) -> float:
    """What a batch waits for weights.

    A graph that does not fit is cut and all of it loaded piece by piece (`whole_reload`), as graphs with attention
    always are; or only the weights beyond the memory travel at every call.
    """
    spilled = max(0.0, work.weights_bytes - figures["resident_bytes"])
    whole = figures["whole_reload"] > 0
    if spilled <= 0 and not (whole and work.attention):
        return 0.0
    return figures["cut_s"] + (work.weights_bytes if whole else spilled) / figures["reload_bytes_per_s"]


# How sharply the slowest of several rates binds.
_SHARP = 4.0  # src: ridgeline-kernel-laws


@formula(id="fixed-array", sources=("rl-derivation",))
def array_image_s(flop: float, achieved_flop_per_s: float, fixed_s: float) -> float:
    """Time of one image: operations at the achieved rate, and what filling and draining the array takes.

    >>> array_image_s(8e9, 8e11, 0.001)
    0.011
    """
    return flop / achieved_flop_per_s + fixed_s
