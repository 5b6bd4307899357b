"""Published diffusion transformers by name, and the decoders that make pictures of their latents.

Widths, layers and tokens: the configurations that were published with the weights. Passes and kernels of a layer are
counted in the reference implementation (diffusers), which runs every norm, modulation and gate as a kernel of its own.
"""

from __future__ import annotations

from functools import cache

from ridgeline.specs.network import Network
from ridgeline.workload.convnets.builder import Net, Sizes, start
from ridgeline.workload.denoising import DenoiserLayer, DenoisingTransformer

# Two lines a model. First: id | width, heads, pixels of a token's edge, latent frames of a token | text: tokens, width,
# 1e9 parameters and layers of its encoder | passes a step, decoder. Second: source of the architecture | layers: kind,
# how many, width of the feed-forward part, passes of a hidden state and kernels beside products (counted in
# diffusers-source); "picture": a second attention on the picture alone; "skip": a product with an earlier layer.
_TABLE = """
pixart-sigma-xl | 1152 16 16 1 | 300 4096 4.76 24 | 2 image-decoder
  | chen-2024-pixart-sigma | cross 28 4608 41 20
hunyuandit-1.2 | 1408 16 16 1 | 333 2048 1.7 24 | 2 image-decoder
  | li-2024-hunyuandit | cross 21 6144 139 52 + cross 19 6144 153 58 skip
sana-1.5-1.6b | 2240 20 32 1 | 300 2304 2 26 | 2 deep-decoder
  | xie-2024-sana | linear 20 5600 150 60
sana-1.5-4.8b | 2240 20 32 1 | 300 2304 2 26 | 2 deep-decoder
  | xie-2024-sana | linear 60 5600 150 60
sd-3.5-medium | 1536 24 16 1 | 333 4096 4.76 24 | 2 image-decoder
  | esser-2024 | double 13 6144 117 80 picture + double 11 6144 72 60
sd-3.5-large | 2432 38 16 1 | 333 4096 4.76 24 | 2 image-decoder
  | esser-2024 | double 38 9728 72 60
flux.1-dev | 3072 24 16 1 | 512 4096 4.76 24 | 1 image-decoder
  | flux-2024 | double 19 12288 122 76 + merged 38 12288 115 42
wan2.1-1.3b | 1536 12 16 1 | 512 4096 5.7 24 | 2 film-decoder-96
  | wan-2025 | cross 30 8960 188 60
wan2.1-14b | 5120 40 16 1 | 512 4096 5.7 24 | 2 film-decoder-96
  | wan-2025 | cross 40 13824 182 60
hunyuanvideo | 3072 24 16 1 | 256 4096 8 32 | 1 film-decoder-128
  | kong-2024-hunyuanvideo | double 20 12288 122 76 + merged 40 12288 115 42
cogvideox-2b | 1920 30 16 1 | 226 4096 4.76 24 | 2 film-decoder-128
  | yang-2024-cogvideox | shared 30 7680 44 40
cogvideox-1.5-5b | 3072 48 16 2 | 226 4096 4.76 24 | 2 film-decoder-128
  | yang-2024-cogvideox | shared 42 12288 94 56
"""
_BILLION = 1e9  # src: rl-derivation


def _denoiser(line: str) -> DenoisingTransformer:
    name, widths, text, made, source, layers = (part.strip() for part in line.split("|"))
    width, heads, pixels, frames = (int(part) for part in widths.split())
    tokens, context, parameters, depth = text.split()
    guidance, decoder_name = made.split()
    return DenoisingTransformer(
        id=name,
        width_count=width,
        heads_count=heads,
        layers=tuple(_layer(part.split()) for part in layers.split("+")),
        pixels_count=pixels,
        text_tokens_count=int(tokens),
        context_count=int(context),
        encoder_parameters_count=float(parameters) * _BILLION,
        encoder_layers_count=int(depth),
        guidance_count=int(guidance),
        decoder=decoder_name,
        latent_frames_count=frames,
        source=source,
    )


def _layer(parts: list[str]) -> DenoiserLayer:
    kind, count, feed, passes, kernels, *more = parts
    return DenoiserLayer(
        kind=kind,  # type: ignore[arg-type]
        count=float(count),
        feed_count=int(feed),
        passes_count=float(passes),
        kernels_count=float(kernels),
        self_attention="picture" in more,
        skip="skip" in more,
    )


DENOISING: dict[str, DenoisingTransformer] = {
    item.id: item for item in (_denoiser(text) for text in _TABLE.strip().replace("\n  |", " |").splitlines())
}
# Widths of a decoder's levels, deepest first; residual blocks a level; levels at whose end time is doubled as well.
_DECODERS: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], int]] = {
    "image-decoder": ((512, 512, 256, 128), 3, (), 16),  # src: rombach-2021
    "deep-decoder": ((1024, 1024, 512, 512, 256, 128), 3, (), 32),  # src: xie-2024-sana
    "film-decoder-96": ((384, 384, 192, 96), 3, (0, 1), 16),  # src: wan-2025
    "film-decoder-128": ((512, 512, 256, 128), 3, (0, 1), 16),  # src: kong-2024-hunyuanvideo
}


@cache
def decoder(name: str, latent: Sizes) -> Network:
    """The convolutional decoder `name` on a latent picture (height, width) or film (frames, height, width).

    >>> decoder("image-decoder", (128, 128)).nodes[-1].shape.spatial
    (1024, 1024)
    """
    widths, blocks, doubled, channels = _DECODERS[name]
    net = start(latent, channels, norm="group", activation="silu")
    x = net.conv(-1, widths[0], 3, bias=True)  # src: rombach-2021
    for _ in range(2):
        x = _residual(net, x, widths[0])
    for level, width in enumerate(widths):
        net.scope = f"up{level}."
        for _ in range(blocks):
            x = _residual(net, x, width)
        if level < len(widths) - 1:
            x = net.conv(_larger(net, x, level in doubled), width, 3, bias=True)  # src: rombach-2021
    net.scope = ""
    net.conv(net.act(net.normalise(x)), 3, 3, bias=True)  # src: rombach-2021
    return net.done(name, "rombach-2021", "picture")


def _larger(net: Net, x: int, time: bool) -> int:
    spatial = net.shape(x).spatial
    if len(spatial) == 2:
        return net.resize(x)
    frames, height, width = spatial
    made = 2 * frames - 1 if time and frames > 1 else frames
    return net.rearrange(x, net.channels(x), (made, 2 * height, 2 * width), "resize", 1.0)


def _residual(net: Net, x: int, width: int) -> int:
    y = net.conv(net.act(net.normalise(x)), width, 3, bias=True)  # src: rombach-2021
    y = net.conv(net.act(net.normalise(y)), width, 3, bias=True)  # src: rombach-2021
    return net.sum(y, x if net.channels(x) == width else net.conv(x, width, bias=True))
