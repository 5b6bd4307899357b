"""Diffusion transformers: one pass of the denoiser as operations of one device, with sequence parallelism.

Layers come in five kinds. "cross": self-attention on the picture, cross-attention to the text, feed-forward (PixArt,
HunyuanDiT, Wan). "double": picture and text have weights of their own and attend jointly (Stable Diffusion 3, FLUX,
HunyuanVideo). "merged": attention and feed-forward side by side on the joined sequence, one product in, one out (FLUX,
HunyuanVideo). "shared": one set of weights for the joined sequence (CogVideoX). "linear": attention without scores, and
a gated convolutional feed-forward (SANA).

Sequence parallelism (DeepSpeed-Ulysses, ring attention): every device keeps its share of the tokens; Ulysses exchanges
tokens for heads before and after attention, a ring passes keys and values around while it computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ridgeline.specs import RankGroup, bytes_per_element
from ridgeline.workload.ops import AttentionPrefill, Collective, Convolve, Elementwise, Gemm, Op, Repeated

LayerKind = Literal["cross", "double", "merged", "shared", "linear"]
PRECISION = "bf16"
_WIDE = bytes_per_element(PRECISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiserLayer:
    """`count` equal layers. `feed_count`: width of the feed-forward part; `gated`: two branches of it.

    `passes_count`: reads and writes of a picture token's hidden state by kernels of their own when nothing is fused
    (norms, modulation, gates, additions, rotary positions), in elements of 16 bits; `kernels_count`: kernels of a layer
    without attention's exchange. `self_attention`: a second attention on the picture alone in "double" layers.
    """

    kind: LayerKind
    count: float
    feed_count: int
    passes_count: float
    kernels_count: float
    gated: bool = False
    self_attention: bool = False
    skip: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoisingTransformer:
    """A published diffusion transformer.

    `pixels_count`: edge of the square of pixels that one token stands for, `frames_count` of frames (after the first)
    that one latent frame stands for, `latent_frames_count` of latent frames in a token. `text_tokens_count` tokens of
    width `context_count` come from the text encoder of `encoder_parameters_count` in `encoder_layers_count` layers.
    `guidance_count`: passes a step (2: classifier-free guidance). `decoder`: the network that makes the picture.
    """

    id: str
    width_count: int
    heads_count: int
    layers: tuple[DenoiserLayer, ...]
    pixels_count: int
    text_tokens_count: int
    context_count: int
    encoder_parameters_count: float
    encoder_layers_count: int
    guidance_count: int
    decoder: str
    frames_count: int = 4  # src: wan-2025
    latent_frames_count: int = 1
    source: str = ""

    def latent_frames(self, frames_count: int) -> int:
        """Latent frames of a film (1 for a picture)."""
        if frames_count <= 1:
            return 1
        return (frames_count - 1) // self.frames_count + 1

    def picture_tokens(self, height: int, width: int, frames_count: int = 1) -> float:
        """Tokens of a picture or film.

        >>> from ridgeline.workload.convnets.transformers import DENOISING
        >>> DENOISING["flux.1-dev"].picture_tokens(1024, 1024), DENOISING["wan2.1-14b"].picture_tokens(480, 832, 81)
        (4096.0, 32760.0)
        """
        steps = math.ceil(self.latent_frames(frames_count) / self.latent_frames_count)
        return float(steps * (height // self.pixels_count) * (width // self.pixels_count))


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSplit:
    """Degrees of Ulysses and ring parallelism."""

    ulysses_count: int = 1
    ring_count: int = 1

    @property
    def devices_count(self) -> int:
        """Devices that share a sequence."""
        return self.ulysses_count * self.ring_count


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass works on, on one device: sequences, picture and text tokens (all, and the device's share)."""

    model: DenoisingTransformer
    split: SequenceSplit
    batch: float
    picture: float

    @property
    def text(self) -> float:
        return float(self.model.text_tokens_count)

    def rows(self, tokens: float) -> float:
        return self.batch * tokens / self.split.devices_count


