"""Vision towers: columns of encoder layers over patches, as models of their own and as parts of larger ones.

A tower's tokens are its patches (and class tokens). A projector works on the patches after merging, so its rows are
a fraction of them. Source: `transformers-5.24`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgeline.intake.blocks import Block, Heads, encoder_attention, join, linear, mlp
from ridgeline.intake.reader import MAX_TOKENS, Config, shown
from ridgeline.intake.shell import stack
from ridgeline.specs import Layer, Linear, Stack

_PATCH_LIMIT = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """A tower's shape: widths, depth, and what stands around its layers.

    `patch_inputs_count`: pixels of one patch times channels (and frames). `positions_count`: rows of a learned table.
    `tokens_count`: parameters of class and other learned tokens. `norm_biased`: norms have biases. `outer_norms`:
    norms before and after the layers. `layer_extra_count`: scales and the like of each layer.
    """

    hidden_count: int
    layers_count: int
    heads_count: int
    inner_count: int
    patch_inputs_count: int
    head_dim_count: int | None = None
    patch_bias: bool = True
    positions_count: int = 0
    tokens_count: int = 0
    gated: bool = False
    qkv_bias: bool = True
    key_bias: bool | None = None
    out_bias: bool = True
    mlp_bias: bool = True
    norm_biased: bool = True
    norms_count: int = 2
    outer_norms: int = 0
    layer_extra_count: int = 0
    windows: tuple[int | None, ...] = ()


def tower_layers(shape: Tower) -> tuple[Layer, ...]:
    """The layers, in order."""
    width = shape.head_dim_count or shape.hidden_count // shape.heads_count
    heads = Heads(
        hidden_count=shape.hidden_count,
        heads_count=shape.heads_count,
        kv_heads_count=shape.heads_count,
        key_dim_count=width,
        value_dim_count=width,
    )
    norm = shape.hidden_count * (2 if shape.norm_biased else 1)
    missing = 0 if shape.key_bias is None or shape.key_bias == shape.qkv_bias else -heads.key_width_count
    inner = mlp(shape.hidden_count, shape.inner_count, gated=shape.gated, bias=shape.mlp_bias)
    layers = []
    for window in shape.windows or (None,) * shape.layers_count:
        part = encoder_attention(heads, qkv_bias=shape.qkv_bias, out_bias=shape.out_bias, window_tokens=window)
        layers.append(
            join(
                (part, inner, Block(other_count=shape.layer_extra_count + missing)),
                norm_parameters_count=shape.norms_count * norm,
                norms_count=shape.norms_count,
                gated=shape.gated,
                rope=not shape.positions_count,
            )
        )
    return tuple(layers)


def patch_embedding(shape: Tower) -> Linear:
    """The convolution that makes patches, as the matrix that it is."""
    return linear("patch", "other", shape.patch_inputs_count, shape.hidden_count, bias=shape.patch_bias)


def outer_count(shape: Tower) -> int:
    """Parameters around the layers that make no GEMM."""
    norm = shape.hidden_count * (2 if shape.norm_biased else 1)
    return shape.positions_count * shape.hidden_count + shape.tokens_count + shape.outer_norms * norm


def tower(shape: Tower, projector: Sequence[Linear] = (), projector_other_count: int = 0) -> Stack:
    """The tower as a stack beside a decoder, its projector included."""
    return stack(
        "vision",
        shape.hidden_count,
        tower_layers(shape),
        linears=(patch_embedding(shape), *projector),
        other_count=outer_count(shape) + projector_other_count,
    )


def side(config: Config, name: str, *, default: int | None = None) -> tuple[int, int]:
    """Height and width under `name`, given as one figure or two."""
    value = config.get(name)
    if isinstance(value, (list, tuple)):
        sides = config.wholes(name, low=1, high=_PATCH_LIMIT)
        if len(sides) != 2:
            config.fail(name, f"got {shown(value)}, expected one figure or two")
        return sides[0], sides[1]
    figure = config.whole(name, low=1, high=_PATCH_LIMIT, default=default)
    return figure, figure


def patches_count(config: Config, *, patch: int | None = None) -> int:
    """Whole patches of an image of `image_size`."""
    height, width = side(config, "image_size")
    rows, columns = side(config, "patch_size", default=patch)
    count = (height // rows) * (width // columns)
    if not 1 <= count <= MAX_TOKENS:
        config.fail("patch_size", f"got {shown(config.get('patch_size'))}, larger than image_size")
    return count


def patch_inputs(config: Config, channels: tuple[str, ...] = ("num_channels", "in_channels", "in_chans")) -> int:
    """Elements of one patch: its pixels times channels (3 where not given: colour images)."""
    rows, columns = side(config, "patch_size")
    return rows * columns * config.whole(*channels, low=1, high=4096, default=3)


def clip_tower(config: Config, *, post_norm: bool = True) -> Tower:
    """CLIP's image tower: class token, positions, norms before and after."""
    hidden = config.width("hidden_size")
    return Tower(
        hidden_count=hidden,
        layers_count=config.layers("num_hidden_layers"),
        heads_count=_dividing_heads(config, hidden),
        inner_count=config.width("intermediate_size"),
        patch_inputs_count=patch_inputs(config),
        patch_bias=False,
        positions_count=patches_count(config) + 1,
        tokens_count=hidden,
        outer_norms=2 if post_norm else 1,
    )


def siglip_tower(config: Config) -> Tower:
    """SigLIP's image tower without its pooling head: positions, a norm after."""
    hidden = config.width("hidden_size")
    return Tower(
        hidden_count=hidden,
        layers_count=config.layers("num_hidden_layers"),
        heads_count=_dividing_heads(config, hidden),
        inner_count=config.width("intermediate_size"),
        patch_inputs_count=patch_inputs(config),
        positions_count=patches_count(config),
        outer_norms=1,
    )


def pooling_head(hidden: int, inner: int) -> tuple[Linear, ...]:
    """SigLIP's pooling head: one learned query attends to the patches, then an MLP (its 3 norms and query apart)."""
    keys = linear("pool-kv", "attention", hidden, 2 * hidden, bias=True)
    rest = mlp(hidden, inner, gated=False, bias=True, prefix="pool-").linears
    once = [
        linear("pool-q", "attention", hidden, hidden, bias=True),
        linear("pool-o", "attention", hidden, hidden, bias=True),
        *rest,
    ]
    return (keys, *(replace(item, rows_per_token=0.0) for item in once))


def pixtral_tower(config: Config) -> Tower:
    """Pixtral's image tower: rotary positions, gated MLP, no biases."""
    hidden = config.width("hidden_size")
    return Tower(
        hidden_count=hidden,
        layers_count=config.layers("num_hidden_layers"),
        heads_count=_dividing_heads(config, hidden),
        inner_count=config.width("intermediate_size"),
        patch_inputs_count=patch_inputs(config),
        patch_bias=False,
        gated=True,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        norm_biased=False,
        outer_norms=1,
    )


def _dividing_heads(config: Config, hidden: int) -> int:
    heads = config.heads("num_attention_heads", "num_heads")
    config.divides(heads, hidden, config.key_of("num_attention_heads", "num_heads"), "hidden_size")
    return heads
