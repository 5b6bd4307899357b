"""Encoder-decoders: T5 and its relatives, BART and its relatives, Whisper.

The decoder is the main stack, the encoder stands beside it. Keys and values of cross-attention are made from the
encoder's tokens, once a sequence. Source: `transformers-5.24` (for whether T5 ties its head, the file counts).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, Heads, join, linear, mlp, projections, scores
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell, stack
from ridgeline.specs import Layer, Linear


def cross_attention(heads: Heads, *, bias: bool, key_bias: bool, encoder_rows: float = 1.0) -> Block:
    """Attention of the decoder's tokens to the encoder's; `encoder_rows`: encoder tokens for one of the decoder."""
    parts: list[Linear] = []
    for item in projections(heads, qkv_bias=bias, out_bias=bias, prefix="cross-"):
        if item.name in ("cross-k", "cross-v"):
            own = bias if item.name == "cross-v" else key_bias
            parts.append(replace(item, bias=own, from_encoder=True, rows_per_token=encoder_rows))
        else:
            parts.append(item)
    return Block(linears=tuple(parts), mixers=(scores(heads, causal=False, cross=True),))


def _self_attention(heads: Heads, *, bias: bool, key_bias: bool, causal: bool) -> Block:
    block = Block(
        linears=projections(heads, qkv_bias=bias, out_bias=bias),
        mixers=(scores(heads, causal=causal, cached=causal),),
    )
    if key_bias == bias:
        return block
    parts = tuple(replace(item, bias=key_bias) if item.name == "k" else item for item in block.linears)
    return replace(block, linears=parts)


def t5(*, tied: bool = True, every_layer_biased: bool = False) -> Callable[[Config], Shell]:
    """A builder for T5, v1.1, mT5 and UMT5: relative position biases, no other biases, RMS norms."""

    def build(config: Config) -> Shell:
        hidden, vocab = config.width("d_model", "hidden_size"), config.vocab()
        heads_count, width = config.heads("num_heads", "num_attention_heads"), config.width("d_kv")
        depth = config.layers("num_layers", "num_hidden_layers")
        decoder_depth = config.layers("num_decoder_layers", default=depth)
        projection = config.text("feed_forward_proj", default="relu")
        gated = projection.startswith("gated-")
        config.skip("is_gated_act", "dense_act_fn")
        heads = Heads(
            hidden_count=hidden,
            heads_count=heads_count,
            kv_heads_count=heads_count,
            key_dim_count=width,
            value_dim_count=width,
        )
        inner = mlp(hidden, config.width("d_ff", "intermediate_size"), gated=gated)
        near = join(
            (_self_attention(heads, bias=False, key_bias=False, causal=False), inner),
            norm_parameters_count=2 * hidden,
            gated=gated,
            rope=False,
        )
        far = join(
            (
                _self_attention(heads, bias=False, key_bias=False, causal=True),
                cross_attention(heads, bias=False, key_bias=False),
                inner,
            ),
            norm_parameters_count=3 * hidden,
            norms_count=3,
            gated=gated,
            rope=False,
        )
        table = config.width("relative_attention_num_buckets", default=32) * heads_count
        extra = {True: depth * table, False: table}[every_layer_biased]
        decoder_extra = {True: decoder_depth * table, False: table}[every_layer_biased]
        encoder = stack("encoder", hidden, (near,) * depth, other_count=hidden + extra)
        return Shell(
            layers=(far,) * decoder_depth,
            hidden_count=hidden,
            vocab_count=vocab,
            tied=config.flag("tie_word_embeddings", default=tied),
            other_count=hidden + decoder_extra,
            others=(encoder,),
            context_tokens=config.context(),
        )

    return build


@dataclass(frozen=True, slots=True, kw_only=True)
class BartRules:
    """What a BART-like family fixes in code.

    `embedding_norms`: a norm after each embedding; `final_norms`: one at the end of each stack. `positions_offset`:
    rows of the learned position tables beyond the context (None: sinusoids, no table). `output_bias`: a bias on the
    logits.
    """

    embedding_norms: bool = True
    final_norms: bool = False
    positions_offset: int | None = 2
    key_bias: bool = True


def bart(rules: BartRules) -> Callable[[Config], Shell]:
    """A builder for BART, mBART, Pegasus, Marian, M2M-100 and the like."""

    def build(config: Config) -> Shell:
        hidden, vocab = config.width("d_model", "hidden_size"), config.vocab()
        depths = config.layers("encoder_layers"), config.layers("decoder_layers")
        near, far = _bart_layers(config, hidden, rules)
        context = config.context()
        if context is None:
            config.missing(*reader.CONTEXT)
        offset = rules.positions_offset
        extra = 0 if offset is None else (context + offset) * hidden
        extra += (int(rules.embedding_norms) + int(rules.final_norms)) * 2 * hidden
        encoder = stack("encoder", hidden, (near,) * depths[0], other_count=extra)
        return Shell(
            layers=(far,) * depths[1],
            hidden_count=hidden,
            vocab_count=vocab,
            tied=config.flag("tie_word_embeddings", default=True),
            other_count=extra,
            others=(encoder,),
            context_tokens=context,
        )

    return build


def _bart_layers(config: Config, hidden: int, rules: BartRules, *, encoder_rows: float = 1.0) -> tuple[Layer, Layer]:
    """The encoder's and the decoder's layer: biases everywhere, two and three norms with bias."""
    sides = []
    for side in ("encoder", "decoder"):
        heads_count = config.heads(f"{side}_attention_heads")
        width = config.divides(heads_count, hidden, f"{side}_attention_heads", "d_model")
        heads = Heads(
            hidden_count=hidden,
            heads_count=heads_count,
            kv_heads_count=heads_count,
            key_dim_count=width,
            value_dim_count=width,
        )
        inner = mlp(hidden, config.width(f"{side}_ffn_dim"), gated=False, bias=True)
        own = _self_attention(heads, bias=True, key_bias=rules.key_bias, causal=side == "decoder")
        parts = [own, inner]
        if side == "decoder":
            parts.insert(1, cross_attention(heads, bias=True, key_bias=rules.key_bias, encoder_rows=encoder_rows))
        norms = len(parts)
        sides.append(join(parts, norm_parameters_count=2 * norms * hidden, norms_count=norms, gated=False, rope=False))
    return sides[0], sides[1]


def whisper(config: Config) -> Shell:
    """Whisper: two convolutions on the spectrogram (the second halves its length), then a BART without key biases."""
    hidden, vocab = config.width("d_model", "hidden_size"), config.vocab()
    source = config.whole("max_source_positions", low=1, high=reader.MAX_TOKENS)
    target = config.whole("max_target_positions", low=1, high=reader.MAX_TOKENS)
    near, far = _bart_layers(config, hidden, BartRules(key_bias=False), encoder_rows=source / target)
    mels = config.width("num_mel_bins")
    taps = 3
    convolutions = (
        linear("conv-1", "other", taps * mels, hidden, bias=True, rows_per_token=2.0),
        linear("conv-2", "other", taps * hidden, hidden, bias=True),
    )
    encoder = stack(
        "audio",
        hidden,
        (near,) * config.layers("encoder_layers"),
        linears=convolutions,
        other_count=source * hidden + 2 * hidden,
    )
    return Shell(
        layers=(far,) * config.layers("decoder_layers"),
        hidden_count=hidden,
        vocab_count=vocab,
        tied=config.flag("tie_word_embeddings", default=True),
        other_count=target * hidden + 2 * hidden,
        others=(encoder,),
        context_tokens=target,
        encoder_tokens=source,
    )


ENCODER_DECODER_BUILDERS: dict[str, Callable[[Config], Shell]] = {
    "t5": t5(),
    "mt5": t5(tied=False),
    "umt5": t5(tied=False, every_layer_biased=True),
    "bart": bart(BartRules()),
    "mbart": bart(BartRules(final_norms=True)),
    "pegasus": bart(BartRules(embedding_norms=False, final_norms=True, positions_offset=0)),
    "marian": bart(BartRules(embedding_norms=False, positions_offset=0)),
    "m2m_100": bart(BartRules(embedding_norms=False, final_norms=True, positions_offset=None)),
    "blenderbot": bart(BartRules(embedding_norms=False, final_norms=True, positions_offset=0)),
    "whisper": whisper,
}
