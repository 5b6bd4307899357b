"""Families of mixture-of-experts decoders with plain softmax attention, as a table of rules.

Source of every entry: the modelling code in `transformers-5.24`, or the code that the model's own repository carries
for those marked "own code".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, Heads, attention, join, linear, mixture, mlp
from ridgeline.intake.families import patterns
from ridgeline.intake.families.decoder import decoder, heads_of, next_token_module_count
from ridgeline.intake.families.dense import DENSE
from ridgeline.intake.families.rules import DecoderRules, MixtureRules, experts_of
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Layer

_ATTENTION_BIAS = ("attention_bias", False)
_EVERY = MixtureRules(sparse_layers=patterns.every_has_experts)
_QWEN_EXPERTS = MixtureRules(
    sparse_layers=patterns.qwen_sparse,
    inner=("moe_intermediate_size",),
    shared_inner=("shared_expert_intermediate_size",),
    shared_gate=True,
)
_DEEPSEEK_EXPERTS = MixtureRules(
    sparse_layers=patterns.after_first,
    inner=("moe_intermediate_size",),
    shared_count=("n_shared_experts", "num_shared_experts"),
)
_CORRECTED = replace(_DEEPSEEK_EXPERTS, routing_bias=True)

MIXTURES: dict[str, DecoderRules] = {
    "mixtral": DecoderRules(windows=patterns.every_layer, mixture=_EVERY),
    "qwen2_moe": replace(DENSE["qwen2"], mixture=_QWEN_EXPERTS),
    "qwen3_moe": replace(DENSE["qwen3"], mixture=replace(_QWEN_EXPERTS, shared_inner=())),
    "olmoe": replace(DENSE["olmo2"], mixture=_EVERY),
    "flex_olmo": replace(DENSE["olmo2"], mixture=_EVERY),
    "phimoe": DecoderRules(
        norm="layer",
        qkv_bias=_ATTENTION_BIAS,
        out_bias=_ATTENTION_BIAS,
        head_bias=("lm_head_bias", False),
        windows=patterns.every_layer,
        mixture=_EVERY,
    ),
    "granitemoe": replace(DENSE["granite"], mixture=_EVERY),
    "granitemoeshared": replace(DENSE["granite"], mixture=replace(_EVERY, shared_inner=("shared_intermediate_size",))),
    "gpt_oss": DecoderRules(
        qkv_bias=("attention_bias", True),
        out_bias=("attention_bias", True),
        windows=patterns.alternating,
        sinks=True,
        mixture=replace(_EVERY, bias=True, router_bias=True),
        defaults={"sliding_window": 128},
    ),
    "deepseek": replace(DENSE["llama"], mixture=_DEEPSEEK_EXPERTS),  # own code
    "glm4_moe": DecoderRules(
        qkv_bias=_ATTENTION_BIAS,
        query_key_norm="head",
        query_key_switch=("use_qk_norm", False),
        mixture=_CORRECTED,
    ),
    "minimax_m2": DecoderRules(
        query_key_norm="full",
        query_key_switch=("use_qk_norm", True),
        mixture=replace(_EVERY, routing_bias=("use_routing_bias", True)),
    ),
    "llama4_text": DecoderRules(
        qkv_bias=_ATTENTION_BIAS,
        out_bias=_ATTENTION_BIAS,
        windows=patterns.chunked_but_every(4),
        mixture=MixtureRules(
            sparse_layers=patterns.llama4_sparse,
            inner=("intermediate_size",),
            dense_inner=("intermediate_size_mlp",),
            shared_inner=("intermediate_size",),
        ),
        defaults={"attention_chunk_size": 8192},
    ),
    "dots1": replace(DENSE["qwen3"], mixture=_CORRECTED),
    "solar_open": DecoderRules(qkv_bias=_ATTENTION_BIAS, mixture=_CORRECTED),
    "exaone_moe": replace(DENSE["exaone4"], mixture=replace(_CORRECTED, shared_count=("num_shared_experts",))),
    "ernie4_5_moe": replace(
        DENSE["ernie4_5"],
        mixture=MixtureRules(
            sparse_layers=patterns.ernie_sparse,
            inner=("moe_intermediate_size",),
            shared_count=("moe_num_shared_experts",),
            routing_bias=True,
        ),
    ),
    "cohere2_moe": replace(DENSE["cohere2"], mixture=replace(_EVERY, sparse_layers=patterns.after_first)),
    "grok-1": DecoderRules(norms_count=4, tied=("tie_word_embeddings", True), mixture=_EVERY),  # own code
}


def deepseek_like(name: str) -> Callable[[Config], Shell]:
    """A family of the table whose multi-token-prediction modules are those of DeepSeek-V3."""

    def build(config: Config) -> Shell:
        shell = decoder(config, MIXTURES[name])
        modules = config.whole("num_nextn_predict_layers", high=64, default=0)
        count = next_token_module_count(shell.hidden_count, [shell.layers[-1]] * modules)
        return replace(shell, mtp_count=count)

    return build


def mimo(config: Config) -> Shell:
    """MiMo (own code): Qwen2 with multi-token-prediction layers."""
    rules = replace(DENSE["qwen2"], qkv_bias=("attention_bias", True))
    shell = decoder(config, rules)
    modules = config.whole("num_nextn_predict_layers", high=64, default=0)
    return replace(shell, mtp_count=next_token_module_count(shell.hidden_count, [shell.layers[-1]] * modules))


def minimax_m2(config: Config) -> Shell:
    """MiniMax-M2: `num_mtp_modules` modules of `mtp_transformer_layers` layers where `use_mtp` says so."""
    shell = decoder(config, MIXTURES["minimax_m2"])
    if config.has("attn_type_list") and 0 in config.wholes("attn_type_list", high=1):
        config.fail("attn_type_list", "has linear attention, expected softmax attention in every layer")
    if config.get("shared_intermediate_size"):
        config.fail("shared_intermediate_size", "got a shared expert, expected 0: the family's code has none")
    if not config.flag("use_mtp", default=False):
        return shell
    modules = config.whole("num_mtp_modules", high=64, default=0)
    each = config.whole("mtp_transformer_layers", low=1, high=64, default=1)
    layer = shell.layers[-1]
    spare = (each - 1) * layer.parameters_count
    return replace(shell, mtp_count=modules * (next_token_module_count(shell.hidden_count, [layer]) + spare))


def minicpm(config: Config) -> Shell:
    """MiniCPM (own code), dense or with experts in every layer where the file has `num_experts`."""
    rules = DENSE["minicpm"]
    return decoder(config, replace(rules, mixture=_EVERY) if config.get("num_experts") else rules)


def afmoe(config: Config) -> Shell:
    """AFMoE (Trinity): gated attention under four norms, dense first layers, a window in three of four layers."""
    count = config.layers()
    first = config.whole("num_dense_layers", high=reader.MAX_LAYERS, default=1)
    rules = DecoderRules(
        norms_count=4,
        qkv_bias=_ATTENTION_BIAS,
        out_bias=_ATTENTION_BIAS,
        query_key_norm="head",
        windows=patterns.global_every(4),
        mixture=replace(
            _CORRECTED,
            shared_count=("num_shared_experts",),
            sparse_layers=lambda *_: [i >= first for i in range(count)],
        ),
    )
    shell = decoder(config, rules)
    heads = heads_of(config, shell.hidden_count)
    gate = linear("output-gate", "attention", shell.hidden_count, heads.query_width_count, head_count=heads.heads_count)
    layers = tuple(replace(layer, linears=(*layer.linears, gate)) for layer in shell.layers)
    return replace(shell, layers=layers)


def dbrx(config: Config) -> Shell:
    """DBRX: keys in `attn_config` and `ffn_config`; norms without bias."""
    nested, experts = config.section("attn_config"), config.section("ffn_config")
    rules = DecoderRules(norm="layer-no-bias", head_dim=False, mixture=_EVERY)
    keys = {
        "num_key_value_heads": nested.heads("kv_n_heads"),
        "num_experts": experts.whole("moe_num_experts", low=1, high=reader.MAX_EXPERTS),
        "num_experts_per_tok": experts.whole("moe_top_k", low=1, high=reader.MAX_EXPERTS),
        "intermediate_size": experts.width("ffn_hidden_size"),
    }
    return decoder(config.overlaid(keys), rules)


def mimo_v2_flash(config: Config) -> Shell:
    """MiMo-V2-Flash: windowed layers have their own heads and widths; sinks where the file says so."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    value = config.width("v_head_dim")
    wide = replace(heads_of(config, hidden), value_dim_count=value)
    near = Heads(
        hidden_count=hidden,
        heads_count=config.heads("swa_num_attention_heads"),
        kv_heads_count=config.heads("swa_num_key_value_heads"),
        key_dim_count=config.width("swa_head_dim"),
        value_dim_count=config.width("swa_v_head_dim"),
    )
    sinks = {
        False: config.flag("add_full_attention_sink_bias", default=False),
        True: config.flag("add_swa_attention_sink_bias", default=True),
    }
    kinds = patterns.layer_types(config, count, ("full_attention", "sliding_attention"))
    if kinds is None:
        marks = config.wholes("hybrid_layer_pattern", high=1, count=count)
        kinds = ["sliding_attention" if mark else "full_attention" for mark in marks]
    config.skip("hybrid_layer_pattern")
    window = config.whole("sliding_window", low=1, high=reader.MAX_TOKENS)
    sparse = patterns.after_first(config, count)
    routed = mixture(hidden, experts_of(config, _CORRECTED))
    dense = mlp(hidden, config.width(*reader.FFN))
    layers = []
    for kind, experts in zip(kinds, sparse, strict=True):
        local = kind == "sliding_attention"
        shape = near if local else wide
        part = attention(
            shape,
            qkv_bias=config.flag("attention_bias", default=False),
            window_tokens=window if local else None,
            norm_count=shape.heads_count if sinks[local] else 0,
        )
        layers.append(join((part, routed if experts else dense), norm_parameters_count=2 * hidden))
    return _finished(config, hidden, layers)


