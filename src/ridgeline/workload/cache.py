"""Bytes that a sequence keeps while it is served: keys and values, compressed keys, indexer keys, recurrent state.

Only the main stack's own attention counts: encoders keep nothing, and what a decoder keeps of its encoder's tokens
(keys and values of cross-attention) is fixed when the sequence starts and so is no part of a marginal token; it is
`cross_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.core import model as formula
from ridgeline.specs import Recurrence, SoftmaxAttention, Transformer


@formula(id="kv-bytes-per-token", sources=("pagedattention-2023", "deepseek-v2-report", "rl-derivation"))
def kv_bytes_per_token(model: Transformer, context_tokens: float, kv_precision: str) -> float:
    """Bytes that the last token of a context of `context_tokens` added to the cache [byte].

    Grouped-query attention keeps 2 * kv_heads * head_dim elements a layer and token, latent attention its latent
    and rotary part, both in `kv_precision`. A layer with a window of w tokens adds nothing beyond w tokens; a layer
    that keeps one key for r tokens adds a share of 1 / r. Indexer keys have their own format.

    Does not model page granularity, nor layouts that an engine uses for one cache format alone.

    >>> from ridgeline.specs import Layer, LayerRun, Stack
    >>> mixer = SoftmaxAttention(heads_count=64, kv_heads_count=8, key_dim_count=128, value_dim_count=128,
    ...                          cached_per_token_count=2048)
    >>> stack = Stack(role="decoder", hidden_count=8192,
    ...               runs=(LayerRun(layer=Layer(linears=(), mixers=(mixer,)), repeat_count=80),))
    >>> model = Transformer(id="m", family="llama", main=stack, hidden_count=8192, vocab_count=1,
    ...                     embedding_parameters_count=0)
    >>> kv_bytes_per_token(model, 8192, "bf16"), kv_bytes(model, 3000, "bf16")
    (327680.0, 983040000.0)
    """
    return sum(
        count * mixer.cached_bytes_per_token(kv_precision)
        for mixer, count in _own_attentions(model)
        if mixer.window_tokens is None or context_tokens <= mixer.window_tokens
    )


@formula(id="kv-bytes", sources=("pagedattention-2023", "deepseek-v2-report", "rl-derivation"))
def kv_bytes(model: Transformer, context_tokens: float, kv_precision: str) -> float:
    """Bytes of the cache of one sequence of `context_tokens` [byte]: windowed layers keep their window at most."""
    return sum(
        count * mixer.cached_bytes_per_token(kv_precision) * kept_tokens(mixer, context_tokens)
        for mixer, count in _own_attentions(model)
    )


@formula(id="cross-kv-bytes", sources=("rl-derivation",))
def cross_bytes(model: Transformer, encoder_tokens: float, kv_precision: str) -> float:
    """Bytes of keys and values of cross-attention to `encoder_tokens` of the encoder, for one sequence [byte]."""
    return sum(
        run.repeat_count * mixer.cached_bytes_per_token(kv_precision) * encoder_tokens
        for run in model.main.runs
        for mixer in run.layer.mixers
        if isinstance(mixer, SoftmaxAttention) and mixer.cross
    )


@formula(id="state-bytes-per-sequence", sources=("mamba2-2024", "rl-derivation"))
def state_bytes_per_sequence(model: Transformer) -> float:
    """Bytes of recurrent state of one sequence, whatever its length [byte]: states and convolution tails."""
    return sum(
        run.repeat_count * mixer.state_per_sequence_bytes
        for run in model.main.runs
        for mixer in run.layer.mixers
        if isinstance(mixer, Recurrence)
    )


def kept_tokens(mixer: SoftmaxAttention, context_tokens: float) -> float:
    """Tokens of a context of `context_tokens` that one layer keeps."""
    if mixer.window_tokens is None:
        return context_tokens
    return min(context_tokens, float(mixer.window_tokens))


def _own_attentions(model: Transformer) -> Iterator[tuple[SoftmaxAttention, float]]:
    for run in model.main.runs:
        for mixer in run.layer.mixers:
            if isinstance(mixer, SoftmaxAttention) and not mixer.cross:
                yield mixer, float(run.repeat_count)
