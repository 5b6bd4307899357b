"""How long a convolution takes on one chip, in each direction.

Matrix units run a convolution as an implicit product: output positions by channels, the filter's taps times input
channels deep, the operand gathered from the input as it is needed. So the law of products holds, with two differences:
the gathered operand passes through memory once, not once a tap, and channels are padded to what a step of the kernel
takes. Small groups (depthwise, ResNeXt) do not fill matrix units: they run directly on the vector units, or several
groups at once as a block-diagonal product, whichever is shorter.

On vector units (fp32) 3x3 filters run in Winograd's form, with fewer multiplications (Lavin 2015: 2.25 times fewer on
tiles of 2x2, less what the transforms cost). FFT forms are not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ridgeline.core import model
from ridgeline.device.gemm import Product
from ridgeline.device.rates import smooth_max
from ridgeline.specs import Law, bytes_per_element
from ridgeline.workload.ops import Convolve

Number = Any  # a float or an array of floats
_SMOOTH = 4.0  # src: ridgeline-kernel-laws


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLaw:
    """Parameters of convolutions beside those of products.

    `channel_step_count`: channels that one step of the kernel takes at a tap; fewer are padded to it.
    `first_channels_count`: what the special kernels of a first layer (up to so many channels) pad to, over two axes.
    `align_count`: what the channels that a product makes are padded to.
    `pieces_count`: reductions over so many positions are cut into pieces, for enough work for all units.
    `compute_ratio`, `gradient_ratio`: achieved rate over that of products of the same shape, forward and backward;
    `memory_ratio`: the same for memory.
    `winograd_ratio`: how much faster 3x3 filters with stride 1 run by fewer multiplications (1: not used).
    `direct_compute_frac`, `direct_memory_frac`: achieved shares of vector peak and memory rate of direct kernels;
    `direct_gradient_frac`: what of those is left in the weight gradient.
    """

    channel_step_count: float
    first_channels_count: float
    align_count: float
    pieces_count: float
    compute_ratio: float
    gradient_ratio: float
    memory_ratio: float
    winograd_ratio: float
    direct_compute_frac: float
    direct_memory_frac: float
    direct_gradient_frac: float
    launch_s: float


@cache
def convolution_law(law: Law) -> ConvolutionLaw:
    """The record form of a `Law` of kind "convolution"."""
    return ConvolutionLaw(**{name: law.parameters[name] for name in ConvolutionLaw.__slots__})


def rate_ratio(op: Convolve, law: ConvolutionLaw) -> float:
    """Achieved rate of the matrix or vector units over that of a product of the same shape."""
    ratio = law.compute_ratio if op.direction == "forward" else law.gradient_ratio
    small = op.kernel == (3, 3) and op.stride == (1, 1) and op.groups_count == 1  # src: ridgeline-kernel-laws
    return ratio * law.winograd_ratio if small and op.direction != "weight-gradient" else ratio


def packed_groups(op: Convolve, law: ConvolutionLaw) -> int:
    """Groups that one block-diagonal product takes: as many as fill a step of channels.

    Their zeros are multiplied too, so the work grows by this factor.
    """
    if op.groups_count == 1:
        return 1
    width = min(op.inputs_count, op.outputs_count) / op.groups_count
    return max(1, min(op.groups_count, math.floor(law.channel_step_count / width)))


def implicit_product(op: Convolve, law: ConvolutionLaw) -> Product:
    """The product that a convolution is run as, with what of its operands passes through memory.

    forward: (positions of the output) x (output channels), taps x input channels deep;
    input gradient: (positions of the input) x (input channels), taps x output channels over the strides deep;
    weight gradient: (output channels) x (taps x input channels), positions of the output deep, in pieces.
    """
    packed = packed_groups(op, law)
    batch = op.groups_count / packed
    c, k = op.inputs_count / batch, op.outputs_count / batch
    rows_in, rows_out = op.input_count / op.inputs_count, op.output_count / op.outputs_count
    wide, out = bytes_per_element(op.precision), bytes_per_element(op.output_precision)
    x_count, w_count = rows_in * op.read_frac * c, op.weights_count / batch
    if op.direction == "forward":
        deep = op.taps_count * _padded_channels(c, op, law)
        n = _pad(k, law.align_count)
        return Product(
            rows_out, n, deep, batch, wide, wide, out, False, x_count / (rows_out * deep), w_count / (n * deep), k / n
        )
    if op.direction == "weight-gradient":
        return _weight_product(op, law, (batch, c, k), x_count)
    strides = math.prod(op.stride)
    if op.read_frac < 1 or op.kernel == op.stride:  # windows that do not overlap: one product, scattered
        m, n, deep = rows_out, _pad(c * op.taps_count, law.align_count), _pad(k, law.align_count)
    else:
        deep = op.taps_count * _pad(k, law.channel_step_count if op.taps_count > 1 else law.align_count) / strides
        m, n = rows_in, _pad(c, law.align_count)
    return Product(
        m,
        n,
        deep,
        batch,
        wide,
        wide,
        out,
        False,
        rows_out * k / (m * deep),
        w_count / (n * deep),
        rows_in * c / (m * n),
    )


def _weight_product(op: Convolve, law: ConvolutionLaw, shape: tuple[float, float, float], x_count: float) -> Product:
    batch, c, k = shape
    wide, out = bytes_per_element(op.precision), bytes_per_element(op.output_precision)
    rows_out = op.output_count / op.outputs_count
    m, n = _pad(k, law.align_count), op.taps_count * _pad(c, law.align_count)
    pieces = max(1.0, math.floor(rows_out / law.pieces_count))
    deep = rows_out / pieces
    moved = 1.0 / pieces if pieces > 1 else 1.0
    return Product(
        m,
        n,
        deep,
        batch * pieces,
        wide,
        wide,
        out,
        False,
        k / m,
        x_count * moved / (n * deep),
        moved * op.weights_count / batch / (m * n),
    )


def _padded_channels(channels: float, op: Convolve, law: ConvolutionLaw) -> float:
    """Channels at one tap as the kernel reads them: special kernels for a first layer, else whole steps."""
    if channels <= law.first_channels_count and len(op.kernel) <= 2:
        return law.first_channels_count
    if op.taps_count == 1:
        return _pad(channels, law.align_count)
    return _pad(channels, law.channel_step_count)


def _pad(count: float, multiple: float) -> float:
    return float(math.ceil(count / multiple) * multiple)


class DirectTime(NamedTuple):
    """Time of a direct kernel and the roofs under it [s]: vector units, memory, launch floor."""

    time_s: Number
    compute_s: Number
    memory_s: Number
    launch_s: Number


def direct_time(
    op: Convolve, law: ConvolutionLaw, vector_flop_per_s: float, bandwidth_bytes_per_s: float
) -> DirectTime:
    """The convolution on the vector units; its weight gradient reaches a share of the rates only."""
    share = law.direct_gradient_frac if op.direction == "weight-gradient" else 1.0
    return direct_convolution_s(op.flop, op.bytes, law, vector_flop_per_s * share, bandwidth_bytes_per_s * share)


@model(
    id="direct-convolution",
    sources=("ridgeline-kernel-laws",),
    dimensional=False,  # parameters come in a record, which the rescaling test cannot see
)
def direct_convolution_s(
    flop: Number, moved_bytes: Number, law: ConvolutionLaw, vector_flop_per_s: float, bandwidth_bytes_per_s: float
) -> DirectTime:
    """Time of a convolution on the vector units.

    Equation: launch + smooth maximum of flop / (e P) and bytes / (e B): every tap is an operation, every tensor passes
    through memory once. Assumes that neighbouring windows find each other's data in the cache.

    >>> law = ConvolutionLaw(channel_step_count=32.0, first_channels_count=4.0, align_count=8.0, pieces_count=8192.0,
    ...     compute_ratio=1.0, gradient_ratio=1.0, memory_ratio=1.0, winograd_ratio=1.0,
    ...     direct_compute_frac=0.5, direct_memory_frac=0.5, direct_gradient_frac=0.5, launch_s=0.0)
    >>> round(float(direct_convolution_s(1e9, 1e9, law, 1e13, 1e12).time_s) * 1e3, 3)
    2.0
    """
    compute_s = np.asarray(flop, dtype=np.float64) / (law.direct_compute_frac * vector_flop_per_s)
    memory_s = np.asarray(moved_bytes, dtype=np.float64) / (law.direct_memory_frac * bandwidth_bytes_per_s)
    return DirectTime(law.launch_s + smooth_max(compute_s, memory_s, _SMOOTH), compute_s, memory_s, law.launch_s)
