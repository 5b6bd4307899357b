"""MiniMax-M3 (text): grouped-query attention that reads only the blocks of keys that an indexer chose, and experts.

Source: `transformers-5.24` (minimax_m3_vl).
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, Heads, attention, join, linear, mixture, mlp
from ridgeline.intake.families import patterns
from ridgeline.intake.families.decoder import heads_of, next_token_module_count
from ridgeline.intake.families.hybrid import finished
from ridgeline.intake.families.latent import Indexer
from ridgeline.intake.families.rules import MixtureRules, experts_of
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import SoftmaxAttention

_EXPERTS = MixtureRules(
    sparse_layers=patterns.after_first,
    inner=("moe_intermediate_size", "intermediate_size"),
    routing_bias=("use_routing_bias", True),
)
# The indexer keeps one plain 16-bit key a token.
_INDEX_ELEMENT_BYTES = 2.0


def minimax_m3(config: Config) -> Shell:
    """Layers of `sparse_attention_freq` read `sparse_topk_blocks` blocks of keys; the first ones are dense."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    if config.flag("attention_output_gate", default=False):
        config.fail("attention_output_gate", "got true, expected false: no published model says how it is shaped")
    heads = heads_of(config, hidden)
    norms = 2 * heads.key_dim_count if config.flag("use_qk_norm", default=True) else 0
    plain = attention(heads, norm_count=norms)
    marks, indexer = _sparse_part(config, count)
    near = _indexed(plain, indexer, heads) if indexer else plain
    sparse = patterns.after_first(config, count)
    config.skip("intermediate_size", "n_shared_experts")
    shared = config.width("shared_intermediate_size") * config.whole("n_shared_experts", high=1024, default=1)
    experts = replace(experts_of(config, _EXPERTS), shared_inner_count=shared)
    routed = mixture(hidden, experts)
    dense = Block() if all(sparse) else mlp(hidden, config.width("dense_intermediate_size"))
    layers = [
        join((near if mark else plain, routed if chosen else dense), norm_parameters_count=2 * hidden)
        for mark, chosen in zip(marks, sparse, strict=True)
    ]
    modules = config.whole(config.key_of("num_nextn_predict_layers", "num_mtp_modules"), high=64, default=0)
    config.skip("num_mtp_modules")
    return finished(config, layers, mtp_count=next_token_module_count(hidden, [layers[-1]] * modules))


def _sparse_part(config: Config, count: int) -> tuple[list[bool], Indexer | None]:
    """Which layers are sparse, and their indexer, under either set of keys."""
    kinds = patterns.layer_types(config, count, ("full_attention", "minimax_m3_sparse"))
    nested = config.section("sparse_attention_config", required=False)
    if not nested.data:
        if kinds is None or "minimax_m3_sparse" not in kinds:
            return [False] * count, None
        blocks = config.whole("index_topk_blocks", low=1, high=reader.MAX_TOKENS)
        size = config.whole("index_block_size", low=1, high=reader.MAX_TOKENS)
        indexer = Indexer(
            heads_count=config.heads("index_n_heads"),
            width_count=config.width("index_head_dim"),
            selected_tokens=blocks * size,
        )
        return [kind == "minimax_m3_sparse" for kind in kinds], indexer
    if not nested.flag("use_sparse_attention", default=True):
        return [False] * count, None
    marks = [bool(mark) for mark in nested.wholes("sparse_attention_freq", high=1, count=count)]
    blocks = nested.whole("sparse_topk_blocks", low=1, high=reader.MAX_TOKENS)
    size = nested.whole("sparse_block_size", low=1, high=reader.MAX_TOKENS)
    indexer = Indexer(
        heads_count=nested.heads("sparse_num_index_heads"),
        width_count=nested.width("sparse_index_dim"),
        selected_tokens=blocks * size,
    )
    return marks, indexer


def _indexed(block: Block, indexer: Indexer, heads: Heads) -> Block:
    width = indexer.width_count
    parts = (
        linear("index-q", "attention", heads.hidden_count, indexer.heads_count * width, split="replicated"),
        linear("index-k", "attention", heads.hidden_count, width, split="replicated"),
    )
    mixers = tuple(
        replace(
            mixer,
            selected_tokens=indexer.selected_tokens,
            indexer_per_key_flop=2.0 * indexer.heads_count * width,
            indexer_cached_per_key_bytes=width * _INDEX_ELEMENT_BYTES,
        )
        for mixer in block.mixers
        if isinstance(mixer, SoftmaxAttention)
    )
    return replace(block, linears=(*block.linears, *parts), mixers=mixers, other_count=block.other_count + 2 * width)
