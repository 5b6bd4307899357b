"""Decoders with latent attention (MLA): DeepSeek V2 to V4, Kimi K2, GLM-5, MiniCPM3 and their relatives.

Keys and values are kept as one latent vector a token plus a small rotary part (deepseek-v2-report, section 2.1).
Prompts are processed with keys and values expanded to all heads; decoding runs in the latent space. Sparse variants
choose `index_topk` keys with an indexer (deepseek-v3.2-report), V4 compresses runs of tokens into one key
(`transformers-5.24`, deepseek_v4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ridgeline.intake import reader
from ridgeline.intake.blocks import Block, Experts, join, linear, mixture, mlp
from ridgeline.intake.families import patterns
from ridgeline.intake.families.decoder import next_token_module_count
from ridgeline.intake.families.rules import MixtureRules, Switch, experts_of, switch
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Layer, SoftmaxAttention

# An indexer keeps its keys in fp8 with one fp32 scale each (deepseek-v3.2-report; vLLM and SGLang lay it out so).
_INDEX_SCALE_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentShape:
    """Widths of a latent attention. `query_rank_count` 0: queries come straight from the hidden state."""

    hidden_count: int
    heads_count: int
    query_rank_count: int
    latent_count: int
    plain_count: int
    rotary_count: int
    value_count: int

    @property
    def key_count(self) -> int:
        """Width of a key head: the part without and the part with position."""
        return self.plain_count + self.rotary_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """A sparse-attention indexer: `heads_count` small heads score every key, `selected_tokens` keys are read."""

    heads_count: int
    width_count: int
    selected_tokens: int

    @property
    def per_key_flop(self) -> float:
        """Work of scoring one key for one query: a dot product, a weight and a sum for each head."""
        return 2.0 * self.heads_count * (self.width_count + 1)

    @property
    def cached_per_key_bytes(self) -> float:
        """Bytes kept for each key."""
        return self.width_count + _INDEX_SCALE_BYTES


def latent_shape(config: Config) -> LatentShape:
    """Widths under DeepSeek's keys; a null `q_lora_rank` means no query latent."""
    return LatentShape(
        hidden_count=config.width(*reader.HIDDEN),
        heads_count=config.heads(),
        query_rank_count=config.whole("q_lora_rank", default=0),
        latent_count=config.width("kv_lora_rank"),
        plain_count=config.width("qk_nope_head_dim"),
        rotary_count=config.whole("qk_rope_head_dim"),
        value_count=config.width("v_head_dim"),
    )


def latent_attention(
    shape: LatentShape, *, bias: bool = False, out_bias: bool = False, gated_output: bool = False
) -> Block:
    """A latent attention with its two norms."""
    hidden, heads = shape.hidden_count, shape.heads_count
    queries = heads * shape.key_count
    parts = []
    norms = shape.latent_count + shape.query_rank_count
    if shape.query_rank_count:
        parts.append(linear("q-a", "attention", hidden, shape.query_rank_count, bias=bias, split="replicated"))
        parts.append(linear("q-b", "attention", shape.query_rank_count, queries, head_count=heads))
    else:
        parts.append(linear("q", "attention", hidden, queries, head_count=heads))
    kept = shape.latent_count + shape.rotary_count
    values = heads * shape.value_count
    parts.append(linear("kv-a", "attention", hidden, kept, bias=bias, split="replicated"))
    parts.append(
        linear(
            "kv-b", "attention", shape.latent_count, heads * (shape.plain_count + shape.value_count), head_count=heads
        )
    )
    parts.append(linear("o", "attention", values, hidden, bias=out_bias, split="row", head_count=heads))
    if gated_output:
        parts.append(linear("output-gate", "attention", hidden, values, head_count=heads))
    mixer = SoftmaxAttention(
        heads_count=heads,
        kv_heads_count=heads,
        key_dim_count=shape.key_count,
        value_dim_count=shape.value_count,
        cached_per_token_count=kept,
        latent_dim_count=kept,
    )
    return Block(linears=tuple(parts), mixers=(mixer,), other_count=norms)


