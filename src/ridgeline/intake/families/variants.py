"""Decoders whose keys need working out before the common rules apply, and those with odd parameters.

Sources: modelling code in `transformers-5.24`; for chatglm, qwen (the first) and nemotron-nas the code that the
models' own repositories carry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, Heads, attention, join, linear, mlp
from ridgeline.intake.families.decoder import decoder
from ridgeline.intake.families.rules import DecoderRules, switch
from ridgeline.intake.reader import Config, shown
from ridgeline.intake.shell import Shell

_TIED = ("tie_word_embeddings", True)
_LAYER = DecoderRules(norm="layer", gated=False, tied=_TIED, head_dim=False)


def opt(config: Config) -> Shell:
    """OPT: positions start at 2; the smallest and the largest sizes embed in another width than the hidden one."""
    bias = ("enable_bias", True)
    rules = replace(
        _LAYER, qkv_bias=bias, out_bias=bias, mlp_bias=bias, positions_offset=2, rope=False,
        final_norm=config.flag("do_layer_norm_before", default=True)
        and not config.flag("_remove_final_layer_norm", default=False),
    )  # fmt: skip
    shell = decoder(config, rules)
    hidden, vocab = shell.hidden_count, shell.vocab_count
    width = config.width("word_embed_proj_dim", default=hidden)
    if width == hidden:
        return shell
    ends = (linear("project-in", "other", width, hidden), linear("project-out", "other", hidden, width))
    return replace(shell, linears=ends, embedding_count=vocab * width, head=linear("head", "head", width, vocab))


def falcon(config: Config) -> Shell:
    """Falcon: one key-value head in the 7B layout, groups in the new one; MLP beside or after the attention."""
    heads = config.heads()
    fresh = config.flag("new_decoder_architecture", default=False)
    groups = config.heads("num_kv_heads", "n_head_kv", default=heads)
    if not fresh:
        groups = 1 if config.flag("multi_query", default=True) else heads
    parallel = fresh or config.flag("parallel_attn", default=True)
    norms = config.whole("num_ln_in_parallel_attn", low=1, high=2, default=2 if fresh else 1)
    bias = switch(config, ("bias", False))
    rules = replace(
        _LAYER,
        norms_count=norms if parallel else 2,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        ffn_multiple=4,
        rope=not config.flag("alibi", default=False),
    )
    return decoder(config.overlaid({"num_key_value_heads": groups, "num_kv_heads": groups, "n_head_kv": groups}), rules)


def mpt(config: Config) -> Shell:
    """MPT: no biases, norms without bias, ALiBi in place of positions where it says so."""
    nested = config.section("attn_config", required=False)
    rotary = nested.flag("rope", default=False)
    alibi = nested.flag("alibi", default=True)
    heads = config.heads()
    kind = nested.text(
        "attn_type",
        default="multihead_attention",
        allowed=("multihead_attention", "multiquery_attention", "grouped_query_attention"),
    )
    groups = nested.heads("kv_n_heads", default=1 if kind == "multiquery_attention" else heads)
    bias = not config.flag("no_bias", default=True)
    learned = config.flag("learned_pos_emb", default=True) and not alibi and not rotary
    ratio = config.number("expansion_ratio", low=1, high=64, default=4)
    rules = replace(
        _LAYER,
        norm="layer" if bias else "layer-no-bias",
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        positions_offset=0 if learned else None,
        query_key_norm="full",
        query_key_switch=nested.flag("qk_ln", default=False),
        rope=rotary,
    )
    hidden = config.width(*reader.HIDDEN)
    return decoder(config.overlaid({"num_key_value_heads": groups, "intermediate_size": round(ratio * hidden)}), rules)


def gpt_bigcode(config: Config) -> Shell:
    """GPT-BigCode (StarCoder): GPT-2 with one key-value head where `multi_query` says so."""
    groups = 1 if config.flag("multi_query", default=True) else config.heads()
    rules = replace(_LAYER, qkv_bias=True, out_bias=True, mlp_bias=True, ffn_multiple=4, positions_offset=0, rope=False)
    return decoder(config.overlaid({"num_key_value_heads": groups}), rules)


def chatglm(config: Config) -> Shell:
    """ChatGLM 2 to 4 (own code): groups of key-value heads, bias on queries, keys and values, gated MLP."""
    if not config.flag("rmsnorm", default=True):
        config.fail("rmsnorm", "got false, expected true (ChatGLM 2 and later)")
    heads = config.heads()
    groups = heads
    if config.flag("multi_query_attention", default=False):
        groups = config.heads("multi_query_group_num")
    config.skip("multi_query_group_num")
    bias = ("add_bias_linear", False)
    linear_bias = switch(config, bias)
    rules = DecoderRules(
        qkv_bias=linear_bias or config.flag("add_qkv_bias", default=False),
        out_bias=bias,
        mlp_bias=bias,
        final_norm=config.flag("post_layer_norm", default=True),
    )
    width = config.width("kv_channels", default=128)
    return decoder(config.overlaid({"num_key_value_heads": groups, "head_dim": width}), rules)


def qwen(config: Config) -> Shell:
    """The first Qwen (own code): `intermediate_size` counts both branches of the gated MLP."""
    hidden, both = config.width(*reader.HIDDEN), config.width("intermediate_size")
    if both % 2:
        config.fail("intermediate_size", f"got {both}, expected an even number (both branches of the gated MLP)")
    rules = DecoderRules(qkv_bias=True, mlp_bias=not config.flag("no_bias", default=True))
    heads = config.heads()
    width = config.width("kv_channels", default=hidden // heads)
    return decoder(config.overlaid({"intermediate_size": both // 2, "head_dim": width}), rules)


def apertus(config: Config) -> Shell:
    """Apertus: an activation with two learned figures a layer."""
    bias = ("attention_bias", False)
    rules = DecoderRules(gated=False, qkv_bias=bias, out_bias=bias, mlp_bias=("mlp_bias", False), query_key_norm="head")
    return _with_extra(decoder(config, rules), lambda config: 2, config)


def bitnet(config: Config) -> Shell:
    """BitNet: one more norm inside the attention and inside the MLP."""
    bias = ("attention_bias", False)
    rules = DecoderRules(qkv_bias=bias, out_bias=bias, tied=_TIED)
    return _with_extra(
        decoder(config, rules), lambda config: config.width(*reader.HIDDEN) + config.width(*reader.FFN), config
    )


def _with_extra(shell: Shell, count: Callable[[Config], int], config: Config) -> Shell:
    extra = count(config)
    layers = tuple(
        replace(layer, other_parameters_count=layer.other_parameters_count + extra) for layer in shell.layers
    )
    return replace(shell, layers=layers)


_FFN_GRAIN = 256  # widths of searched MLPs are rounded up to this multiple (own code of nemotron-nas)


def nemotron_nas(config: Config) -> Shell:
    """Models pruned by architecture search (own code, DeciLM): each block says what its attention and MLP are."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    heads = config.heads()
    bias, mlp_bias = config.flag("attention_bias", default=False), config.flag("mlp_bias", default=False)
    width = config.divides(heads, hidden, "num_attention_heads", "hidden_size")
    layers = []
    for index, entry in enumerate(config.items("block_configs", count=count)):
        place = f"{config.path}block_configs[{index}]."
        if not isinstance(entry, dict):
            config.fail(f"block_configs[{index}]", f"got {shown(entry)}, expected a mapping")
        block = Config(entry, where=config.where, path=place)
        parts = [
            *_searched_attention(block.section("attention"), hidden, heads, width, bias),
            *_searched_mlp(block.section("ffn"), hidden, mlp_bias),
        ]
        layers.append(join(parts, norm_parameters_count=hidden * len(parts), norms_count=len(parts)))
    return Shell(
        layers=tuple(layers),
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=config.flag("tie_word_embeddings", default=False),
        other_count=hidden,
        context_tokens=config.context(),
    )


