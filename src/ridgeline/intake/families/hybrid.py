"""Families with recurrent layers: state-space models and mixtures of recurrent and attention layers.

Source: modelling code in `transformers-5.24`; for Kimi K3 and MiniMax-Text-01 the code in the models' own
repositories, as vLLM carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, attention, join, linear, mixture, mlp
from ridgeline.intake.families import patterns
from ridgeline.intake.families.decoder import heads_of, next_token_module_count
from ridgeline.intake.families.recurrent import (
    DeltaNet,
    Mamba1,
    Mamba2,
    delta_net,
    lightning,
    mamba1,
    mamba2,
    state_precision,
)
from ridgeline.intake.families.rules import MixtureRules, experts_of
from ridgeline.intake.reader import MAX_LAYERS, Config, shown
from ridgeline.intake.shell import Shell
from ridgeline.specs import Layer, Recurrence

_EVERY = MixtureRules(sparse_layers=patterns.every_has_experts)


def finished(
    config: Config,
    layers: Sequence[Layer],
    *,
    tied: bool = False,
    other_count: int | None = None,
    mtp_count: int = 0,
    ahead: Sequence[Layer] = (),
) -> Shell:
    """A decoder of `layers` with a final norm."""
    hidden = config.width(*reader.HIDDEN)
    return Shell(
        layers=tuple(layers),
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=config.flag("tie_word_embeddings", default=tied),
        other_count=hidden if other_count is None else other_count,
        context_tokens=config.context(),
        mtp_count=mtp_count,
        ahead=tuple(ahead),
    )


def mamba(config: Config) -> Shell:
    """Mamba and Falcon-Mamba: nothing but mixers, one norm each."""
    hidden, state = config.width(*reader.HIDDEN), config.width("state_size")
    inner = config.width("expand", default=2) * hidden
    rank = config.get("time_step_rank")
    rank = -(-hidden // 16) if rank in (None, "auto") else config.width("time_step_rank")
    config.skip("intermediate_size")
    bias = config.flag("use_bias", default=False)
    block = mamba1(
        Mamba1(
            hidden_count=hidden,
            inner_count=inner,
            state_count=state,
            taps_count=config.width("conv_kernel", default=4),
            rank_count=rank,
            conv_bias=config.flag("use_conv_bias", default=True),
            bias=bias,
            precision=state_precision(config, "bf16"),
        )
    )
    layer = join((block,), norm_parameters_count=hidden, norms_count=1, gated=False, rope=False)
    return finished(config, [layer] * config.layers(), tied=True)


def mamba_2(config: Config) -> Shell:
    """Mamba-2: nothing but mixers, one norm each."""
    hidden = config.width(*reader.HIDDEN)
    heads, width = config.heads("num_heads"), config.width("head_dim")
    inner = config.width("expand", default=2) * hidden
    if heads * width != inner:
        config.fail("num_heads", f"got {heads} heads of {width}, expected them to make expand * hidden_size = {inner}")
    block = mamba2(
        Mamba2(
            hidden_count=hidden,
            heads_count=heads,
            head_dim_count=width,
            groups_count=config.heads("n_groups"),
            state_count=config.width("state_size"),
            taps_count=config.width("conv_kernel", default=4),
            conv_bias=config.flag("use_conv_bias", default=True),
            bias=config.flag("use_bias", default=False),
            precision=state_precision(config, "bf16"),
        )
    )
    layer = join((block,), norm_parameters_count=hidden, norms_count=1, gated=False, rope=False)
    return finished(config, [layer] * config.layers())


def _prefixed_mamba2(config: Config, hidden: int, *, inner: int | None = None, normed: bool = True) -> Block:
    """Mamba-2 under the keys `mamba_n_heads`, `mamba_d_head`... (Bamba, Granite 4, Falcon-H1)."""
    heads = config.heads("mamba_n_heads")
    inner = inner or config.width("mamba_expand", default=2) * hidden
    if config.get("mamba_d_head") in (None, "auto"):
        width = config.divides(heads, inner, "mamba_n_heads", "mamba_expand * hidden_size")
    else:
        width = config.width("mamba_d_head")
    if heads * width != inner:
        config.fail("mamba_d_head", f"got {width} for {heads} heads, expected them to make {inner} channels")
    return mamba2(
        Mamba2(
            hidden_count=hidden,
            heads_count=heads,
            head_dim_count=width,
            groups_count=config.heads("mamba_n_groups", default=1),
            state_count=config.width("mamba_d_state"),
            taps_count=config.width("mamba_d_conv", default=4),
            conv_bias=config.flag("mamba_conv_bias", default=True),
            bias=config.flag("mamba_proj_bias", default=False),
            normed=normed,
            precision=state_precision(config, "bf16"),
        )
    )


def jamba(config: Config) -> Shell:
    """Jamba: one attention in `attn_layer_period` layers, experts in every `expert_layer_period`-th."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    rank = config.get("mamba_dt_rank")
    scan = mamba1(
        Mamba1(
            hidden_count=hidden,
            inner_count=config.width("mamba_expand", default=2) * hidden,
            state_count=config.width("mamba_d_state"),
            taps_count=config.width("mamba_d_conv", default=4),
            rank_count=-(-hidden // 16) if rank in (None, "auto") else config.width("mamba_dt_rank"),
            conv_bias=config.flag("mamba_conv_bias", default=True),
            bias=config.flag("mamba_proj_bias", default=False),
            normed=True,
            precision=state_precision(config, "bf16"),
        )
    )
    softmax = attention(heads_of(config, hidden, head_dim=False))
    dense = mlp(hidden, config.width(*reader.FFN))
    experts = config.whole(*reader.EXPERTS, low=1, high=reader.MAX_EXPERTS)
    routed = mixture(hidden, experts_of(config, _EVERY)) if experts > 1 else dense
    every = {key: config.whole(key, low=1, high=MAX_LAYERS) for key in ("attn_layer_period", "expert_layer_period")}
    first = {key: config.whole(key, high=MAX_LAYERS) for key in ("attn_layer_offset", "expert_layer_offset")}
    layers = []
    for index in range(count):
        mixer = softmax if index % every["attn_layer_period"] == first["attn_layer_offset"] else scan
        inner = routed if index % every["expert_layer_period"] == first["expert_layer_offset"] else dense
        layers.append(join((mixer, inner), norm_parameters_count=2 * hidden, rope=False))
    return finished(config, layers)


def bamba(config: Config) -> Shell:
    """Bamba: Mamba-2 but for the layers in `attn_layer_indices`."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    bias, mlp_bias = config.flag("attention_bias", default=False), config.flag("mlp_bias", default=False)
    softmax = attention(heads_of(config, hidden, head_dim=False), qkv_bias=bias, out_bias=bias)
    scan = _prefixed_mamba2(config, hidden)
    dense = mlp(hidden, config.width(*reader.FFN), bias=mlp_bias)
    chosen = set(config.wholes("attn_layer_indices", high=MAX_LAYERS)) if config.has("attn_layer_indices") else set()
    layers = [
        join((softmax if index in chosen else scan, dense), norm_parameters_count=2 * hidden) for index in range(count)
    ]
    return finished(config, layers)


def falcon_h1(config: Config) -> Shell:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden = config.width(*reader.HIDDEN)
    bias, mlp_bias = config.flag("attention_bias", default=False), config.flag("mlp_bias", default=False)
    inner = config.width("mamba_d_ssm") if config.has("mamba_d_ssm") else None
    scan = _prefixed_mamba2(config, hidden, inner=inner, normed=config.flag("mamba_rms_norm", default=False))
    parts = (
        attention(heads_of(config, hidden), qkv_bias=bias, out_bias=bias),
        scan,
        mlp(hidden, config.width(*reader.FFN), bias=mlp_bias),
    )
    layer = join(parts, norm_parameters_count=2 * hidden)
    return finished(config, [layer] * config.layers())


def granite_hybrid(config: Config) -> Shell:
    """Granite 4: `layer_types` of Mamba-2 and attention; a shared MLP in every layer, beside experts if any."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    bias = config.flag("attention_bias", default=False)
    kinds = (
        patterns.layer_types(config, count, ("mamba", "attention", "linear_attention", "full_attention"))
        or ["mamba"] * count
    )
    softmax = attention(heads_of(config, hidden, head_dim=False), qkv_bias=bias, out_bias=bias)
    has_scan = any(kind in ("mamba", "linear_attention") for kind in kinds)
    scan = _prefixed_mamba2(config, hidden) if has_scan else Block()
    shared = config.width("shared_intermediate_size")
    experts = config.whole(*reader.EXPERTS, high=reader.MAX_EXPERTS, default=0)
    if experts:
        inner = mixture(hidden, replace(experts_of(config, _EVERY), shared_inner_count=shared))
    else:
        inner = mlp(hidden, shared)
        config.skip(*reader.TOP_K, *reader.FFN)
    layers = [
        join(
            (softmax if "attention" == kind or kind == "full_attention" else scan, inner),
            norm_parameters_count=2 * hidden,
        )
        for kind in kinds
    ]
    return finished(config, layers)


_NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NEMOTRON_WORDS = {
    "linear_attention": "mamba",
    "full_attention": "attention",
    "mamba": "mamba",
    "attention": "attention",
}


def _nemotron_kinds(config: Config, letters: str, words: str) -> list[str]:
    """Kinds of layers from a string of letters (M, *, -, E) or a list of words."""
    pattern = config.get(letters)
    names = config.get(words)
    if names is not None:
        return [_NEMOTRON_WORDS.get(str(name), str(name)) for name in config.items(words)]
    if not isinstance(pattern, str) or not pattern:
        config.fail(letters, f"got {shown(pattern)}, expected a letter for each layer ({', '.join(_NEMOTRON_LETTERS)})")
    for index, letter in enumerate(pattern):
        if letter not in _NEMOTRON_LETTERS:
            config.fail(letters, f"got {shown(letter)} at {index}, expected {' or '.join(_NEMOTRON_LETTERS)}")
    return [_NEMOTRON_LETTERS[letter] for letter in pattern]


def nemotron_h(config: Config) -> Shell:
    """Nemotron-H and Nemotron 3: each layer is one block (Mamba-2, attention, MLP or experts) under one norm."""
    hidden = config.width(*reader.HIDDEN)
    kinds = _nemotron_kinds(config, "hybrid_override_pattern", "layers_block_type")
    if config.has(*reader.LAYERS) and config.layers() != len(kinds):
        config.fail(
            "hybrid_override_pattern", f"describes {len(kinds)} layers, expected num_hidden_layers = {config.layers()}"
        )
    modules = config.whole("num_nextn_predict_layers", high=64, default=0)
    if modules:
        config = config.with_defaults({"mtp_hybrid_override_pattern": "*E"})
    ahead = _nemotron_kinds(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type") if modules else []
    config.skip("mtp_hybrid_override_pattern")
    blocks = {kind: _nemotron_block(config, hidden, kind) for kind in dict.fromkeys([*kinds, *ahead])}
    layers = {
        kind: join((block,), norm_parameters_count=hidden, norms_count=1, gated=False, rope=False)
        for kind, block in blocks.items()
    }
    spare = sum(layers[kind].parameters_count for kind in ahead[1:])
    mtp_count = modules * (next_token_module_count(hidden, [layers[ahead[0]]]) + spare) if modules else 0
    one = [layers[kind] for kind in ahead]
    return finished(config, [layers[kind] for kind in kinds], mtp_count=mtp_count, ahead=one)


def _nemotron_block(config: Config, hidden: int, kind: str) -> Block:
    bias = config.flag("mlp_bias", default=False)
    if kind == "attention":
        own = config.flag("attention_bias", default=False)
        window = patterns.window_size(config)
        return attention(heads_of(config, hidden), qkv_bias=own, out_bias=own, window_tokens=window)
    if kind == "mlp":
        return mlp(hidden, config.width(*reader.FFN), gated=False, bias=bias)
    if kind == "moe":
        rules = MixtureRules(
            sparse_layers=patterns.every_has_experts,
            inner=("moe_intermediate_size",),
            shared_inner=("moe_shared_expert_intermediate_size",),
            bias=bias,
            routing_bias=True,
        )
        experts = experts_of(config, rules, gated=False)
        shared = experts.shared_inner_count * config.whole("n_shared_experts", high=1024, default=1)
        latent = config.width("moe_latent_size") if config.has("moe_latent_size") else None
        return mixture(hidden, replace(experts, shared_inner_count=shared, io_count=latent))
    if kind != "mamba":
        config.fail("layers_block_type", f"got {shown(kind)}, expected mamba, attention, mlp or moe")
    return mamba2(
        Mamba2(
            hidden_count=hidden,
            heads_count=config.heads("mamba_num_heads"),
            head_dim_count=config.width("mamba_head_dim"),
            groups_count=config.heads("n_groups", "mamba_n_groups"),
            state_count=config.width("ssm_state_size"),
            taps_count=config.width("conv_kernel", "mamba_d_conv", default=4),
            conv_bias=config.flag("use_conv_bias", "mamba_conv_bias", default=True),
            bias=config.flag("use_bias", default=False) or config.flag("mamba_proj_bias", default=False),
            precision=state_precision(config, "fp32"),
        )
    )


def qwen_next(config: Config) -> Shell:
    """Qwen3-Next and Qwen3.5 (text): gated delta net, each `full_attention_interval`-th layer a gated attention."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    kinds = patterns.layer_types(config, count, ("linear_attention", "full_attention"))
    step = config.whole("full_attention_interval", low=1, high=MAX_LAYERS, default=4)
    if kinds is None:
        kinds = ["linear_attention" if (index + 1) % step else "full_attention" for index in range(count)]
    softmax = _gated_attention(config, hidden)
    delta = delta_net(
        DeltaNet(
            hidden_count=hidden,
            key_heads_count=config.heads("linear_num_key_heads"),
            value_heads_count=config.heads("linear_num_value_heads"),
            key_dim_count=config.width("linear_key_head_dim"),
            value_dim_count=config.width("linear_value_head_dim"),
            taps_count=config.width("linear_conv_kernel_dim", default=4),
            precision=state_precision(config, "fp32"),
        )
    )
    rules = MixtureRules(
        sparse_layers=patterns.qwen_sparse,
        inner=("moe_intermediate_size",),
        shared_inner=("shared_expert_intermediate_size",),
        shared_gate=True,
    )
    sparse = rules.sparse_layers(config, count) if config.has(*reader.EXPERTS) else [False] * count
    routed = mixture(hidden, experts_of(config, rules)) if any(sparse) else Block()
    dense = Block() if all(sparse) else mlp(hidden, config.width(*reader.FFN))
    layers = [
        join(
            (softmax if kind == "full_attention" else delta, routed if chosen else dense),
            norm_parameters_count=2 * hidden,
        )
        for kind, chosen in zip(kinds, sparse, strict=True)
    ]
    modules = config.whole("mtp_num_hidden_layers", "num_nextn_predict_layers", high=64, default=0)
    ahead = join((softmax, routed if any(sparse) else dense), norm_parameters_count=2 * hidden)
    return finished(config, layers, mtp_count=next_token_module_count(hidden, [ahead] * modules))


def olmo_hybrid(config: Config) -> Shell:
    """OLMo Hybrid: gated delta net and attention; attention layers normalise their outputs, the others their inputs."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    kinds = patterns.layer_types(config, count, ("linear_attention", "full_attention"))
    if kinds is None:
        kinds = ["full_attention" if index % 4 == 3 else "linear_attention" for index in range(count)]
    heads = heads_of(config, hidden, head_dim=False)
    bias = config.flag("attention_bias", default=False)
    softmax = attention(heads, qkv_bias=bias, out_bias=bias, norm_count=heads.query_width_count + heads.key_width_count)
    delta = delta_net(
        DeltaNet(
            hidden_count=hidden,
            key_heads_count=config.heads("linear_num_key_heads", default=heads.heads_count),
            value_heads_count=config.heads("linear_num_value_heads", default=heads.heads_count),
            key_dim_count=config.width("linear_key_head_dim"),
            value_dim_count=config.width("linear_value_head_dim"),
            taps_count=config.width("linear_conv_kernel_dim", default=4),
        )
    )
    inner = mlp(hidden, config.width(*reader.FFN))
    layers = [
        join((softmax if kind == "full_attention" else delta, inner), norm_parameters_count=2 * hidden)
        for kind in kinds
    ]
    return finished(config, layers)


def _gated_attention(config: Config, hidden: int) -> Block:
    """Attention whose query matrix also makes an output gate; queries and keys are normalised."""
    heads = heads_of(config, hidden)
    bias = config.flag("attention_bias", default=False)
    plain = attention(heads, qkv_bias=bias, out_bias=bias, norm_count=2 * heads.key_dim_count)
    gate = linear("output-gate", "attention", hidden, heads.query_width_count, bias=bias, head_count=heads.heads_count)
    return replace(plain, linears=(*plain.linears, gate))


def minimax_01(config: Config) -> Shell:
    """MiniMax-Text-01 and M1: lightning attention, with softmax attention where `attn_type_list` has a 1."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    heads = heads_of(config, hidden)
    if config.has("attn_type_list"):
        marks = config.wholes("attn_type_list", high=1, count=count)
    else:
        kinds = patterns.layer_types(config, count, ("linear_attention", "full_attention"))
        if kinds is None:
            config.missing("attn_type_list", "layer_types")
        marks = [int(kind == "full_attention") for kind in kinds]
    linear_part = lightning(hidden, heads.heads_count, heads.key_dim_count)
    softmax, routed = attention(heads), mixture(hidden, experts_of(config, _EVERY))
    layers = [join((softmax if mark else linear_part, routed), norm_parameters_count=2 * hidden) for mark in marks]
    return finished(config, layers)


_CONV_FLOP = 2.0


def lfm2(config: Config) -> Shell:
    """LFM2: short gated convolutions, with attention in the layers of `full_attn_idxs`; MLP width worked out."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    kinds = patterns.layer_types(config, count, ("conv", "full_attention"))
    if kinds is None:
        chosen = set(config.wholes("full_attn_idxs", high=MAX_LAYERS))
        kinds = ["full_attention" if index in chosen else "conv" for index in range(count)]
    config.skip("full_attn_idxs")
    inner = config.width("block_ff_dim") if config.has("block_ff_dim") else config.width("intermediate_size")
    config.skip("intermediate_size")
    if config.flag("block_auto_adjust_ff_dim", default=True):
        grain = config.width("block_multiple_of", default=256)
        inner = int(config.number("block_ffn_dim_multiplier", default=1.0) * int(2 * inner / 3))
        inner = -(-inner // grain) * grain
    taps, bias = config.width("conv_L_cache", default=3), config.flag("conv_bias", default=False)
    scan = Recurrence(
        kind="short-convolution",
        state_per_sequence_count=0,
        per_token_flop=_CONV_FLOP * taps * hidden,
        elementwise_per_token_count=float(4 * hidden),
        tail_per_sequence_count=(taps - 1) * hidden,
    )
    conv = Block(
        linears=(
            linear("conv-in", "mixer", hidden, 3 * hidden, bias=bias),
            linear("conv-out", "mixer", hidden, hidden, bias=bias, split="row"),
        ),
        mixers=(scan,),
        other_count=hidden * (taps + (1 if bias else 0)),
    )
    heads = heads_of(config, hidden, head_dim=False)
    softmax = attention(heads, norm_count=2 * heads.key_dim_count)
    dense = mlp(hidden, inner)
    layers = [
        join((softmax if kind == "full_attention" else conv, dense), norm_parameters_count=2 * hidden) for kind in kinds
    ]
    tied = config.flag("tie_embedding", default=True)
    return finished(config, layers, tied=tied)


HYBRID_BUILDERS: dict[str, Callable[[Config], Shell]] = {
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba_2,
    "jamba": jamba,
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "granitemoehybrid": granite_hybrid,
    "nemotron_h": nemotron_h,
    "qwen3_next": qwen_next,
    "qwen3_5_text": qwen_next,
    "qwen3_5_moe_text": qwen_next,
    "olmo_hybrid": olmo_hybrid,
    "minimax": minimax_01,
    "minimax_text_01": minimax_01,
    "minimax_m1": minimax_01,
    "lfm2": lfm2,
}