def denoiser_ops(
    model: DenoisingTransformer, batch: float, picture_tokens: float, split: SequenceSplit
) -> tuple[Repeated, ...]:
    """Operations of one pass over `batch` sequences of `picture_tokens` on one of the devices of `split`.

    >>> from ridgeline.workload.convnets.transformers import DENOISING
    >>> flux = DENOISING["flux.1-dev"]
    >>> ops = denoiser_ops(flux, 1.0, 4096.0, SequenceSplit())
    >>> weights = sum(r.count * r.op.n * r.op.k for r in ops if isinstance(r.op, Gemm))
    >>> round(weights / 1e9, 1)  # of 11.9 thousand million parameters; the rest modulates
    8.6
    """
    work = _Pass(model, split, batch, picture_tokens)
    found: list[Repeated] = []
    for layer in model.layers:
        found += [Repeated(op=op, count=count * layer.count) for op, count in _layer_ops(layer, work)]
    return tuple(found)


def _layer_ops(layer: DenoiserLayer, work: _Pass) -> Iterator[tuple[Op, float]]:
    h, feed = float(work.model.width_count), float(layer.feed_count)
    picture, text = work.rows(work.picture), work.rows(work.text)
    both = picture + text
    if layer.kind == "cross":
        yield _product("q, k, v", picture, h, h), _INPUTS
        yield from _attention(work, work.picture, work.picture)
        yield _product("o, cross q, o", picture, h, h), _INPUTS
        yield _product("text k, v", work.batch * work.text, h, h), 2.0
        yield _scores(work, work.picture / work.split.devices_count, work.text, work.model.heads_count), 1.0
        yield from _feed(layer, picture, h, feed)
    elif layer.kind == "double":
        for name, rows in (("picture", picture), ("text", text)):
            yield _product(f"{name} q, k, v", rows, h, h), _INPUTS
            yield _product(f"{name} o", rows, h, h), 1.0
            yield from _feed(layer, rows, h, feed)
        yield from _attention(work, work.picture + work.text, work.picture + work.text)
        if layer.self_attention:
            yield _product("picture q, k, v, o", picture, h, h), _INPUTS + 1.0
            yield from _attention(work, work.picture, work.picture)
    elif layer.kind == "merged":
        yield _product("q, k, v", both, h, h), _INPUTS
        yield _product("feed in", both, feed, h), 1.0
        yield _product("out", both, h, h + feed), 1.0
        yield from _attention(work, work.picture + work.text, work.picture + work.text)
    elif layer.kind == "shared":
        yield _product("q, k, v, o", both, h, h), _INPUTS + 1.0
        yield from _attention(work, work.picture + work.text, work.picture + work.text)
        yield from _feed(layer, both, h, feed)
    else:
        yield from _linear_layer(layer, work, picture)
    if layer.skip:
        yield _product("skip", picture, h, 2.0 * h), 1.0
    yield from _small_kernels(layer, picture if layer.kind in ("cross", "linear") else both, h)


def _small_kernels(layer: DenoiserLayer, rows: float, h: float) -> Iterator[tuple[Op, float]]:
    """Two normalisations, the activation of the feed-forward part, and all else, which is copies, casts and gates."""
    state = rows * h * _WIDE
    norms, activation = 2.0 * _NORMS, 2.0 * layer.feed_count / h
    yield Elementwise(name="norm", kind="norm", bytes=norms / _NORMS * state), _NORMS
    yield Elementwise(name="activation", kind="activation", bytes=activation * state), 1.0
    kernels = layer.kernels_count - _NORMS - 1.0
    rest = max(0.0, layer.passes_count - norms - activation)
    yield Elementwise(name="element-wise", kind="cast", bytes=rest * state / kernels), kernels


def _feed(layer: DenoiserLayer, rows: float, h: float, feed: float) -> Iterator[tuple[Op, float]]:
    yield _product("feed in", rows, feed * (2.0 if layer.gated else 1.0), h), 1.0
    yield _product("feed out", rows, h, feed), 1.0


