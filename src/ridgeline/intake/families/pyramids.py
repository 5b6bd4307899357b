"""Vision models whose stages shrink the image: Swin, ConvNeXt, ResNet.

A token is a pixel of the first stage's output; later stages have a quarter of the rows each time. A convolution is
the matrix of its implicit GEMM: kernel area times input channels by output channels, one row for each output pixel; a
depthwise one has the kernel area as its inputs. Source: `transformers-5.24`. Files of convolutional families give no
image size: the tokens of one image are those at 224 x 224, at which the families are published.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.intake.blocks import Block, Heads, encoder_attention, join, linear, mlp
from ridgeline.intake.families.towers import patch_inputs, side
from ridgeline.intake.families.vision import classifier
from ridgeline.intake.reader import MAX_LAYERS, MAX_WIDTH, Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Layer, Linear

_PUBLISHED_SIDE = 224


def convolution(
    name: str, inputs: int, outputs: int, kernel: int, rows: float, *, bias: bool = False, depthwise: bool = False
) -> Linear:
    """A convolution as the matrix of its implicit GEMM."""
    area = kernel * kernel
    return linear(name, "mlp", area if depthwise else area * inputs, outputs, bias=bias, rows_per_token=rows)


def _stages(config: Config, name: str) -> tuple[list[int], list[int]]:
    depths = config.wholes("depths", low=1, high=MAX_LAYERS)
    widths = config.wholes(name, low=1, high=MAX_WIDTH)
    if len(depths) != len(widths) or not depths:
        config.fail("depths", f"got {len(depths)} stages, expected as many as {name} has ({len(widths)})")
    return depths, widths


def _image_shell(config: Config, layers: list[Layer], hidden: int, tokens: int, **around: object) -> Shell:
    head = classifier(config, hidden)
    return Shell(
        layers=tuple(layers),
        hidden_count=hidden,
        vocab_count=head.outputs_count if head else 0,
        role="vision",
        embedding_count=0,
        head=head,
        headless=head is None,
        encoder_tokens=tokens,
        **around,  # type: ignore[arg-type]
    )


def resnet(config: Config) -> Shell:
    """ResNet: a 7 x 7 stem and pooling, then stages of basic or bottleneck blocks, batch norm after each matrix."""
    depths, widths = _stages(config, "hidden_sizes")
    kind = config.text("layer_type", default="bottleneck", allowed=("basic", "bottleneck"))
    stem = config.width("embedding_size")
    early = config.flag("downsample_in_first_stage", default=False)
    narrow = config.flag("downsample_in_bottleneck", default=False)
    channels, rows = config.width("num_channels", default=3), 1.0
    layers: list[Layer] = []
    width = stem
    for stage, (depth, out) in enumerate(zip(depths, widths, strict=True)):
        for index in range(depth):
            before = rows
            strided = index == 0 and (stage > 0 or early)
            rows = rows / 4 if strided else rows
            first = rows if narrow else before
            parts = _residual_block(kind, width, out, (first, rows), shortcut=strided or width != out)
            norms = sum(2 * item.outputs_count for item in parts)
            made = sum(item.outputs_count * item.rows_per_token for item in parts)
            layer = join(
                (Block(linears=parts, other_count=norms, activation_count=round(made)),),
                norm_parameters_count=0,
                norms_count=len(parts),
                gated=False,
                rope=False,
            )
            layers.append(replace(layer, stream_frac=made / len(parts) / widths[-1]))
            width = out
    first_conv = convolution("stem", channels, stem, 7, 4.0)
    tokens = (_PUBLISHED_SIDE // 4) ** 2
    return _image_shell(config, layers, width, tokens, linears=(first_conv,), other_count=2 * stem)


def _residual_block(
    kind: str, width: int, out: int, rows: tuple[float, float], *, shortcut: bool
) -> tuple[Linear, ...]:
    """Matrices of one block; `rows` before and after its stride."""
    before, after = rows
    if kind == "basic":
        parts = [convolution("conv-1", width, out, 3, after), convolution("conv-2", out, out, 3, after)]
    else:
        inner = out // 4
        parts = [
            convolution("conv-1", width, inner, 1, before),
            convolution("conv-2", inner, inner, 3, after),
            convolution("conv-3", inner, out, 1, after),
        ]
    if shortcut:
        parts.append(convolution("shortcut", width, out, 1, after))
    return tuple(parts)


def convnext(config: Config) -> Shell:
    """ConvNeXt and its second version: depthwise 7 x 7, then an MLP on each pixel, under one norm."""
    return _convnext(config, normed_response=False)


def convnext_v2(config: Config) -> Shell:
    """ConvNeXt V2: global response norm in the MLP in place of a scale."""
    return _convnext(config, normed_response=True)


def _convnext(config: Config, *, normed_response: bool) -> Shell:
    depths, widths = _stages(config, "hidden_sizes")
    scaled = not normed_response and config.number("layer_scale_init_value", default=1e-6) > 0
    patch, _ = side(config, "patch_size", default=4)
    size, _ = side(config, "image_size", default=_PUBLISHED_SIDE)
    rows, others = 1.0, 0
    layers: list[Layer] = []
    around: list[Linear] = [linear("patch", "mlp", patch_inputs(config), widths[0], bias=True)]
    others += 2 * widths[0]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage:
            rows /= 4
            around.append(convolution(f"downsample-{stage}", widths[stage - 1], width, 2, rows, bias=True))
            others += 2 * widths[stage - 1]
        inner = tuple(
            replace(item, rows_per_token=rows) for item in mlp(width, 4 * width, gated=False, bias=True).linears
        )
        depthwise = convolution("depthwise", width, width, 7, rows, bias=True, depthwise=True)
        extra = 2 * 4 * width if normed_response else width if scaled else 0
        block = Block(linears=(depthwise, *inner), other_count=extra, activation_count=round(4 * width * rows))
        layer = join((block,), norm_parameters_count=2 * width, norms_count=1, gated=False, rope=False)
        layers += [replace(layer, stream_frac=width * rows / widths[-1])] * depth
    others += 2 * widths[-1]
    return _image_shell(config, layers, widths[-1], (size // patch) ** 2, linears=tuple(around), other_count=others)


def swin(config: Config) -> Shell:
    """Swin: attention within windows, patches merged four to one between stages."""
    hidden = config.width("embed_dim")
    depths = config.wholes("depths", low=1, high=MAX_LAYERS)
    heads = config.wholes("num_heads", low=1, high=MAX_WIDTH)
    if len(depths) != len(heads) or not depths:
        config.fail("depths", f"got {len(depths)} stages, expected as many as num_heads has ({len(heads)})")
    config.skip("hidden_size", "num_layers", "num_hidden_layers", "num_attention_heads")
    window = config.whole("window_size", low=1, high=MAX_WIDTH)
    ratio = config.number("mlp_ratio", low=0.5, high=64, default=4.0)
    bias = config.flag("qkv_bias", default=True)
    patch, size = side(config, "patch_size")[0], side(config, "image_size")[0]
    tokens = (size // patch) ** 2
    rows, others, width = 1.0, 2 * hidden, hidden
    layers: list[Layer] = []
    around: list[Linear] = [linear("patch", "other", patch_inputs(config), hidden, bias=True)]
    if config.flag("use_absolute_embeddings", default=False):
        others += tokens * hidden
    for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        layer = _swin_layer(config, width, count, window, (ratio, rows), bias=bias)
        layers += [replace(layer, stream_frac=width * rows / (hidden * 2 ** (len(depths) - 1)))] * depth
        if stage + 1 < len(depths):
            rows /= 4
            around.append(linear(f"merge-{stage}", "other", 4 * width, 2 * width, rows_per_token=rows))
            others += 2 * 4 * width
            width *= 2
    others += 2 * width
    return _image_shell(config, layers, width, tokens, linears=tuple(around), other_count=others)


def _swin_layer(
    config: Config, width: int, count: int, window: int, scale: tuple[float, float], *, bias: bool
) -> Layer:
    """One layer of a stage; `scale`: the MLP's ratio, and rows for one token of the first stage."""
    ratio, rows = scale
    head = config.divides(count, width, "num_heads", "stage width")
    heads = Heads(hidden_count=width, heads_count=count, kv_heads_count=count, key_dim_count=head, value_dim_count=head)
    part = encoder_attention(heads, qkv_bias=bias, out_bias=True, window_tokens=window * window, rows_per_token=rows)
    inner = mlp(width, round(width * ratio), gated=False, bias=True)
    blocks = [
        Block(
            linears=tuple(replace(item, rows_per_token=rows) for item in block.linears),
            mixers=block.mixers,
            activation_count=round(block.activation_count * rows),
        )
        for block in (part, inner)
    ]
    table = (2 * window - 1) ** 2 * count
    return join((*blocks, Block(other_count=table)), norm_parameters_count=4 * width, gated=False, rope=False)


PYRAMID_BUILDERS: dict[str, Callable[[Config], Shell]] = {
    "resnet": resnet,
    "convnext": convnext,
    "convnextv2": convnext_v2,
    "swin": swin,
}
