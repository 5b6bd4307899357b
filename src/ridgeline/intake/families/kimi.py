"""Kimi Linear and the text part of Kimi K3: delta attention with decay of each channel, and latent attention."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, join, linear, mixture, mlp
from ridgeline.intake.families import patterns
from ridgeline.intake.families.hybrid import finished
from ridgeline.intake.families.latent import latent_attention, latent_shape
from ridgeline.intake.families.recurrent import DeltaNet, delta_net, state_precision
from ridgeline.intake.families.rules import MixtureRules, experts_of
from ridgeline.intake.reader import MAX_LAYERS, Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Linear

_EXPERTS = MixtureRules(
    sparse_layers=patterns.after_first,
    inner=("moe_intermediate_size",),
    shared_count=("num_shared_experts", "n_shared_experts"),
    routing_bias=True,
)


def kimi_linear(config: Config) -> Shell:
    """Kimi Linear; K3 adds full-rank gates, gated latent attention, experts in a narrower space, and residual reads.

    Source: `transformers-5.24` (kimi_linear); K3's additions from its own code, as vLLM carries it.
    """
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    recurrent, delta = _delta_part(config, hidden, count)
    shape = latent_shape(config)
    config.skip("num_key_value_heads", "head_dim", "qk_head_dim")
    softmax = latent_attention(shape, gated_output=config.flag("mla_use_output_gate", default=False))
    experts = experts_of(config, _EXPERTS)
    latent = config.width("routed_expert_hidden_size") if config.has("routed_expert_hidden_size") else None
    routed = mixture(hidden, replace(experts, io_count=latent))
    # Checkpoints keep the matrices into and out of the narrower space unquantised.
    routed = replace(routed, linears=tuple(_plain(item) for item in routed.linears))
    if latent is not None and config.flag("latent_moe_use_norm", default=False):
        routed = replace(routed, other_count=routed.other_count + latent)
    dense = mlp(hidden, config.width(*reader.FFN))
    sparse = _EXPERTS.sparse_layers(config, count)
    residual, final = _residual_reads(config, hidden)
    layers = [
        join(
            (delta if mark else softmax, routed if chosen else dense, residual),
            norm_parameters_count=2 * hidden,
            rope=False,
        )
        for mark, chosen in zip(recurrent, sparse, strict=True)
    ]
    return finished(config, layers, other_count=hidden + final)


def _plain(item: Linear) -> Linear:
    return replace(item, role="other") if item.name in ("latent-down", "latent-up") else item


def _delta_part(config: Config, hidden: int, count: int) -> tuple[list[bool], Block]:
    """Which layers are recurrent (numbers in the file count from 1), and their block."""
    nested = config.section("linear_attn_config", required=False)
    if nested.data:
        chosen = set(nested.wholes("kda_layers", low=1, high=MAX_LAYERS))
        nested.skip("full_attn_layers")
        marks = [index + 1 in chosen for index in range(count)]
        heads, width = nested.heads("num_heads"), nested.width("head_dim")
        taps = nested.width("short_conv_kernel_size", default=4)
        full_gate = nested.flag("use_full_rank_gate", default=False)
    else:
        kinds = patterns.layer_types(config, count, ("linear_attention", "full_attention"))
        if kinds is None:
            config.missing("linear_attn_config", "layer_types")
        marks = [kind == "linear_attention" for kind in kinds]
        heads, width = config.heads("linear_num_heads"), config.width("linear_head_dim")
        taps = config.width("linear_conv_kernel_dim", default=4)
        full_gate = False
    block = delta_net(
        DeltaNet(
            hidden_count=hidden,
            key_heads_count=heads,
            value_heads_count=heads,
            key_dim_count=width,
            value_dim_count=width,
            taps_count=taps,
            per_channel=True,
            full_gate=full_gate,
            precision=state_precision(config, "fp32"),
        )
    )
    return marks, block


def _residual_reads(config: Config, hidden: int) -> tuple[Block, int]:
    """K3's attention residuals: each sub-layer reads the stored residuals through a norm and one row of weights."""
    if not config.has("attn_res_block_size"):
        return Block(), 0
    config.whole("attn_res_block_size", low=1, high=MAX_LAYERS)
    reads = tuple(linear(f"residual-{name}", "other", hidden, 1, split="replicated") for name in ("attention", "mlp"))
    return Block(linears=reads, other_count=2 * hidden), 2 * hidden