def _searched_attention(block: Config, hidden: int, heads: int, width: int, bias: bool) -> list[Block]:
    if block.flag("no_op", default=False):
        return []
    if block.flag("replace_with_linear", default=False):
        return [Block(linears=(linear("linear-attention", "attention", hidden, hidden, split="replicated"),))]
    group = block.heads("n_heads_in_group")
    shape = Heads(
        hidden_count=hidden,
        heads_count=heads,
        kv_heads_count=block.divides(group, heads, "n_heads_in_group", "num_attention_heads"),
        key_dim_count=width,
        value_dim_count=width,
    )
    window = block.whole("window_length", low=1, high=reader.MAX_TOKENS) if block.has("window_length") else None
    return [attention(shape, qkv_bias=bias, out_bias=bias, window_tokens=window)]


def _searched_mlp(block: Config, hidden: int, bias: bool) -> list[Block]:
    if block.flag("no_op", default=False):
        return []
    if block.flag("replace_with_linear", default=False):
        return [Block(linears=(linear("linear-mlp", "mlp", hidden, hidden, split="replicated"),))]
    if block.has("intermediate_size"):
        return [mlp(hidden, block.width("intermediate_size"), bias=bias)]
    multiple = block.number("ffn_mult", low=1e-3, high=64)
    inner = int(2 * multiple * hidden / 3)
    return [mlp(hidden, -(-inner // _FFN_GRAIN) * _FFN_GRAIN, bias=bias)]


VARIANTS: dict[str, Callable[[Config], Shell]] = {
    "opt": opt,
    "falcon": falcon,
    "mpt": mpt,
    "gpt_bigcode": gpt_bigcode,
    "chatglm": chatglm,
    "qwen": qwen,
    "apertus": apertus,
    "bitnet": bitnet,
    "nemotron-nas": nemotron_nas,
    "deci": nemotron_nas,
}
