"""Measured convolution and batch-normalisation kernels against the laws: what the calibration rests on.

Times are published ones (see the sources pytorch-channels-last-kernels and tvm-cutlass-kernels in the catalogue).
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ridgeline.catalog import load_catalog
from ridgeline.core import FrozenMap
from ridgeline.device import op_time
from ridgeline.specs import Calibration, Chip
from ridgeline.workload.ops import ConvolutionDirection, Convolve, Elementwise

ROWS = list(csv.DictReader((Path(__file__).parent / "convolution_kernels.csv").read_text().splitlines()))
CATALOG = load_catalog()
# Shorter calls show the host's launch time, not the kernel's.
HOST_BOUND_S = 1.5e-4


def convolve(row: dict[str, str], direction: ConvolutionDirection) -> Convolve:
    axes = int(row["axes"])
    size, kernel, stride, padding = (int(row[key]) for key in ("size", "kernel", "stride", "padding"))
    out = (size + 2 * padding - kernel) // stride + 1
    return Convolve(
        name="measured",
        direction=direction,
        batch_count=float(row["batch"]),
        inputs_count=int(row["inputs"]),
        outputs_count=int(row["outputs"]),
        in_spatial=(size,) * axes,
        out_spatial=(out,) * axes,
        kernel=(kernel,) * axes,
        stride=(stride,) * axes,
        math_precision="fp16",
        precision="fp16",
        output_precision="fp16",
    )


def stream_s(moved: float, launches: float, chip: Chip, laws: Calibration) -> float:
    op = Elementwise(name="around", kind="stream", bytes=moved, launches_count=launches)
    return op_time(op, chip, laws).time_s


def predicted_s(row: dict[str, str]) -> float:
    """The call that was timed: the kernel and what the script ran around it."""
    chip = CATALOG.chip(row["device"])
    laws = CATALOG.calibration(chip.id)
    if row["what"] == "input-gradient":  # fp16 accumulation: twice the rate of fp32 accumulation on this part
        chip = replace(chip, peak_dense_flop_per_s=FrozenMap({k: 2 * v for k, v in chip.peak_dense_flop_per_s.items()}))
    op = convolve(row, "forward")
    x, y, w = 2 * op.input_count, 2 * op.output_count, 2 * op.weights_count
    if row["what"] == "forward with bias":
        return op_time(op, chip, laws).time_s + stream_s(2 * y, 1, chip, laws)
    if row["what"] == "both gradients, accumulated":
        both = sum(op_time(convolve(row, d), chip, laws).time_s for d in ("input-gradient", "weight-gradient"))
        return both + stream_s(y + 3 * x + 3 * w, 3, chip, laws)
    return op_time(convolve(row, row["what"]), chip, laws).time_s  # type: ignore[arg-type]


def _is_kernel_time(row: dict[str, str]) -> bool:
    """Not the host's; and not the strided 3-D gradients of 2020, which the library ran two to four times longer."""
    backward = "gradients" in row["what"]
    return float(row["time_s"]) > HOST_BOUND_S * (2 if backward else 1) and not (backward and row["stride"] != "1")


def errors(device: str, what: str) -> np.ndarray:
    rows = [row for row in ROWS if row["device"] == device and row["what"] == what and _is_kernel_time(row)]
    return np.array([predicted_s(row) / float(row["time_s"]) - 1 for row in rows])


@pytest.mark.parametrize(
    ("device", "what", "median", "bias"),
    [
        ("a100-sxm4-40", "forward with bias", 0.15, 0.10),
        ("a100-sxm4-40", "both gradients, accumulated", 0.12, 0.10),
        ("v100-sxm2-16", "forward with bias", 0.15, 0.10),
        ("v100-sxm2-16", "both gradients, accumulated", 0.25, 0.15),
        ("rtx-3070", "weight-gradient", 0.15, 0.10),
        ("rtx-3070", "input-gradient", 0.18, 0.10),
    ],
)
def test_measured_convolutions(device: str, what: str, median: float, bias: float) -> None:
    found = errors(device, what)
    assert len(found) >= 11
    assert np.median(np.abs(found)) < median
    assert abs(np.median(found)) < bias


@pytest.mark.parametrize(
    ("device", "passes", "measured_s"),
    [
        # 16 volumes of 64 channels at 112^3 in fp16: 2.877e9 bytes a pass; forward three passes, backward five and
        # three of the accumulation that the script keeps.
        ("a100-sxm4-40", 3, 6.516e-3),
        ("a100-sxm4-40", 8, 17.064e-3),
        ("v100-sxm2-32", 3, 11.978e-3),
        ("v100-sxm2-32", 8, 29.195e-3),
    ],
)
def test_measured_batch_normalisation(device: str, passes: int, measured_s: float) -> None:
    chip = CATALOG.chip(device)
    moved = 16 * 64 * 112**3 * 2.0 * passes
    op = Elementwise(name="norm", kind="batch-norm", bytes=moved)
    assert op_time(op, chip, CATALOG.calibration(device)).time_s == pytest.approx(measured_s, rel=0.08)