def _linear_layer(layer: DenoiserLayer, work: _Pass, picture: float) -> Iterator[tuple[Op, float]]:
    """Linear attention (keys times values, then queries times that), cross-attention, inverted gated convolutions."""
    h, feed = float(work.model.width_count), layer.feed_count
    head = 32.0  # src: xie-2024-sana
    heads = h / head
    yield _product("q, k, v, o, cross q, o", picture, h, h), 2.0 * _INPUTS
    yield _product("text k, v", work.batch * work.text, h, h), 2.0
    yield _product("keys by values", head, head, work.picture / work.split.devices_count, work.batch * heads), 1.0
    yield _product("queries by those", work.picture / work.split.devices_count, head, head, work.batch * heads), 1.0
    cross = round(h / 112)  # src: xie-2024-sana
    yield _scores(work, work.picture / work.split.devices_count, work.text, cross), 1.0
    edge = round(math.sqrt(work.picture))
    yield _product("expand", work.batch * work.picture, 2.0 * feed, h), 1.0
    yield (
        Convolve(
            name="depthwise",
            direction="forward",
            batch_count=work.batch,
            inputs_count=2 * feed,
            outputs_count=2 * feed,
            in_spatial=(edge, edge),
            out_spatial=(edge, edge),
            kernel=(3, 3),  # src: xie-2024-sana
            stride=(1, 1),
            groups_count=2 * feed,
            math_precision=PRECISION,
            precision=PRECISION,
            output_precision=PRECISION,
        ),
        1.0,
    )
    yield _product("project", work.batch * work.picture, h, float(feed)), 1.0
    size = float(work.split.devices_count)
    if size > 1:
        message = work.batch * work.picture * h * _WIDE
        yield (
            Collective(
                name="whole picture",
                kind="all_gather",
                message_bytes=message,
                group=RankGroup(size_count=int(size)),
            ),
            1.0,
        )


def _product(name: str, rows: float, n: float, k: float, batch: float = 1.0) -> Gemm:
    return Gemm(name=name, m=rows, n=n, k=k, batch_count=batch)


def _scores(work: _Pass, queries: float, keys: float, heads: float) -> AttentionPrefill:
    dim = math.ceil(work.model.width_count / work.model.heads_count / _HEAD_STEP) * _HEAD_STEP
    return AttentionPrefill(
        name="attention",
        batch_count=work.batch,
        query_tokens=queries,
        key_tokens=keys,
        heads_count=heads,
        kv_heads_count=heads,
        key_dim_count=dim,
        value_dim_count=dim,
        causal=False,
    )


def _attention(work: _Pass, queries: float, keys: float) -> Iterator[tuple[Op, float]]:
    """Attention of the device's share, in as many steps as the ring has members, with what it exchanges."""
    split = work.split
    ring, ulysses = float(split.ring_count), float(split.ulysses_count)
    heads = work.model.heads_count / ulysses
    yield _scores(work, queries / ring, keys / ring, heads), ring
    state = work.rows(queries) * work.model.width_count * _WIDE
    if split.ulysses_count > 1:
        group = RankGroup(size_count=split.ulysses_count)
        yield Collective(name="tokens for heads", kind="all_to_all", message_bytes=state, group=group), _INPUTS + 1.0
        yield Elementwise(name="pack", kind="cast", bytes=2.0 * state), 2.0 * (_INPUTS + 1.0)
    if split.ring_count > 1:
        group = RankGroup(size_count=2, stride_count=split.ulysses_count)
        yield Collective(name="ring keys and values", kind="send", message_bytes=2.0 * state, group=group), ring - 1.0
        # merging of partial results in fp32: conversion 3 passes, difference 6, product 4, difference 6
        moved = _MERGE_PASSES * state / _MERGE_KERNELS
        yield Elementwise(name="merge", kind="cast", bytes=moved), _MERGE_KERNELS * ring


_NORMS = 2.0
# Queries, keys and values.
_INPUTS = 3.0  # src: rl-derivation
# Kernels that merge the partial results of a ring, each step; heads are padded to what attention kernels exist for.
_MERGE_KERNELS = 6.0  # src: liu-2023-ring
_MERGE_PASSES = 19.0  # src: rl-derivation
_HEAD_STEP = 32  # src: dao-2023-flashattention2
