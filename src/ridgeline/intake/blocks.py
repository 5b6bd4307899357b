"""Pieces that layers are built from: projections, attention, MLPs, mixtures of experts, and whole layers.

A `Block` is a part of a layer (an attention, an MLP). `join` makes a `Layer` of blocks and norms. All counts are
those of the architecture: a matrix is its inputs times its outputs, however a checkpoint packs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ridgeline.specs import Layer, LayerRun, Linear, Mixer, SoftmaxAttention


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Shape of an attention: hidden width, query and key-value heads, and widths of one head."""

    hidden_count: int
    heads_count: int
    kv_heads_count: int
    key_dim_count: int
    value_dim_count: int

    @property
    def query_width_count(self) -> int:
        """All query heads side by side."""
        return self.heads_count * self.key_dim_count

    @property
    def key_width_count(self) -> int:
        """All key heads side by side."""
        return self.kv_heads_count * self.key_dim_count

    @property
    def value_width_count(self) -> int:
        """All value heads side by side."""
        return self.kv_heads_count * self.value_dim_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Part of a layer: matrices, mixers, parameters that make no GEMM, and elements through the non-linearity."""

    linears: tuple[Linear, ...] = ()
    mixers: tuple[Mixer, ...] = ()
    other_count: int = 0
    activation_count: int = 0


def linear(name: str, role: str, inputs_count: int, outputs_count: int, **options: object) -> Linear:
    """A `Linear` with its positional figures first."""
    return Linear(name=name, role=role, inputs_count=inputs_count, outputs_count=outputs_count, **options)  # type: ignore[arg-type]


def projections(
    heads: Heads, *, qkv_bias: bool = False, out_bias: bool = False, prefix: str = ""
) -> tuple[Linear, ...]:
    """The four matrices of an attention: q, k, v, o."""
    hidden, role = heads.hidden_count, "attention"
    groups = heads.kv_heads_count
    return (
        linear(f"{prefix}q", role, hidden, heads.query_width_count, bias=qkv_bias, head_count=heads.heads_count),
        linear(f"{prefix}k", role, hidden, heads.key_width_count, bias=qkv_bias, head_count=groups),
        linear(f"{prefix}v", role, hidden, heads.value_width_count, bias=qkv_bias, head_count=groups),
        linear(
            f"{prefix}o",
            role,
            heads.heads_count * heads.value_dim_count,
            hidden,
            bias=out_bias,
            split="row",
            head_count=heads.heads_count,
        ),
    )


def scores(
    heads: Heads, *, causal: bool = True, window_tokens: int | None = None, cached: bool = True, **options: object
) -> SoftmaxAttention:
    """The mixer of an attention: both K and V of every key-value head are cached where `cached`."""
    elements = heads.key_width_count + heads.value_width_count if cached else 0
    return SoftmaxAttention(
        heads_count=heads.heads_count,
        kv_heads_count=heads.kv_heads_count,
        key_dim_count=heads.key_dim_count,
        value_dim_count=heads.value_dim_count,
        cached_per_token_count=elements,
        causal=causal,
        window_tokens=window_tokens,
        **options,  # type: ignore[arg-type]
    )


def attention(
    heads: Heads,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    window_tokens: int | None = None,
    norm_count: int = 0,
) -> Block:
    """A causal attention with a cache; `norm_count` parameters normalise queries and keys."""
    return Block(
        linears=projections(heads, qkv_bias=qkv_bias, out_bias=out_bias),
        mixers=(scores(heads, window_tokens=window_tokens),),
        other_count=norm_count,
    )


def encoder_attention(heads: Heads, *, qkv_bias: bool = True, out_bias: bool = True, **options: object) -> Block:
    """An attention that sees everything and keeps no cache."""
    return Block(
        linears=projections(heads, qkv_bias=qkv_bias, out_bias=out_bias),
        mixers=(scores(heads, causal=False, cached=False, **options),),  # type: ignore[arg-type]
    )


def mlp(
    hidden_count: int, inner_count: int, *, gated: bool = True, bias: bool = False, role: str = "mlp", prefix: str = ""
) -> Block:
    """Two matrices around a non-linearity, or three where a gate multiplies the upper branch."""
    names = ("gate", "up") if gated else ("up",)
    upper = [linear(f"{prefix}{name}", role, hidden_count, inner_count, bias=bias) for name in names]
    lower = linear(f"{prefix}down", role, inner_count, hidden_count, bias=bias, split="row")
    return Block(linears=(*upper, lower), activation_count=inner_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture: `count` experts of `inner_count`, of which each token uses `active_count`.

    `shared_inner_count`: width of what every token passes besides (0: nothing). `io_count`: width that experts read
    and write where it is not the hidden one. `router_bias_count`: routing biases that make no GEMM.
    """

    count: int
    active_count: int
    inner_count: int
    shared_inner_count: int = 0
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    router_extra_count: int = 0
    shared_gate: bool = False
    io_count: int | None = None


def mixture(hidden_count: int, experts: Experts) -> Block:
    """Router, routed experts, and the shared expert where there is one."""
    io_count = experts.io_count or hidden_count
    copies = {"experts_count": experts.count, "active_count": float(experts.active_count)}
    names = ("gate", "up") if experts.gated else ("up",)
    parts = [
        linear("router", "router", hidden_count, experts.count, bias=experts.router_bias, split="replicated"),
        *(
            linear(f"expert-{name}", "expert", io_count, experts.inner_count, bias=experts.bias, **copies)
            for name in names
        ),
        linear("expert-down", "expert", experts.inner_count, io_count, bias=experts.bias, split="row", **copies),
    ]
    activation = experts.inner_count * experts.active_count
    if experts.io_count is not None:
        parts.append(linear("latent-down", "mlp", hidden_count, io_count, split="replicated"))
        parts.append(linear("latent-up", "mlp", io_count, hidden_count, split="replicated"))
    if experts.shared_inner_count:
        shared = mlp(
            hidden_count, experts.shared_inner_count, gated=experts.gated, role="shared-expert", prefix="shared-"
        )
        parts.extend(shared.linears)
        activation += shared.activation_count
    if experts.shared_gate:
        parts.append(linear("shared-router", "router", hidden_count, 1, split="replicated"))
    return Block(linears=tuple(parts), other_count=experts.router_extra_count, activation_count=activation)


def join(
    blocks: Sequence[Block], *, norm_parameters_count: int, norms_count: int = 2, gated: bool = True, rope: bool = True
) -> Layer:
    """A layer of `blocks`; `norm_parameters_count` for all its norms together."""
    return Layer(
        linears=tuple(item for block in blocks for item in block.linears),
        mixers=tuple(item for block in blocks for item in block.mixers),
        other_parameters_count=norm_parameters_count + sum(block.other_count for block in blocks),
        norms_count=norms_count,
        activation_count=sum(block.activation_count for block in blocks),
        gated=gated,
        rope=rope,
    )


def runs_of(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Equal neighbours gathered, in order.

    >>> plain = Layer(linears=())
    >>> [run.repeat_count for run in runs_of([plain, plain, Layer(linears=(), norms_count=1), plain])]
    [2, 1, 1]
    """
    runs: list[LayerRun] = []
    for layer in layers:
        if runs and runs[-1].layer == layer:
            runs[-1] = LayerRun(layer=layer, repeat_count=runs[-1].repeat_count + 1)
        else:
            runs.append(LayerRun(layer=layer))
    return tuple(runs)