def indexed(block: Block, indexer: Indexer, shape: LatentShape, *, own: bool = True) -> Block:
    """The attention reading only the keys that an indexer chose; `own` false: chosen by an earlier layer."""
    mixers = tuple(
        replace(
            mixer,
            selected_tokens=indexer.selected_tokens,
            indexer_per_key_flop=indexer.per_key_flop if own else 0.0,
            indexer_cached_per_key_bytes=indexer.cached_per_key_bytes if own else 0.0,
        )
        for mixer in block.mixers
        if isinstance(mixer, SoftmaxAttention)
    )
    if not own:
        return replace(block, mixers=mixers)
    inputs = shape.query_rank_count or shape.hidden_count
    parts = (
        linear("index-q", "attention", inputs, indexer.heads_count * indexer.width_count, split="replicated"),
        linear("index-k", "attention", shape.hidden_count, indexer.width_count, split="replicated"),
        linear("index-weights", "attention", shape.hidden_count, indexer.heads_count, split="replicated"),
    )
    extra = block.other_count + 2 * indexer.width_count
    return replace(block, mixers=mixers, linears=(*block.linears, *parts), other_count=extra)


def read_indexer(config: Config) -> Indexer:
    """The indexer under the keys of DeepSeek-V3.2."""
    return Indexer(
        heads_count=config.heads("index_n_heads"),
        width_count=config.width("index_head_dim"),
        selected_tokens=config.whole("index_topk", low=1, high=reader.MAX_TOKENS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentRules:
    """A family with latent attention: biases, tying, experts (None: dense), and whether it has an indexer."""

    mixture: MixtureRules | None = None
    tied: Switch = ("tie_word_embeddings", False)
    bias: Switch = ("attention_bias", False)
    indexer: bool = False


def latent_decoder(rules: LatentRules) -> Callable[[Config], Shell]:
    """A builder for a family under `rules`."""

    def build(config: Config) -> Shell:
        shape, count = latent_shape(config), config.layers()
        config.skip("num_key_value_heads", "head_dim", "qk_head_dim")
        bias = switch(config, rules.bias)
        attentions = _attentions(config, rules, latent_attention(shape, bias=bias, out_bias=bias), shape, count)
        sparse = rules.mixture.sparse_layers(config, count) if rules.mixture else [False] * count
        hidden = shape.hidden_count
        routed = mixture(hidden, experts_of(config, rules.mixture)) if rules.mixture and any(sparse) else Block()
        dense = Block() if all(sparse) else mlp(hidden, config.width(*reader.FFN))
        layers = [
            join((attention, routed if experts else dense), norm_parameters_count=2 * hidden)
            for attention, experts in zip(attentions, sparse, strict=True)
        ]
        modules = config.whole("num_nextn_predict_layers", high=64, default=0)
        return Shell(
            layers=tuple(layers),
            hidden_count=hidden,
            vocab_count=config.vocab(),
            tied=switch(config, rules.tied),
            other_count=hidden,
            mtp_count=next_token_module_count(hidden, [layers[-1]] * modules),
            ahead=(layers[-1],) if modules else (),
            context_tokens=config.context(),
        )

    return build


def _attentions(config: Config, rules: LatentRules, plain: Block, shape: LatentShape, count: int) -> list[Block]:
    """Attentions of all layers; with an indexer, `indexer_types` says which layers have one of their own."""
    if not rules.indexer:
        return [plain] * count
    indexer = read_indexer(config)
    config.skip("layer_types", "index_topk_freq", "index_skip_topk_offset")
    kinds = patterns.layer_types(config, count, ("full", "shared"), "indexer_types") or ["full"] * count
    own, shared = indexed(plain, indexer, shape), indexed(plain, indexer, shape, own=False)
    return [own if kind == "full" else shared for kind in kinds]


_EXPERTS = MixtureRules(
    sparse_layers=patterns.after_first,
    inner=("moe_intermediate_size",),
    shared_count=("n_shared_experts", "num_shared_experts"),
)
_CORRECTED = replace(_EXPERTS, routing_bias=True)
_V3 = LatentRules(mixture=_CORRECTED)
_SPARSE = LatentRules(mixture=_CORRECTED, indexer=True)


def deepseek_v4(config: Config) -> Shell:
    """DeepSeek-V4: one shared key-value head, windows, compressed keys, grouped output, hyper-connections."""
    hidden, count = config.width(*reader.HIDDEN), config.layers()
    ratios = _v4_ratios(config, count)
    modules = config.whole("num_nextn_predict_layers", high=64, default=0)
    experts = experts_of(config, _EXPERTS)
    config.skip("num_hash_layers", "num_key_value_heads")
    routed = mixture(hidden, experts)
    streams = config.whole("hc_mult", low=1, high=64)
    mixes = (2 + streams) * streams
    connection = 2 * (mixes + 3)
    joins = tuple(
        linear(f"streams-{name}", "other", streams * hidden, mixes, split="replicated") for name in ("attention", "mlp")
    )
    layers = [
        join(
            (_v4_attention(config, hidden, ratio), routed, Block(linears=joins, other_count=connection)),
            norm_parameters_count=2 * hidden,
        )
        for ratio in ratios[: count + modules]
    ]
    while len(layers) < count + modules:
        layers.append(layers[-1])
    head_mix = streams * streams * hidden + streams + 1
    return Shell(
        layers=tuple(layers[:count]),
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=config.flag("tie_word_embeddings", default=False),
        other_count=hidden + head_mix,
        mtp_count=next_token_module_count(hidden, layers[count:]) + modules * head_mix,
        context_tokens=config.context(),
    )


_V4_KINDS = ("compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention")


def _v4_ratios(config: Config, count: int) -> list[int]:
    """Tokens a compressed key stands for, by layer (0: none), from `compress_ratios` or from kinds and rates."""
    kinds = patterns.layer_types(config, count, _V4_KINDS)
    if kinds is None or config.has("compress_ratios"):
        ratios = config.wholes("compress_ratios", high=reader.MAX_TOKENS)
        if len(ratios) < count:
            config.fail("compress_ratios", f"got {len(ratios)} entries, expected one for each of the {count} layers")
        return ratios
    rates = config.section("compress_rates")
    return [0 if kind == "sliding_attention" else rates.whole(kind, low=1, high=reader.MAX_TOKENS) for kind in kinds]


def _v4_attention(config: Config, hidden: int, ratio: int) -> Block:
    """The attention of one layer: a window of plain keys and, where `ratio` is not 0, one key for `ratio` tokens."""
    heads, width = config.heads(), config.width("head_dim")
    rank, groups = config.width("q_lora_rank"), config.heads("o_groups")
    out_rank = config.width("o_lora_rank")
    config.divides(groups, heads * width, "o_groups", "num_attention_heads * head_dim")
    parts = [
        linear("q-a", "attention", hidden, rank, split="replicated"),
        linear("q-b", "attention", rank, heads * width, head_count=heads),
        linear("kv", "attention", hidden, width, split="replicated"),
        # Each group of heads has its own first output matrix: as many weights, a group's share of the work.
        linear("o-a", "attention", heads * width // groups, out_rank * groups, head_count=groups),
        linear("o-b", "attention", out_rank * groups, hidden, split="row"),
    ]
    extra = heads + rank + width
    window = SoftmaxAttention(
        heads_count=heads,
        kv_heads_count=1,
        key_dim_count=width,
        value_dim_count=width,
        cached_per_token_count=width,
        window_tokens=config.whole("sliding_window", low=1, high=reader.MAX_TOKENS),
        latent_dim_count=width,
    )
    mixers = [window]
    if ratio:
        far = replace(window, window_tokens=None, stride_tokens=ratio)
        series = 1
        if ratio < _HEAVY_RATIO:
            indexer = read_indexer(config)
            index_width = indexer.width_count
            series = 2
            parts += [
                linear("index-kv", "attention", hidden, 2 * index_width, split="replicated"),
                linear("index-gate", "attention", hidden, 2 * index_width, split="replicated"),
                linear("index-q", "attention", rank, indexer.heads_count * index_width, split="replicated"),
                linear("index-weights", "attention", hidden, indexer.heads_count, split="replicated"),
            ]
            extra += 2 * ratio * index_width + index_width
            far = replace(
                far,
                selected_tokens=indexer.selected_tokens,
                indexer_per_key_flop=indexer.per_key_flop,
                indexer_cached_per_key_bytes=indexer.cached_per_key_bytes,
            )
        parts += [
            linear("compress-kv", "attention", hidden, series * width, split="replicated"),
            linear("compress-gate", "attention", hidden, series * width, split="replicated"),
        ]
        extra += series * ratio * width + width
        mixers.append(far)
    return Block(linears=tuple(parts), mixers=tuple(mixers), other_count=extra)


# At this compression every key is read; below it an indexer chooses (deepseek-v4: 128 against 4).
_HEAVY_RATIO = 64


def longcat_flash(config: Config) -> Shell:
    """LongCat-Flash: each layer has two attentions and two dense MLPs beside one mixture with idle experts."""
    config = config.overlaid(
        {
            "num_hidden_layers": config.layers("num_layers", "num_hidden_layers"),
            "num_layers": config.layers("num_layers", "num_hidden_layers"),
        }
    )
    shape, count = latent_shape(config), config.layers()
    config.skip("num_key_value_heads", "head_dim", "qk_head_dim")
    hidden, bias = shape.hidden_count, config.flag("attention_bias", default=False)
    dense = mlp(hidden, config.width("ffn_hidden_size"))
    real = config.whole("n_routed_experts", low=1, high=reader.MAX_EXPERTS)
    idle = config.whole("zero_expert_num", high=reader.MAX_EXPERTS, default=0)
    chosen = config.whole("moe_topk", low=1, high=real + idle)
    experts = Experts(
        count=real, active_count=chosen, inner_count=config.width("expert_ffn_hidden_size"), router_extra_count=0
    )
    routed = mixture(hidden, experts)
    # The router chooses among real and idle experts alike, so a token uses its share of real ones.
    share = chosen * real / (real + idle)
    linears = tuple(
        replace(item, outputs_count=real + idle)
        if item.role == "router"
        else replace(item, active_count=share)
        if item.role == "expert"
        else item
        for item in routed.linears
    )
    attention = latent_attention(shape, bias=bias, out_bias=bias)
    twice = (attention, dense, attention, dense, replace(routed, linears=linears))
    layer: Layer = join(twice, norm_parameters_count=4 * hidden, norms_count=4)
    return Shell(
        layers=(layer,) * count,
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=config.flag("tie_word_embeddings", default=False),
        other_count=hidden,
        context_tokens=config.context(),
    )


LATENT_BUILDERS: dict[str, Callable[[Config], Shell]] = {
    "deepseek_v2": latent_decoder(LatentRules(mixture=_EXPERTS)),
    "deepseek_v3": latent_decoder(_V3),
    "kimi_k2": latent_decoder(_V3),
    "deepseek_v32": latent_decoder(_SPARSE),
    "glm_moe_dsa": latent_decoder(_SPARSE),
    "glm4_moe_lite": latent_decoder(_V3),
    "mistral4": latent_decoder(LatentRules(mixture=_EXPERTS)),
    "minicpm3": latent_decoder(LatentRules(tied=("tie_word_embeddings", True))),
    "deepseek_v4": deepseek_v4,
    "deepseek_ref": deepseek_v4,
    "longcat_flash": longcat_flash,
}
