"""Operations of the parts of a layer that have no weights: attention scores, latent and sparse reads, recurrences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ridgeline.specs import Layer, Recurrence, SoftmaxAttention, bytes_per_element
from ridgeline.workload.engine_step import Setting, small_kernel
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, Elementwise, Gemm, Op
from ridgeline.workload.placement import attention_tensor_count, head_frac, local_cached_count, wide_precision

_INDEX_BYTES = 8.0  # src: pytorch-docs
# Clamping of positions, look-up, scaling and addition.
_LOOKUP_KERNELS = 4.0  # src: published-model-files
_LOOKUP_PASSES, _ADD_PASSES, _PAIR_READS = 2.0, 3.0, 2.0  # src: rl-derivation
_BORDER_KERNELS = 2.0
_BORDER_PASSES = 2.0 * _BORDER_KERNELS  # a read and a write each


def mixer_ops(layer: Layer, setting: Setting) -> Iterator[tuple[Op, float]]:
    """Operations of all mixers of one layer on one device."""
    for mixer in layer.mixers:
        if isinstance(mixer, Recurrence):
            yield from _recurrence_ops(mixer, setting)
        else:
            yield from _decode_ops(mixer, setting)
            yield from _prefill_ops(mixer, setting)
            yield from _around_ops(mixer, layer, setting)


def _heads(count: int, setting: Setting) -> float:
    return count * head_frac(count, attention_tensor_count(setting.plan), setting.plan.head_units_count)


def keys_read(mixer: SoftmaxAttention, context_tokens: float) -> float:
    """Cached keys that one query reads: one a stride of tokens, at most a window or a selection of them."""
    read = context_tokens / mixer.stride_tokens
    for bound in (mixer.window_tokens, mixer.selected_tokens):
        read = min(read, float(bound)) if bound is not None else read
    return read


def _decode_ops(mixer: SoftmaxAttention, setting: Setting) -> Iterator[tuple[Op, float]]:
    """One query a sequence on its cache: a latent is read once for all heads, a window bounds what is read."""
    step = setting.group
    if step.decode_count <= 0:
        return
    context = step.encoder_tokens if mixer.cross else step.context_tokens
    read = keys_read(mixer, context)
    if read <= 0:
        return
    heads, kv_heads = _heads(mixer.heads_count, setting), _heads(mixer.kv_heads_count, setting)
    cached = local_cached_count(mixer, setting.plan) or kv_heads * (mixer.key_dim_count + mixer.value_dim_count)
    key_dim, value_dim = mixer.key_dim_count, mixer.value_dim_count
    if mixer.latent_dim_count is not None:
        kv_heads, key_dim, value_dim = 1.0, mixer.cached_per_token_count, mixer.latent_dim_count
    elif setting.engine.query_reread_frac > 0:
        cached *= 1.0 + setting.engine.query_reread_frac * (heads / kv_heads - 1.0)
    name = "cross-attention decode" if mixer.cross else "attention decode"
    yield (
        AttentionDecode(
            name=name,
            batch_count=step.decode_count,
            context_tokens=read,
            heads_count=heads,
            kv_heads_count=kv_heads,
            key_dim_count=key_dim,
            value_dim_count=value_dim,
            cached_per_token_count=cached,
            repeated_frac=0.0 if mixer.cross or mixer.window_tokens is not None else step.repeated_frac,
            kv_precision=setting.plan.kv_precision,
            precision=wide_precision(setting.plan),
        ),
        1.0,
    )
    if mixer.indexer_per_key_flop > 0:
        pairs = step.decode_count * context / mixer.stride_tokens
        yield _indexer(mixer, pairs, step.decode_count * context, setting), 1.0


def _prefill_ops(mixer: SoftmaxAttention, setting: Setting) -> Iterator[tuple[Op, float]]:
    """Many queries a prompt. Fewer than one prompt a step on average is one prompt in some of the steps."""
    step = setting.group
    if step.prompt_count <= 0 or step.prompt_tokens <= 0 or (mixer.cross and step.encoder_tokens <= 0):
        return
    rows = max(1.0, step.prompt_tokens * mixer.rows_per_token)
    keys = step.encoder_tokens if mixer.cross else (step.cached_tokens + rows) / mixer.stride_tokens
    together = max(1.0, step.prompt_count)
    name = "cross-attention prefill" if mixer.cross else "attention prefill"
    yield (
        AttentionPrefill(
            name=name,
            batch_count=together,
            query_tokens=rows,
            key_tokens=keys,
            heads_count=_heads(mixer.heads_count, setting),
            kv_heads_count=_heads(mixer.kv_heads_count, setting),
            key_dim_count=mixer.key_dim_count,
            value_dim_count=mixer.value_dim_count,
            causal=mixer.causal and not mixer.cross and mixer.stride_tokens == 1,
            window_tokens=mixer.window_tokens,
            selected_tokens=mixer.selected_tokens,
            precision=wide_precision(setting.plan),
            fused=mixer.relative_products_count == 0,
        ),
        step.prompt_count / together,
    )
    if mixer.relative_products_count > 0:
        yield from _relative_ops(mixer, step.prompt_count, rows, keys, setting)
    if mixer.indexer_per_key_flop > 0:
        yield _indexer(mixer, step.prompt_count * rows * keys / 2, step.prompt_count * keys, setting), 1.0


def _relative_ops(
    mixer: SoftmaxAttention, prompts: float, rows: float, keys: float, setting: Setting
) -> Iterator[tuple[Op, float]]:
    """Disentangled attention: queries (and keys) times the table of positions, looked up for every pair and added.

    A look-up reads an 8-byte index and an element and writes one; the addition that follows reads two and writes one.
    Engines with a kernel of their own for it (`fused_relative`) read the products once and write the sum; the kernel is
    a border to their other fusions, so that the scaling and the mask beside it are passes of their own.
    """
    precision = wide_precision(setting.plan)
    width = bytes_per_element(precision)
    heads = _heads(mixer.heads_count, setting)
    table, products = float(mixer.relative_positions_count), float(mixer.relative_products_count)
    product = Gemm(
        name="position scores",
        m=rows,
        n=table,
        k=float(mixer.key_dim_count),
        batch_count=prompts * heads,
        math_precision=precision,
        weight_precision=precision,
        activation_precision=precision,
        output_precision=precision,
    )
    yield product, products
    inner = mixer.heads_count * mixer.key_dim_count
    projected = replace(product, name="position table", m=table, n=heads * mixer.key_dim_count, k=float(inner))
    yield replace(projected, batch_count=1.0), products
    pairs = prompts * heads * rows * keys
    if setting.engine.fused_relative:
        moved = pairs * width * (_PAIR_READS + products + _BORDER_PASSES)
        yield small_kernel("position look-up", "other", moved, 1.0 + _BORDER_KERNELS, setting), 1.0
        return
    moved = pairs * (_INDEX_BYTES + (_LOOKUP_PASSES + _ADD_PASSES) * width)
    yield small_kernel("position look-up", "other", moved, _LOOKUP_KERNELS, setting), products


def _indexer(mixer: SoftmaxAttention, pairs: float, tokens: float, setting: Setting) -> Elementwise:
    """Scores that choose the keys of sparse attention: work per query and key, whole on every device."""
    moved = tokens * mixer.indexer_cached_per_key_bytes / mixer.stride_tokens
    return small_kernel("indexer", "other", moved, 1.0, setting, flop=pairs * mixer.indexer_per_key_flop)


def _around_ops(mixer: SoftmaxAttention, layer: Layer, setting: Setting) -> Iterator[tuple[Op, float]]:
    """Rotary embedding of queries and keys, and the write of new keys and values into the cache."""
    step, wide = setting.group, setting.wide_bytes
    width = mixer.key_dim_count
    if layer.rope and not mixer.cross:
        heads = _heads(mixer.heads_count, setting) + _heads(mixer.kv_heads_count, setting)
        yield (
            small_kernel("rope", "rope", 2.0 * step.tokens * mixer.rows_per_token * heads * width * wide, 1.0, setting),
            1.0,
        )
    cached = local_cached_count(mixer, setting.plan)
    if cached > 0:
        rows = step.prompt_count * step.encoder_tokens if mixer.cross else step.tokens
        moved = rows * cached * (wide + bytes_per_element(setting.plan.kv_precision)) / mixer.stride_tokens
        if rows > 0:
            yield small_kernel("cache write", "kv-write", moved, 1.0, setting), 1.0


def _recurrence_ops(mixer: Recurrence, setting: Setting) -> Iterator[tuple[Op, float]]:
    """A scan: decode reads and writes the whole state of each sequence; prompts write it once and stream tokens."""
    step, degree = setting.group, attention_tensor_count(setting.plan)
    state_bytes = mixer.state_per_sequence_bytes / degree
    stream = 2.0 * mixer.elementwise_per_token_count / degree * setting.wide_bytes
    moved = 2.0 * step.decode_count * state_bytes + step.prompt_count * state_bytes + step.tokens * stream
    flop = step.tokens * mixer.per_token_flop / degree
    if step.tokens > 0:
        yield small_kernel(f"{mixer.kind} scan", "scan", moved, 2.0, setting, flop=flop), 1.0
