"""What a family of decoders fixes in its code, as a record: biases, norms, windows, experts, and its defaults.

Facts of this kind are in the modelling code of each family (`transformers-5.24` unless a table says otherwise), not
in its configuration files. A `Switch` is a plain bool, or the name of a key with the value that its absence means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ridgeline.intake.blocks import Experts
from ridgeline.intake.reader import Config

Switch = bool | tuple[str, bool]
Norm = Literal["rms", "layer", "layer-no-bias", "none"]
# "head": one width-of-a-head norm each for q and k, shared by the heads; "head-bias": the same with biases;
# "full": norms as wide as all heads together (or one of a head's width for every head: as many parameters).
QueryKeyNorm = Literal["none", "head", "head-bias", "full"]
WindowRule = Callable[[Config, int], list[int | None]]


def switch(config: Config, value: Switch) -> bool:
    """The truth of a switch for this configuration."""
    if isinstance(value, tuple):
        return config.flag(value[0], default=value[1])
    return value


def norm_count(kind: Norm, width_count: int) -> int:
    """Parameters of one norm of `width_count`.

    >>> norm_count("rms", 64), norm_count("layer", 64), norm_count("none", 64)
    (64, 128, 0)
    """
    return {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}[kind] * width_count


def no_windows(config: Config, layers_count: int) -> list[int | None]:
    """Every layer sees everything."""
    del config
    return [None] * layers_count


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureRules:
    """Where a family keeps its experts: keys of the counts and widths, and which layers have them.

    `inner`: keys of an expert's width, first found. `shared_inner`: keys of the shared expert's whole width;
    `shared_count`: keys of a number of shared experts, each as wide as a routed one. `routing_bias`: one more
    parameter an expert steers the choice. `sparse_layers` answers for each layer whether it has experts.
    """

    sparse_layers: Callable[[Config, int], list[bool]]
    inner: tuple[str, ...] = ("moe_intermediate_size", "intermediate_size")
    dense_inner: tuple[str, ...] = ()
    shared_inner: tuple[str, ...] = ()
    shared_count: tuple[str, ...] = ()
    shared_gate: bool = False
    routing_bias: Switch = False
    router_bias: bool = False
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRules:
    """A family of decoders with softmax attention of the plain kind (multi-head, grouped or single key-value heads).

    `norms_count` norms of the hidden width a layer; `ffn_multiple`: width of the MLP where no key gives one;
    `positions_offset`: a learned position table of context + offset rows (None: no table); `defaults`: values of
    keys that the family's class documents. `attention_extra_count` gives odd parameters of an attention (sinks).
    """

    norm: Norm = "rms"
    norms_count: int = 2
    final_norm: bool = True
    gated: Switch = True
    qkv_bias: Switch = False
    out_bias: Switch = False
    mlp_bias: Switch = False
    head_bias: Switch = False
    tied: Switch = ("tie_word_embeddings", False)
    query_key_norm: QueryKeyNorm = "none"
    query_key_switch: Switch = True
    head_dim: bool = True
    rope: bool = True
    windows: WindowRule = no_windows
    ffn_multiple: int | None = None
    positions_offset: int | None = None
    embedding_norm: bool = False
    sinks: bool = False
    mixture: MixtureRules | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


def experts_of(config: Config, rules: MixtureRules, *, gated: bool = True) -> Experts:
    """The mixture that `config` describes under `rules`."""
    from ridgeline.intake import reader

    count = config.whole(*reader.EXPERTS, low=1, high=reader.MAX_EXPERTS)
    active = config.whole(*reader.TOP_K, low=1, high=reader.MAX_EXPERTS)
    if active > count:
        key, limit = config.key_of(*reader.TOP_K), config.key_of(*reader.EXPERTS)
        config.fail(key, f"got {active}, more than {limit} = {count}")
    inner = config.width(*_first(config, rules.inner))
    shared = config.whole(*_first(config, rules.shared_inner), default=0) if rules.shared_inner else 0
    if rules.shared_count:
        shared = shared or inner * config.whole(*rules.shared_count, high=1024, default=0)
    return Experts(
        count=count,
        active_count=active,
        inner_count=inner,
        shared_inner_count=shared,
        gated=gated,
        bias=rules.bias,
        router_bias=rules.router_bias,
        router_extra_count=count if switch(config, rules.routing_bias) else 0,
        shared_gate=rules.shared_gate and shared > 0,
    )


def _first(config: Config, names: tuple[str, ...]) -> tuple[str, ...]:
    """The one of `names` that the file uses: these are different keys in order of preference, not names of one."""
    return (config.key_of(*names),)
