"""Denoising U-Nets: convolutions and attention on a latent image, with a text as context.

Source: Rombach 2021 (arXiv 2112.10752), Podell 2023 (2307.01952), with the published configurations of Stable Diffusion
1, 2 and XL.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, start

LATENT_CHANNELS, TEXT_TOKENS, TIME = 4, 77, 1280  # src: rombach-2021


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoiser:
    """One published configuration: widths of the levels, transformer layers of each (0: none), width of a head (or
    their number where `heads_fixed`), width of the text's embedding."""

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    head_dim_count: int
    context_count: int
    heads_fixed: bool = False
    layers: int = 2
    added_count: int = 0
    latent: int = 64  # src: rombach-2021


DENOISERS: dict[str, Denoiser] = {
    "sd-1.5": Denoiser(
        widths=(320, 640, 1280, 1280),  # src: rombach-2021
        depths=(1, 1, 1, 0),
        head_dim_count=8,  # src: rombach-2021
        context_count=768,  # src: rombach-2021
        heads_fixed=True,  # src: rombach-2021
    ),
    "sd-2": Denoiser(
        widths=(320, 640, 1280, 1280),  # src: rombach-2021
        depths=(1, 1, 1, 0),
        head_dim_count=64,  # src: rombach-2021
        context_count=1024,  # src: rombach-2021
    ),  # src: rombach-2021
    "sdxl": Denoiser(
        widths=(320, 640, 1280),  # src: rombach-2021
        depths=(0, 2, 10),  # src: rombach-2021
        head_dim_count=64,  # src: rombach-2021
        context_count=2048,  # src: rombach-2021
        added_count=2816,  # src: rombach-2021
        latent=128,  # src: rombach-2021
    ),
}


def denoiser(name: str, latent: Sizes | None = None) -> Network:
    """One step of a U-Net by name, on a latent image an eighth of the picture's size.

    >>> round(denoiser("sd-2").parameters_count / 1e6, 1)
    865.9
    """
    spec = DENOISERS[name]
    net = start(latent or spec.latent, LATENT_CHANNELS, norm="group", activation="silu")
    text = net.rearrange(-1, spec.context_count, TEXT_TOKENS, "view", 0.0)
    clock = net.rearrange(-1, spec.widths[0], (), "view", 0.0)
    clock = net.act(net.dense(net.act(net.dense(clock, TIME)), TIME))
    if spec.added_count:
        extra = net.rearrange(-1, spec.added_count, (), "view", 0.0)
        clock = net.sum(clock, net.dense(net.act(net.dense(extra, TIME)), TIME))
    x = net.conv(-1, spec.widths[0], 3, bias=True)  # src: rombach-2021
    skips = [x]
    for level, (width, depth) in enumerate(zip(spec.widths, spec.depths, strict=True)):
        net.scope = f"down{level}."
        for _ in range(spec.layers):
            x = _transformer(net, _residual(net, x, width, clock), text, depth, spec)
            skips.append(x)
        if level < len(spec.widths) - 1:
            x = net.conv(x, width, 3, 2, bias=True)  # src: rombach-2021
            skips.append(x)
    net.scope = "middle."
    x = _residual(net, x, spec.widths[-1], clock)
    x = _transformer(net, x, text, spec.depths[-1] or 1, spec)
    x = _residual(net, x, spec.widths[-1], clock)
    for level in reversed(range(len(spec.widths))):
        net.scope = f"up{level}."
        for _ in range(spec.layers + 1):
            x = _residual(net, net.concat(x, skips.pop()), spec.widths[level], clock)
            x = _transformer(net, x, text, spec.depths[level], spec)
        if level:
            x = net.conv(net.resize(x), spec.widths[level], 3, bias=True)  # src: rombach-2021
    net.scope = ""
    net.conv(net.act(net.normalise(x)), LATENT_CHANNELS, 3, bias=True)  # src: rombach-2021
    return net.done(name, "rombach-2021", "latent")


def _residual(net: Net, x: int, outputs: int, clock: int) -> int:
    """Two convolutions, each behind a normalisation, with the time added between."""
    y = net.conv(net.act(net.normalise(x)), outputs, 3, bias=True)  # src: rombach-2021
    t = net.dense(clock, outputs)
    y = net.combine("multiply", y, t)  # the time is added to every position: the traffic of a gate
    y = net.conv(net.act(net.normalise(y)), outputs, 3, bias=True)  # src: rombach-2021
    shortcut = x if net.channels(x) == outputs else net.conv(x, outputs, bias=True)
    return net.sum(y, shortcut)


def _transformer(net: Net, x: int, text: int, depth: int, spec: Denoiser) -> int:
    """`depth` layers of self-attention, attention to the text and a gated feed-forward, between two projections."""
    if not depth:
        return x
    width = net.channels(x)
    heads = spec.head_dim_count if spec.heads_fixed else width // spec.head_dim_count
    shortcut = x
    y = net.dense(net.normalise(x), width)
    for _ in range(depth):
        for context in (-2, text):
            z = net.normalise(y, "layer")
            source = z if context == -2 else context
            q, k, v = (net.dense(s, width, bias=False) for s in (z, source, source))
            y = net.sum(net.dense(net.attention(q, k, v, heads), width), y)
        z = net.act(net.dense(net.normalise(y, "layer"), 8 * width), "gelu")  # src: rombach-2021
        z = net.rearrange(z, 4 * width, net.shape(z).spatial, "gate", 2.0)  # src: rombach-2021
        y = net.sum(net.dense(z, width), y)
    return net.sum(net.dense(y, width), shortcut)
