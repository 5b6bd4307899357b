"""Builds decoders with plain softmax attention from their `DecoderRules`."""

from __future__ import annotations

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, Heads, attention, join, linear, mixture, mlp
from ridgeline.intake.families.rules import DecoderRules, experts_of, norm_count, switch
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Layer, Linear


def decoder(config: Config, rules: DecoderRules) -> Shell:
    """The decoder that `config` describes under `rules`."""
    config = config.with_defaults(rules.defaults)
    hidden = config.width(*reader.HIDDEN)
    layers = decoder_layers(config, rules)
    others = norm_count(rules.norm, hidden) if rules.final_norm else 0
    if rules.embedding_norm:
        others += norm_count(rules.norm, hidden)
    context = config.context()
    if rules.positions_offset is not None:
        if context is None:
            config.missing(*reader.CONTEXT)
        others += (context + rules.positions_offset) * hidden
    return Shell(
        layers=tuple(layers),
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=switch(config, rules.tied),
        head_bias=switch(config, rules.head_bias),
        other_count=others,
        context_tokens=context,
    )


def decoder_layers(config: Config, rules: DecoderRules) -> list[Layer]:
    """All layers, in order."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    heads = heads_of(config, hidden, head_dim=rules.head_dim)
    windows = rules.windows(config, count)
    gated = switch(config, rules.gated)
    bias = switch(config, rules.mlp_bias)
    sparse = rules.mixture.sparse_layers(config, count) if rules.mixture else [False] * count
    routed = (
        mixture(hidden, experts_of(config, rules.mixture, gated=gated)) if rules.mixture and any(sparse) else Block()
    )
    dense = Block() if all(sparse) else mlp(hidden, dense_width(config, rules, hidden), gated=gated, bias=bias)
    norms = rules.norms_count * norm_count(rules.norm, hidden)
    layers = []
    for window, experts in zip(windows, sparse, strict=True):
        parts = (plain_attention(config, rules, heads, window), routed if experts else dense)
        layers.append(
            join(parts, norm_parameters_count=norms, norms_count=rules.norms_count, gated=gated, rope=rules.rope)
        )
    return layers


def heads_of(config: Config, hidden: int, *, head_dim: bool = True) -> Heads:
    """Heads with the usual keys: key-value heads default to all heads, a head's width to its share of the hidden."""
    heads = config.heads()
    groups = config.heads(*reader.KV_HEADS, default=heads)
    config.divides(groups, heads, config.key_of(*reader.KV_HEADS), config.key_of(*reader.HEADS))
    width = config.whole("head_dim", low=0, default=0) if head_dim else 0
    if not width:
        width = config.divides(heads, hidden, config.key_of(*reader.HEADS), config.key_of(*reader.HIDDEN))
    return Heads(
        hidden_count=hidden, heads_count=heads, kv_heads_count=groups, key_dim_count=width, value_dim_count=width
    )


def plain_attention(config: Config, rules: DecoderRules, heads: Heads, window_tokens: int | None) -> Block:
    """The attention of one layer with the family's biases, norms and sinks."""
    extra = heads.heads_count if rules.sinks else 0
    if rules.query_key_norm != "none" and switch(config, rules.query_key_switch):
        extra += {
            "head": 2 * heads.key_dim_count,
            "head-bias": 4 * heads.key_dim_count,
            "full": heads.query_width_count + heads.key_width_count,
        }[rules.query_key_norm]
    return attention(
        heads,
        qkv_bias=switch(config, rules.qkv_bias),
        out_bias=switch(config, rules.out_bias),
        window_tokens=window_tokens,
        norm_count=extra,
    )


def dense_width(config: Config, rules: DecoderRules, hidden: int) -> int:
    """Width of a dense MLP."""
    names = rules.mixture.dense_inner if rules.mixture and rules.mixture.dense_inner else reader.FFN
    default = rules.ffn_multiple * hidden if rules.ffn_multiple else None
    return config.width(*names, default=default)


def next_token_module_count(hidden: int, layers: list[Layer], *, norms: int = 3) -> int:
    """Parameters of multi-token-prediction modules as DeepSeek-V3 has them (deepseek-v3-report, section 2.2).

    Each module is a layer, a projection from two hidden states to one, and norms (of both inputs and of the
    output); embedding and head are those of the model.
    """
    joint: Linear = linear("joint", "other", 2 * hidden, hidden)
    return sum(layer.parameters_count + joint.parameters_count + norms * hidden for layer in layers)
