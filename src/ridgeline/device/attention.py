"""How long attention scores take: prefill (many queries), decode (one query a sequence) and their unfused ancestor.

Parameters belong to a kernel family ("fa1", "fa2", "fa3", "flashinfer") as much as to a chip: they do not carry from
one generation of kernels to the next, so a law is filed under its family.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ridgeline.core import model
from ridgeline.device.rates import LARGEST_COUNT, Rates, parameters_of, smooth_max
from ridgeline.specs import Law

Number = Any  # a float or an array of floats

_KEY_BLOCK = 64.0  # src: ridgeline-kernel-laws
_SPLIT_KEYS = 128.0  # src: ridgeline-kernel-laws
_SPLIT_MAX = 128.0  # src: ridgeline-kernel-laws
_GROUP_TILE = 64.0  # src: ridgeline-kernel-laws
_CACHE_EDGE = 16.0  # src: ridgeline-kernel-laws
_FAR = 1e3  # src: ridgeline-kernel-laws


class AttentionTime(NamedTuple):
    """Time and the roofs under it [s]: matrix and exponential units, memory, launch floor; in decode also the feed of
    the units, and in the floor what each block, split and head costs."""

    time_s: Number
    compute_s: Number
    memory_s: Number
    launch_s: Number
    feed_s: Number = 0.0


class Scores(NamedTuple):
    """Shape of an attention: `batch` sequences of `queries` on `keys`, heads, widths, mask, bytes an element.

    `window` is the most keys that a query reads (inf: all). `causal`: queries are the last of the keys.
    """

    batch: Number
    queries: Number
    keys: Number
    heads: Number
    kv_heads: Number
    key_dim: Number
    value_dim: Number
    window: Number = np.inf
    causal: bool = True
    element_bytes: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillLaw:
    """Parameters of `prefill_s`.

    `launch_cycles`: floor. `block_cycles`: each block of queries. `compute_frac`: achieved share of the matrix peak.
    `score_cycles`: exponential cost of one score on one unit, per cycle. `memory_frac`: achieved share of bandwidth.
    `pack_groups` 1 where queries of one group of heads share a tile if they are short (0: not).
    `backward_flop_ratio`, `backward_rate_ratio`: work of the gradient kernel over the forward one, and its achieved
    rate over the forward one. `smooth_count`: exponent of the smooth maximum of compute and memory. `tile_queries`:
    queries that one block of threads handles. `balance_count`: exponent of the smooth maximum of mean load and longest
    block (how badly uneven blocks are spread). `replay_s`: what a benchmark that replays one operation adds.
    """

    launch_cycles: float
    block_cycles: float
    compute_frac: float
    score_cycles: float
    memory_frac: float
    pack_groups: float
    backward_flop_ratio: float
    backward_rate_ratio: float
    smooth_count: float
    tile_queries: float
    balance_count: float
    replay_s: float = 0.0


@cache
def prefill_law(law: Law) -> PrefillLaw:
    """The record form of a `Law` of kind "attention-prefill..."."""
    return PrefillLaw(**parameters_of(law))


def visible_keys(queries: Number, keys: Number, window: Number, causal: bool) -> Number:
    """Mean keys that a query reads.

    Causal without window: keys - (queries - 1)/2. With a window w: min(w, position) averaged over the queries.

    >>> float(visible_keys(4.0, 4.0, np.inf, True)), float(visible_keys(4.0, 4.0, 2.0, True))
    (2.5, 1.75)
    """
    q, s, w = (np.asarray(x, dtype=np.float64) for x in (queries, keys, window))
    if not causal:
        return np.minimum(s, w)
    first = s - q + 1.0
    below = np.clip(np.minimum(w, s) - first, 0.0, q)  # queries that see fewer keys than the window
    return (
        np.where(below > 0, below * (first + (below - 1.0) / 2) + (q - below) * np.minimum(w, s), q * np.minimum(w, s))
        / q
    )


def attention_flop(scores: Scores) -> Number:
    """Operations of the two products: 2 (key + value width) per head, query and key that it reads."""
    pairs = scores.queries * visible_keys(scores.queries, scores.keys, scores.window, scores.causal)
    return 2.0 * scores.batch * scores.heads * pairs * (scores.key_dim + scores.value_dim)


def attention_bytes(scores: Scores) -> Number:
    """Compulsory traffic: queries, keys and values in, output out."""
    wide = scores.key_dim + scores.value_dim
    read_keys = np.minimum(scores.keys, np.asarray(scores.window) + scores.queries)
    return scores.element_bytes * scores.batch * wide * (scores.heads * scores.queries + scores.kv_heads * read_keys)


@model(
    id="tiled-attention",
    sources=("ridgeline-kernel-laws", "aiconfigurator-core", "dao-2023-flashattention2"),
    valid={"queries": (1, LARGEST_COUNT), "keys": (1, LARGEST_COUNT)},
    dimensional=False,  # parameters and rates come in records, which the rescaling test cannot see
)
def prefill_s(scores: Scores, law: PrefillLaw, rates: Rates) -> AttentionTime:
    """Time of a fused (tiled, online-softmax) attention over many queries.

    scores: shape; floats or arrays. law, rates: records. Returns AttentionTime [s].
    Equation: tiles of r queries, blocks of 64 keys, only blocks that the mask touches; cycles of a block =
    r x 64 x (2 (dk + dv) / (e R) + x), R = peak per unit and cycle, x = exponential cost; compute = smooth maximum
    of the mean load of a unit and the longest tile; T = launch + smooth maximum of compute and bytes.
    Assumes one tile a unit at a time; does not model split keys in prefill.
    """
    b, q, s, h, kv = (
        np.asarray(x, dtype=np.float64)
        for x in (scores.batch, scores.queries, scores.keys, scores.heads, scores.kv_heads)
    )
    group = h / kv
    packed = law.pack_groups * (q < law.tile_queries)
    rows = np.where(packed > 0, q * group, q)
    tiles = np.ceil(rows / law.tile_queries)
    mean_keys = visible_keys(q, s, scores.window, scores.causal)
    # Tiles that the mask cuts are done in whole blocks: half a tile of keys in vain at each ragged end.
    windowed = np.asarray(scores.window) < s
    edge = law.tile_queries / 2 * (1.0 * scores.causal + 1.0 * windowed)
    blocks = np.maximum(np.minimum(mean_keys + edge, s) / _KEY_BLOCK, 1.0)
    longest = np.ceil(np.minimum(s, np.asarray(scores.window) + law.tile_queries) / _KEY_BLOCK)
    flop = 2.0 * (np.asarray(scores.key_dim) + scores.value_dim)
    block_cycles = (
        law.tile_queries * _KEY_BLOCK * (flop / (rates.unit_flop_per_cycle * law.compute_frac) + law.score_cycles)
    )
    count = b * np.where(packed > 0, kv, h) * tiles
    mean_load = np.maximum(count / rates.unit_count, 0.0) * (blocks * block_cycles + law.block_cycles)
    compute_s = smooth_max(mean_load, longest * block_cycles + law.block_cycles, law.balance_count) / rates.clock_hz
    memory_s = attention_bytes(scores) / (law.memory_frac * rates.bandwidth_bytes_per_s)
    launch_s = law.launch_cycles / rates.clock_hz
    return AttentionTime(launch_s + smooth_max(compute_s, memory_s, law.smooth_count), compute_s, memory_s, launch_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLaw:
    """Parameters of `decode_s`.

    `launch_cycles`: floor. `feed_bytes_per_cycle`: what one unit can take in. `block_cycles`: each wave of blocks.
    `split_s`: combining a split over keys. `memory_frac`: achieved share of bandwidth. `cache_gain`: cache rate over
    memory rate for caches that stay resident. `head_s`: cost of each head and sequence. `compute_frac`: achieved share
    of the matrix peak (bounds latent attention only). `split_groups_only` 1 where keys are split only for grouped
    queries. `smooth_count`: exponent of the smooth maximum. `replay_s`: what a benchmark that replays one operation
    adds.
    """

    launch_cycles: float
    feed_bytes_per_cycle: float
    block_cycles: float
    split_s: float
    memory_frac: float
    cache_gain: float
    head_s: float
    compute_frac: float
    split_groups_only: float
    smooth_count: float
    replay_s: float = 0.0


@cache
def decode_law(law: Law) -> DecodeLaw:
    """The record form of a `Law` of kind "attention-decode..."."""
    return DecodeLaw(**parameters_of(law))


@model(
    id="paged-decode-attention",
    sources=("ridgeline-kernel-laws", "aiconfigurator-core", "dao-2023-flashdecoding"),
    valid={"keys": (1, LARGEST_COUNT), "batch": (1, LARGEST_COUNT)},
    dimensional=False,  # parameters and rates come in records, which the rescaling test cannot see
)
def decode_s(scores: Scores, cache_bytes: Number, law: DecodeLaw, rates: Rates, resident: bool) -> AttentionTime:
    """Time of attention of one query a sequence on `cache_bytes` of paged keys and values in all.

    scores: shape (queries 1). resident: whether a cache smaller than the last-level cache may be found there.
    Returns AttentionTime [s].
    Equation: blocks = sequences x key heads x ceil(group/64) x split, split from 1 to 128 by pieces of 128 keys, the
    cheapest; T = launch + smooth maximum(waves (bytes of a block / feed + overhead) + combine, bytes / (e B)) +
    heads. Sources: form by Ridgeline, fitted to measured tables.
    """
    b, s, h, kv = (
        np.asarray(x, dtype=np.float64)[..., None] for x in (scores.batch, scores.keys, scores.heads, scores.kv_heads)
    )
    window = np.asarray(scores.window, dtype=np.float64)
    read = np.asarray(cache_bytes, dtype=np.float64)[..., None]
    split = 2.0 ** np.arange(np.log2(_SPLIT_MAX) + 1.0)
    group = h / kv
    allowed = np.minimum(np.ceil(np.minimum(s, window[..., None]) / _SPLIT_KEYS), _SPLIT_MAX)
    if law.split_groups_only:
        allowed = np.where(group > 1, allowed, 1.0)
    bases = b * kv * np.ceil(group / _GROUP_TILE)
    waves = np.ceil(bases * split / rates.unit_count)
    feed_bytes_per_s = law.feed_bytes_per_cycle * rates.clock_hz
    rows = np.ceil(group / _GROUP_TILE) * _GROUP_TILE
    flop = 2.0 * rows * np.minimum(s, window[..., None]) * (np.asarray(scores.key_dim) + scores.value_dim)[..., None]
    fed_s = read / (b * kv) / feed_bytes_per_s
    matrix_s = flop * rates.unit_count / (law.compute_frac * rates.peak_flop_per_s)
    wave_s = np.maximum(fed_s, matrix_s) / split + law.block_cycles / rates.clock_hz
    options = waves * wave_s + np.where(split > 1, law.split_s, 0.0)
    options = np.where(split <= allowed, options, np.inf)
    chosen = options.argmin(axis=-1)[..., None]
    blocks_s = np.take_along_axis(options, chosen, axis=-1)[..., 0]
    runs = np.take_along_axis(waves / split, chosen, axis=-1)
    warm = 1.0 / (1.0 + np.minimum(read[..., 0] / rates.cache_bytes, _FAR) ** _CACHE_EDGE) if resident else 0.0
    memory_s = read[..., 0] / (law.memory_frac * rates.bandwidth_bytes_per_s) * (1.0 - warm + warm / law.cache_gain)
    heads_s = law.head_s * (b * h)[..., 0]
    launch_s = law.launch_cycles / rates.clock_hz
    time_s = launch_s + smooth_max(blocks_s, memory_s, law.smooth_count) + heads_s
    worked_s = (runs * np.maximum(fed_s, matrix_s))[..., 0]
    floors_s = launch_s + heads_s + (blocks_s - worked_s)
    return AttentionTime(time_s, (runs * matrix_s)[..., 0], memory_s, floors_s, (runs * fed_s)[..., 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatLaw:
    """Parameters of `flat_attention_s`: achieved shares of peak and bandwidth, floor, smoothness."""

    compute_frac: float
    memory_frac: float
    launch_s: float
    smooth_count: float
    backward_flop_ratio: float
    backward_rate_ratio: float


@cache
def flat_law(law: Law) -> FlatLaw:
    """The record form of a `Law` of kind "attention..." from published rates."""
    return FlatLaw(**parameters_of(law))


@model(
    id="flat-attention",
    sources=("ridgeline-kernel-laws",),
    dimensional=False,  # parameters come in a record, which the rescaling test cannot see
)
def flat_attention_s(
    flop: Number, moved_bytes: Number, law: FlatLaw, peak_flop_per_s: float, bandwidth_bytes_per_s: float
) -> AttentionTime:
    """Time of attention on a part of which only achieved fractions are published.

    Equation: launch + smooth maximum(flop / (e P), bytes / (e B)).

    >>> law = FlatLaw(compute_frac=0.5, memory_frac=0.8, launch_s=0.0, smooth_count=8.0,
    ...               backward_flop_ratio=2.5, backward_rate_ratio=0.8)
    >>> round(float(flat_attention_s(1e12, 1e9, law, 1e15, 1e12).time_s) * 1e3, 3)
    2.006
    """
    compute_s = np.asarray(flop, dtype=np.float64) / (law.compute_frac * peak_flop_per_s)
    memory_s = np.asarray(moved_bytes, dtype=np.float64) / (law.memory_frac * bandwidth_bytes_per_s)
    time_s = law.launch_s + smooth_max(compute_s, memory_s, law.smooth_count)
    return AttentionTime(time_s, compute_s, memory_s, law.launch_s)


def backward(forward: AttentionTime, flop_ratio: float, rate_ratio: float, power: float) -> AttentionTime:
    """The gradient kernel from the forward one: five products instead of two at its own achieved rate.

    Bytes: queries, keys, values, output and its gradient in, three gradients out: the same multiple of the forward.
    """
    compute_s = forward.compute_s * flop_ratio / rate_ratio
    memory_s = forward.memory_s * flop_ratio
    launch_s = 2.0 * np.asarray(forward.launch_s)
    return AttentionTime(launch_s + smooth_max(compute_s, memory_s, power), compute_s, memory_s, launch_s)
