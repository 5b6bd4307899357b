"""Gemma 4 (text): two shapes of attention, experts beside the MLP, an input of its own for every layer.

Source: `transformers-5.24` (gemma4).
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, Heads, attention, join, linear, mixture, mlp
from ridgeline.intake.families import patterns
from ridgeline.intake.families.rules import MixtureRules, experts_of
from ridgeline.intake.reader import MAX_VOCAB, Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Layer, SoftmaxAttention

_EXPERTS = MixtureRules(sparse_layers=patterns.every_has_experts, inner=("moe_intermediate_size",))
# Published files leave out what equals the class defaults.
GEMMA4_DEFAULTS = {"sliding_window": 512, "head_dim": 256}


def gemma4_text(config: Config) -> Shell:
    """Global layers have wider heads, and with `attention_k_eq_v` no value matrix: values are the keys."""
    config = config.with_defaults(GEMMA4_DEFAULTS)
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    kinds = patterns.layer_types(config, count, ("sliding_attention", "full_attention"))
    if kinds is None:
        kinds = ["sliding_attention" if (i + 1) % 6 and i != count - 1 else "full_attention" for i in range(count)]
    shared = config.whole("num_kv_shared_layers", high=count, default=0)
    extra = config.whole("hidden_size_per_layer_input", default=0)
    wide_mlp = config.flag("use_double_wide_mlp", default=False)
    inner = config.width(*reader.FFN)
    experts = _experts_part(config, hidden)
    layers: list[Layer] = []
    for index, kind in enumerate(kinds):
        reuse = index >= count - shared
        parts = [
            _attention(config, hidden, kind, reuse=reuse),
            mlp(hidden, inner * (2 if wide_mlp and reuse else 1)),
            *experts,
        ]
        norms = 7 if experts else 4
        if extra:
            parts.append(
                Block(
                    linears=(
                        linear("layer-input-gate", "other", hidden, extra, split="replicated"),
                        linear("layer-input-out", "other", extra, hidden, split="replicated"),
                    )
                )
            )
            norms += 1
        layers.append(join(parts, norm_parameters_count=norms * hidden, norms_count=norms))
    return _shell(config, layers, hidden, extra)


def _shell(config: Config, layers: list[Layer], hidden: int, extra: int) -> Shell:
    vocab, count = config.vocab(), len(layers)
    tables, linears, others = vocab * hidden, (), hidden
    if extra:
        rows = config.whole("vocab_size_per_layer_input", low=1, high=MAX_VOCAB, default=vocab)
        tables += rows * count * extra
        others += extra
    config.skip("vocab_size_per_layer_input")
    shell = Shell(
        layers=tuple(layers),
        hidden_count=hidden,
        vocab_count=vocab,
        tied=config.flag("tie_word_embeddings", default=True),
        linears=linears,
        other_count=others,
        embedding_count=tables,
        context_tokens=config.context(),
    )
    if not extra:
        return shell
    return replace(shell, linears=(linear("layer-inputs", "other", hidden, count * extra, split="replicated"),))


def _attention(config: Config, hidden: int, kind: str, *, reuse: bool) -> Block:
    """The attention of one layer; `reuse`: keys and values are those of an earlier layer."""
    heads, bias = config.heads(), config.flag("attention_bias", default=False)
    groups = config.heads(*reader.KV_HEADS, default=heads)
    width = config.width("head_dim")
    alike = False
    window = None
    if kind == "sliding_attention":
        window = config.whole("sliding_window", low=1, high=reader.MAX_TOKENS)
    else:
        alike = config.flag("attention_k_eq_v", default=False)
        groups = config.heads("num_global_key_value_heads", default=groups) if alike else groups
        width = config.width("global_head_dim", default=512)
        config.skip("num_global_key_value_heads")
    shape = Heads(
        hidden_count=hidden, heads_count=heads, kv_heads_count=groups, key_dim_count=width, value_dim_count=width
    )
    block = attention(shape, qkv_bias=bias, out_bias=bias, window_tokens=window, norm_count=2 * width)
    gone = {"k", "v"} if reuse else {"v"} if alike else set()
    linears = tuple(item for item in block.linears if item.name not in gone)
    if not reuse:
        return replace(block, linears=linears)
    mixers = tuple(replace(m, cached_per_token_count=0) for m in block.mixers if isinstance(m, SoftmaxAttention))
    return replace(block, linears=linears, mixers=mixers, other_count=width)


def _experts_part(config: Config, hidden: int) -> list[Block]:
    """Routed experts beside the MLP, with a scale for each input of the router and for each expert."""
    if not config.flag("enable_moe_block", default=False):
        config.skip(*reader.EXPERTS, *reader.TOP_K, "moe_intermediate_size")
        return []
    experts = experts_of(config, _EXPERTS)
    block = mixture(hidden, replace(experts, router_extra_count=hidden + experts.count))
    beside = tuple(replace(x, name=f"side-{x.name}") if x.role == "expert" else x for x in block.linears)
    return [replace(block, linears=beside)]