def step3p7(config: Config) -> Shell:
    """Step 3.7 (text): an output gate a head, query and key norms; windowed layers may have other heads."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    wide = heads_of(config, hidden)
    near = replace(wide, heads_count=config.heads("num_sliding_attention_heads", default=wide.heads_count))
    if config.has("attention_other_setting"):
        other = config.section("attention_other_setting")
        near = replace(near, heads_count=other.heads("num_attention_heads", default=near.heads_count))
    kinds = patterns.layer_types(config, count, ("full_attention", "sliding_attention")) or ["full_attention"] * count
    sparse = patterns.step_sparse(config, count)
    shared = config.width("share_expert_dim", "share_expert_dims", default=0) if config.has("share_expert_dim") else 0
    experts = replace(experts_of(config, replace(_CORRECTED, shared_count=())), shared_inner_count=shared)
    config.skip("n_shared_experts")
    routed, dense = mixture(hidden, experts), mlp(hidden, config.width(*reader.FFN))
    layers = []
    for kind, chosen in zip(kinds, sparse, strict=True):
        local = kind == "sliding_attention"
        shape = near if local else wide
        gate = linear("head-gate", "attention", hidden, shape.heads_count, head_count=shape.heads_count)
        window = config.whole("sliding_window", low=1, high=reader.MAX_TOKENS) if local else None
        parts = (
            attention(shape, window_tokens=window, norm_count=2 * shape.key_dim_count),
            Block(linears=(gate,)),
            routed if chosen else dense,
        )
        layers.append(join(parts, norm_parameters_count=2 * hidden))
    shell = _finished(config, hidden, layers)
    modules = config.whole("num_nextn_predict_layers", "num_mtp_layers", high=64, default=0)
    plain = join((attention(wide, norm_count=2 * wide.key_dim_count), dense), norm_parameters_count=2 * hidden)
    return replace(shell, mtp_count=next_token_module_count(hidden, [plain] * modules))


def _finished(config: Config, hidden: int, layers: list[Layer]) -> Shell:
    return Shell(
        layers=tuple(layers),
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=config.flag("tie_word_embeddings", default=False),
        other_count=hidden,
        context_tokens=config.context(),
    )


MOE_BUILDERS: dict[str, Callable[[Config], Shell]] = {
    "glm4_moe": deepseek_like("glm4_moe"),
    "dots1": deepseek_like("dots1"),
    "exaone_moe": deepseek_like("exaone_moe"),
    "minicpm": minicpm,
    "afmoe": afmoe,
    "mimo": mimo,
    "minimax_m2": minimax_m2,
    "dbrx": dbrx,
    "mimo_v2_flash": mimo_v2_flash,
    "step3p7": step3p7,
    "step3p5": step3p7,
}
