"""How long a matrix product takes on one chip.

Two laws. `tiled_gemm_s` is for parts whose units, clock and cache are known: the cheapest few of a menu of tiles and
split-K, soft whole waves over the compute units, each limited by its matrix unit or by its operand feed, joined to
the memory time by a smooth maximum whose two arms carry the launch floor. Its parameters are in normalised units
(cycles, FLOP per byte, k-equivalents) so that one set carries from one part to the next.
`systolic_gemm_s` is for parts of which only peaks and bandwidth are published: padding to the array, two achieved
fractions and a floor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeline.core import model
from ridgeline.device.rates import LARGEST_COUNT, Rates, parameters_of
from ridgeline.specs import Law

Number = Any  # a float or an array of floats
Array = NDArray[np.float64]

SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)  # src: ridgeline-kernel-laws
# Tiles that the vendor libraries have on every part (rows, columns of C that one block of threads makes).
COMMON_TILES: tuple[tuple[int, int], ...] = (
    *((rows, columns) for rows in (16, 32, 64, 128) for columns in (64, 128)),  # src: ridgeline-kernel-laws
    *((64, 256), (256, 64), (128, 256), (256, 128)),  # src: ridgeline-kernel-laws
)
_STEP_BYTES = 128.0  # src: ridgeline-kernel-laws
_REFERENCE_TILE = 128.0  # src: ridgeline-kernel-laws
_PARTIAL_BYTES = 8.0  # src: ridgeline-kernel-laws
_PARTIAL_SPEEDUP = 3.0  # src: ridgeline-kernel-laws
_CACHE_EDGE = 16.0  # src: ridgeline-kernel-laws
_FAR = 1e3  # src: ridgeline-kernel-laws
_CHEAPEST = 4  # src: ridgeline-kernel-laws
_QUARTIC = 4.0  # src: ridgeline-kernel-laws


@dataclass(frozen=True, slots=True, kw_only=True)
class TileLaw:
    """Parameters of `tiled_gemm_s`.

    `launch_cycles` and `ramp_cycles`: floors of the compute and of the memory arm (launch, prologue, epilogue; DRAM
    ramp). `compute_frac`, `memory_frac`: achieved share of peak and of bandwidth. `feed_flop_per_byte`: balance of
    operand feed and matrix unit of one compute unit. `wave_k_count`: cost of each further wave, as that many extra
    steps in k of a 128x128 tile. `split_s`: cost of a reduction kernel after split-K. `cache_bytes_per_cycle`: rate of
    the last-level cache per unit and cycle. `sustained_frac`: clock that the power cap leaves in kernels much longer
    than `sustained_s`. `soft_frac`: share of the last wave that is not wasted. `smooth_count`: exponent of the smooth
    maximum. `output_weight`: how much more a byte of C costs than one of A. `split_count_max`: largest split-K.
    """

    launch_cycles: float
    ramp_cycles: float
    compute_frac: float
    memory_frac: float
    feed_flop_per_byte: float
    wave_k_count: float
    split_s: float
    cache_bytes_per_cycle: float
    sustained_frac: float
    sustained_s: float
    soft_frac: float
    smooth_count: float
    output_weight: float
    split_count_max: float = 32.0  # src: ridgeline-kernel-laws
    tiles: tuple[tuple[int, int], ...] = COMMON_TILES


class GemmTime(NamedTuple):
    """Time and the roofs under it [s]: matrix units or operand feed, memory, launch floor; `feed` where feed bounds."""

    time_s: Number
    compute_s: Number
    memory_s: Number
    launch_s: Number
    feed: Number


class Product(NamedTuple):
    """A product C[m, n] = A[m, k] B[k, n], `batch_count` of them, with bytes an element of A, B and C.

    `ragged`: m is the mean of rows that differ from product to product (experts), so that the last tile of each is
    half full on average. `a_moved`, `b_moved`, `c_moved`: elements that pass through memory over m k, k n and m n,
    where that is not one (an operand that is gathered again and again from a smaller tensor, as in convolutions).
    """

    m: Number
    n: Number
    k: Number
    batch_count: Number = 1.0
    a_bytes: float = 2.0
    b_bytes: float = 2.0
    c_bytes: float = 2.0
    ragged: bool = False
    a_moved: Number = 1.0
    b_moved: Number = 1.0
    c_moved: Number = 1.0


@cache
def tile_law(law: Law) -> TileLaw:
    """The record form of a `Law` of kind "gemm..." that has tile parameters."""
    return TileLaw(**parameters_of(law), tiles=law.tiles or COMMON_TILES)


@cache
def refed(law: TileLaw, peak_ratio: float) -> TileLaw:
    """The law for another precision with `peak_ratio` times the peak: a unit takes in the same bytes per cycle."""
    return replace(law, feed_flop_per_byte=law.feed_flop_per_byte * peak_ratio)


class _Menu(NamedTuple):
    """What does not depend on the shape: tiles down, splits across, and times of one unit for one step in k."""

    rows: Array
    columns: Array
    split: Array
    step_s: Array
    feeding: NDArray[np.bool_]
    is_split: Array


@cache
def _menu(law: TileLaw, rates: Rates, a_bytes: float, b_bytes: float) -> _Menu:
    tiles = np.array(law.tiles, dtype=np.float64)[:, None, :]
    rows, columns = tiles[..., 0], tiles[..., 1]
    split = np.array([split for split in SPLITS if split <= law.split_count_max], dtype=np.float64)
    unit_flop_per_s = rates.peak_flop_per_s / rates.unit_count
    math_s = 2.0 * rows * columns / (law.compute_frac * unit_flop_per_s)
    feed_s = (rows * a_bytes + columns * b_bytes) * law.feed_flop_per_byte / unit_flop_per_s
    return _Menu(rows, columns, split, np.maximum(math_s, feed_s), feed_s > math_s, (split > 1).astype(np.float64))


@model(
    id="tiled-gemm",
    sources=("ridgeline-kernel-laws", "aiconfigurator-core"),
    valid={"m": (1, LARGEST_COUNT), "n": (1, LARGEST_COUNT), "k": (1, LARGEST_COUNT)},
    dimensional=False,  # parameters and rates come in records, which the rescaling test cannot see
)
def tiled_gemm_s(product: Product, law: TileLaw, rates: Rates, weight_copies: Number, resident: bool) -> GemmTime:
    """Time of C[m, n] = A[m, k] B[k, n] on a part with compute units, clock and cache.

    product: shapes and bytes an element; floats, or arrays that broadcast (their shape is that of the answer).
    law, rates: records of floats.
    weight_copies: other copies of B that pass through the cache before this one returns (inf: B from memory).
    resident: whether A and C may be in the cache.
    Returns GemmTime [s].

    Equation, for tile (r, c) and split s: blocks = ceil(m/r) ceil(n/c) s; work = max(2 r c k' / (e P/U),
    (r a + c b) k' / feed); waves = max(1, soft whole number of blocks / U); T = ((launch + waves work + later waves'
    overhead)^p + (ramp + bytes / rates)^p)^(1/p) + split cost; the mean of the four cheapest; then the sustained
    clock in long kernels.
    Assumes: bytes of each operand once; library heuristics that find one of the four best tiles. Does not model
    misaligned n or k, stream-K or pairs of blocks.
    Sources: the form is Ridgeline's, fitted to measured tables of public inference engines.
    """
    menu = _menu(law, rates, product.a_bytes, product.b_bytes)
    shape = (product.m, product.n, product.k, product.batch_count)
    scalar = all(isinstance(x, (float, int)) for x in shape)
    m, n, k, batch = shape if scalar else (np.asarray(x, dtype=np.float64)[..., None, None] for x in shape)
    copies = weight_copies if scalar or not np.ndim(weight_copies) else np.asarray(weight_copies)[..., None, None]
    step = _STEP_BYTES / max(product.a_bytes, product.b_bytes)
    work_one_s = menu.step_s * (np.ceil(k / (menu.split * step)) * step)
    row_tiles = np.maximum(m / menu.rows + 0.5, 1.0) if product.ragged else np.ceil(m / menu.rows)
    blocks = row_tiles * np.ceil(n / menu.columns) * (batch / rates.unit_count) * menu.split
    waves = np.maximum((1.0 - law.soft_frac) * np.ceil(blocks) + law.soft_frac * blocks, 1.0)
    work_s = waves * work_one_s
    wave_s = law.wave_k_count * 2.0 * _REFERENCE_TILE**2 * rates.unit_count / (law.compute_frac * rates.peak_flop_per_s)
    launch_s, ramp_s = law.launch_cycles / rates.clock_hz, law.ramp_cycles / rates.clock_hz
    memory_s = _memory_s((m, n, k, batch), product, law, rates, copies, resident)
    power = law.smooth_count
    compute_arm = _raised((launch_s - wave_s) + waves * wave_s + work_s, power)
    times = _rooted(compute_arm + _raised(ramp_s + memory_s, power), power)
    partial_s = _PARTIAL_BYTES * batch * m * n / (_PARTIAL_SPEEDUP * rates.bandwidth_bytes_per_s)
    times = times + (law.split_s + partial_s * menu.split) * menu.is_split
    ideal_s = 2.0 * m * n * k * batch / rates.peak_flop_per_s
    floor_s = max(launch_s, ramp_s)
    return _cheapest(times, work_s, menu.feeding, (ideal_s, memory_s, floor_s), law)


def _cheapest(
    times: Array, work_s: Array, feeding: NDArray[np.bool_], others: tuple[Number, Number, float], law: TileLaw
) -> GemmTime:
    """Mean of the few cheapest candidates, with the sustained clock; the roofs are those of the cheapest."""
    ideal_s, memory_s, floor_s = others
    flat = times.reshape(*times.shape[:-2], -1)
    index = flat.argmin(axis=-1)
    best = np.partition(flat, _CHEAPEST - 1, axis=-1)[..., :_CHEAPEST].sum(axis=-1) / _CHEAPEST
    flat_work = work_s.reshape(flat.shape)
    feed = feeding[index // times.shape[-1], 0]
    if flat.ndim == 1:
        work = flat_work[index]
    else:
        work = np.take_along_axis(flat_work, index[..., None], axis=-1)[..., 0]
        ideal_s, memory_s = ideal_s[..., 0, 0], memory_s[..., 0, 0]
    stretch = sustained_stretch(best, ideal_s, law.sustained_frac, law.sustained_s)
    return GemmTime(best * stretch, work * stretch, memory_s, floor_s, feed)


def _raised(base: Number, power: float) -> Number:
    """base^power; the fourth power, which all fitted laws use, without a call of pow."""
    if power == _QUARTIC:
        square = base * base
        return square * square
    return base**power


def _rooted(base: Number, power: float) -> Number:
    """base^(1/power), likewise."""
    return np.sqrt(np.sqrt(base)) if power == _QUARTIC else base ** (1.0 / power)


def _memory_s(
    shape: tuple[Number, ...], product: Product, law: TileLaw, rates: Rates, copies: Number, resident: bool
) -> Number:
    """Time of the operands, at memory rate or, for what is left in the cache, at the cache's."""
    m, n, k, batch = shape
    a = batch * m * k * (product.a_bytes * product.a_moved)
    b = batch * k * n * (product.b_bytes * product.b_moved)
    c = batch * m * n * (product.c_bytes * product.c_moved)
    weighted_c = law.output_weight * c
    cache = rates.cache_bytes
    warm: Number = 0.0
    if not isinstance(copies, float) or copies < math.inf:
        warm = b * _warm((copies * b + a + c) / cache)
    if resident:
        warm = warm + (a + weighted_c) * _warm((a + b + c) / cache)
    memory_rate = law.memory_frac * rates.bandwidth_bytes_per_s
    cache_rate = max(memory_rate, law.cache_bytes_per_cycle * rates.unit_count * rates.clock_hz)
    return (a + b + weighted_c - warm) / memory_rate + warm / cache_rate


def _warm(share_of_cache: Number) -> Number:
    """Share of an operand that is found in the cache: a sharp edge where the working set outgrows it."""
    return 1.0 / (1.0 + np.minimum(share_of_cache, _FAR) ** _CACHE_EDGE)


def sustained_stretch(time_s: Number, ideal_s: Number, sustained_frac: float, sustained_s: float) -> Number:
    """Factor by which a long kernel near peak is slower, because the power cap lowers the clock (1 for short ones)."""
    busy = np.minimum(1.0, ideal_s / time_s)
    length = time_s / sustained_s
    return 1.0 + busy**2 * length / (1.0 + length) * (1.0 / sustained_frac - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystolicLaw:
    """Parameters of `systolic_gemm_s`: achieved fractions, floor, and the edge of the array that shapes are padded to.

    `edge_count` pads n and k, `row_count` pads m (sublanes of a register, 8 on TPU).
    """

    compute_frac: float
    memory_frac: float
    launch_s: float
    smooth_count: float
    edge_count: float = 1.0
    row_count: float = 1.0


@cache
def systolic_law(law: Law) -> SystolicLaw:
    """The record form of a `Law` of kind "gemm..." with padding parameters."""
    return SystolicLaw(**parameters_of(law))


@model(
    id="systolic-gemm",
    sources=("ridgeline-kernel-laws",),
    valid={"m": (1, LARGEST_COUNT), "n": (1, LARGEST_COUNT), "k": (1, LARGEST_COUNT)},
    dimensional=False,  # parameters come in a record, which the rescaling test cannot see
)
def systolic_gemm_s(
    product: Product, law: SystolicLaw, peak_flop_per_s: float, bandwidth_bytes_per_s: float
) -> GemmTime:
    """Time of a product on a part of which only peak and bandwidth are published.

    product: shapes, floats or arrays. Returns GemmTime [s].
    Equation: launch + smooth maximum of 2 m' n' k' / (e P) and bytes / (e B), with m', n', k' padded to the array.
    Assumes a compiler that keeps the arrays fed; the achieved fractions are published ones.

    >>> law = SystolicLaw(compute_frac=0.8, memory_frac=0.8, launch_s=0.0, smooth_count=4.0, edge_count=128.0)
    >>> big = systolic_gemm_s(Product(8192, 8192, 8192), law, 275e12, 1.2e12)
    >>> round(float(big.compute_s) * 1e3, 3), bool(big.time_s >= big.compute_s)
    (4.998, True)
    """
    m, n, k, batch = (np.asarray(x, dtype=np.float64) for x in (product.m, product.n, product.k, product.batch_count))
    padded = pad(m, law.row_count) * pad(n, law.edge_count) * pad(k, law.edge_count)
    compute_s = 2.0 * batch * padded / (law.compute_frac * peak_flop_per_s)
    a_bytes, b_bytes = product.a_bytes * product.a_moved, product.b_bytes * product.b_moved
    traffic = batch * (m * k * a_bytes + k * n * b_bytes + m * n * product.c_bytes * product.c_moved)
    memory_s = traffic / (law.memory_frac * bandwidth_bytes_per_s)
    power = law.smooth_count
    time_s = law.launch_s + (compute_s**power + memory_s**power) ** (1.0 / power)
    return GemmTime(
        time_s, compute_s, memory_s, np.broadcast_to(law.launch_s, time_s.shape), np.zeros(time_s.shape, bool)
    )


def pad(count: Number, multiple: float) -> Number:
    """`count` rounded up to a multiple.

    >>> float(pad(100, 128.0)), float(pad(3, 1.0))
    (128.0, 3.0)
    """
    return np.ceil(np.asarray(count) / multiple) * multiple
