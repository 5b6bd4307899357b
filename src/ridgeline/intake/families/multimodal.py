"""Models of several parts: a text decoder with towers for images or sound.

The text part is read by its own family; towers and projectors stand beside it. A file that describes no tower gives
a model without one. Source: `transformers-5.24`; for Phi-3-vision and Kimi K3 the code in the models' own
repositories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ridgeline.intake.blocks import linear
from ridgeline.intake.families.towers import (
    Tower,
    clip_tower,
    patch_inputs,
    patches_count,
    pixtral_tower,
    pooling_head,
    side,
    siglip_tower,
    tower,
)
from ridgeline.intake.reader import MAX_LAYERS, MAX_TOKENS, Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Linear, Stack

Reader = Callable[[Config], Shell]
TowerBuilder = Callable[[Config, Config, int], Stack]


def composed(
    text: Mapping[str, Reader] | Reader,
    build: TowerBuilder,
    *,
    vision: str = "vision_config",
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
) -> Reader:
    """A reader of a model whose text part is under `text_config` (or at the top) and whose tower is under `vision`.

    `text`: one reader, or readers by the `model_type` of the text part; `defaults`: values that published files leave
    out, by that type.
    """

    def read(config: Config) -> Shell:
        nested = config.has("text_config") or not callable(text)
        section = config.section("text_config") if nested else config
        section = _inherited(config, section)
        if defaults:
            section = section.with_defaults(defaults.get(str(section.get("model_type")), {}))
        shell = (text if callable(text) else _chosen(text, section))(section)
        if section is not config:
            section.refuse_unread(str(section.get("model_type") or config.get("model_type")))
        if not config.has(vision):
            return shell
        config.skip("tie_word_embeddings")
        stack = build(config, config.section(vision), shell.hidden_count)
        return replace(shell, others=(*shell.others, stack))

    return read


def _inherited(config: Config, section: Config) -> Config:
    """The text part with the tying that the top of the file states, which owns the head and so decides."""
    if section is config or not config.has("tie_word_embeddings"):
        return section
    return section.overlaid({"tie_word_embeddings": config.flag("tie_word_embeddings")})


def _chosen(text: Mapping[str, Reader], section: Config) -> Reader:
    return text[section.text("model_type", allowed=sorted(text))]


def merged(name: str, inputs: int, outputs: int, share: float, *, bias: bool = True) -> Linear:
    """A matrix of a projector that works on `share` rows for each patch."""
    return linear(name, "other", inputs, outputs, bias=bias, rows_per_token=share)


def qwen2_vl(config: Config, image: Config, text_hidden: int) -> Stack:
    """Qwen2-VL: frames in pairs, rotary positions, patches merged four to one."""
    del config
    hidden, out = image.width("embed_dim"), image.width("hidden_size", default=text_hidden)
    frames = image.whole("temporal_patch_size", low=1, high=64, default=2)
    merge = image.whole("spatial_merge_size", low=1, high=64, default=2) ** 2
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("depth"),
        heads_count=image.heads("num_heads"),
        inner_count=round(hidden * image.number("mlp_ratio", low=0.5, high=64, default=4.0)),
        patch_inputs_count=patch_inputs(image) * frames,
        patch_bias=False,
    )
    wide = hidden * merge
    parts = (merged("merge-1", wide, wide, 1 / merge), merged("merge-2", wide, out, 1 / merge))
    return tower(shape, parts, 2 * hidden)


def qwen2_5_vl(config: Config, image: Config, text_hidden: int) -> Stack:
    """Qwen2.5-VL: gated MLP, RMS norms, windows but in the layers of `fullatt_block_indexes`."""
    del config
    hidden, depth = image.width("hidden_size"), image.layers("depth")
    frames = image.whole("temporal_patch_size", low=1, high=64, default=2)
    merge = image.whole("spatial_merge_size", low=1, high=64, default=2) ** 2
    whole = set(image.wholes("fullatt_block_indexes", high=MAX_LAYERS))
    patch, _ = side(image, "patch_size")
    near = (image.whole("window_size", low=1, high=MAX_TOKENS) // patch) ** 2
    shape = Tower(
        hidden_count=hidden,
        layers_count=depth,
        heads_count=image.heads("num_heads"),
        inner_count=image.width("intermediate_size"),
        patch_inputs_count=patch_inputs(image) * frames,
        patch_bias=False,
        gated=True,
        norm_biased=False,
        windows=tuple(None if index in whole else near for index in range(depth)),
    )
    wide = hidden * merge
    out = image.width("out_hidden_size", default=text_hidden)
    return tower(shape, (merged("merge-1", wide, wide, 1 / merge), merged("merge-2", wide, out, 1 / merge)), hidden)


def qwen3_vl(config: Config, image: Config, text_hidden: int) -> Stack:
    """Qwen3-VL and Qwen3.5: learned positions; mergers also after the layers of `deepstack_visual_indexes`."""
    del config
    hidden = image.width("hidden_size")
    frames = image.whole("temporal_patch_size", low=1, high=64, default=2)
    merge = image.whole("spatial_merge_size", low=1, high=64, default=2) ** 2
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("depth"),
        heads_count=image.heads("num_heads"),
        inner_count=image.width("intermediate_size"),
        patch_inputs_count=patch_inputs(image) * frames,
        positions_count=image.whole("num_position_embeddings", low=1, high=MAX_TOKENS),
    )
    wide = hidden * merge
    out = image.width("out_hidden_size", default=text_hidden)
    deep = len(image.items("deepstack_visual_indexes", default=[]))
    parts = [merged("merge-1", wide, wide, 1 / merge), merged("merge-2", wide, out, 1 / merge)] * (1 + deep)
    return tower(shape, parts, 2 * hidden + deep * 2 * wide)


def glm4v(config: Config, image: Config, text_hidden: int) -> Stack:
    """GLM-4V: gated MLP of its own width, learned positions, a strided convolution, a gated merger."""
    del config
    hidden, inner = image.width("hidden_size"), image.width("intermediate_size")
    frames = image.whole("temporal_patch_size", low=1, high=64, default=2)
    merge = image.whole("spatial_merge_size", low=1, high=64, default=2) ** 2
    bias = image.flag("attention_bias", default=False)
    out = image.width("out_hidden_size", default=text_hidden)
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("depth"),
        heads_count=image.heads("num_heads"),
        # The tower's MLP is as wide as its output; `intermediate_size` is that of the merger.
        inner_count=out,
        patch_inputs_count=patch_inputs(image) * frames,
        positions_count=patches_count(image),
        gated=True,
        qkv_bias=bias,
        out_bias=False,
        mlp_bias=False,
        norm_biased=False,
        outer_norms=2,
    )
    share = 1 / merge
    parts = (
        merged("downsample", hidden * merge, out, share),
        merged("merge", out, out, share, bias=False),
        merged("merge-gate", out, inner, share, bias=False),
        merged("merge-up", out, inner, share, bias=False),
        merged("merge-down", inner, out, share, bias=False),
    )
    return tower(shape, parts, 2 * out)


def gemma3_tower(config: Config, image: Config, text_hidden: int) -> Stack:
    """Gemma 3: SigLIP, pooled to `mm_tokens_per_image` tokens, one matrix."""
    shape = siglip_tower(image)
    tokens = config.whole("mm_tokens_per_image", low=1, high=MAX_TOKENS, default=256)
    share = tokens / shape.positions_count
    parts = [merged("projector", shape.hidden_count, text_hidden, share, bias=False)]
    others = shape.hidden_count
    if image.flag("vision_use_head", default=False):
        parts += pooling_head(shape.hidden_count, shape.inner_count)
        others += 3 * shape.hidden_count
    return tower(shape, parts, others)


def gemma4_tower(config: Config, image: Config, text_hidden: int) -> Stack:
    """Gemma 4: gated MLP, four norms a layer, norms of queries and keys, positions by row and column."""
    del config
    hidden = image.width("hidden_size")
    width = image.width("head_dim")
    pooled = image.whole("pooling_kernel_size", low=1, high=64, default=3) ** 2
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("num_hidden_layers"),
        heads_count=image.heads("num_attention_heads"),
        head_dim_count=width,
        inner_count=image.width("intermediate_size"),
        patch_inputs_count=patch_inputs(image),
        patch_bias=False,
        positions_count=2 * image.whole("position_embedding_size", low=1, high=MAX_TOKENS, default=10240),
        gated=True,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        norm_biased=False,
        norms_count=4,
        layer_extra_count=2 * width,
    )
    image.skip("num_key_value_heads", "global_head_dim")
    return tower(shape, (merged("projector", hidden, text_hidden, 1 / pooled, bias=False),))


def llama4_tower(config: Config, image: Config, text_hidden: int) -> Stack:
    """Llama 4: class token and positions, patches shuffled four to one, an adapter and one matrix."""
    del config
    hidden = image.width("hidden_size")
    wide, out = image.width("projector_input_dim"), image.width("projector_output_dim")
    ratio = image.number("pixel_shuffle_ratio", low=0.01, high=1.0, default=0.5)
    share = ratio * ratio
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("num_hidden_layers"),
        heads_count=image.heads("num_attention_heads"),
        inner_count=image.width("intermediate_size"),
        patch_inputs_count=patch_inputs(image),
        patch_bias=False,
        positions_count=patches_count(image) + 1,
        tokens_count=hidden,
        outer_norms=2,
    )
    bias = image.flag("multi_modal_projector_bias", default=False)
    parts = (
        merged("adapter-1", image.width("intermediate_size"), wide, share, bias=False),
        merged("adapter-2", out, out, share, bias=False),
        merged("projector", image.width("vision_output_dim"), text_hidden, share, bias=bias),
    )
    return tower(shape, parts)


def moonvit(config: Config, image: Config, text_hidden: int) -> Stack:
    """Kimi K2.5: MoonViT with positions by row and column, patches merged four to one."""
    del config
    hidden = image.width("vt_hidden_size", "hidden_size")
    rows = image.whole("init_pos_emb_height", "pos_emb_height", low=1, high=MAX_TOKENS)
    columns = image.whole("init_pos_emb_width", "pos_emb_width", low=1, high=MAX_TOKENS)
    area = 1
    for kernel in image.wholes("merge_kernel_size", low=1, high=64):
        area *= kernel
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("vt_num_hidden_layers", "num_hidden_layers"),
        heads_count=image.heads("vt_num_attention_heads", "num_attention_heads"),
        inner_count=image.width("vt_intermediate_size", "intermediate_size"),
        patch_inputs_count=patch_inputs(image),
        positions_count=rows * columns,
        outer_norms=1,
    )
    wide = hidden * area
    return tower(
        shape, (merged("merge-1", wide, wide, 1 / area), merged("merge-2", wide, text_hidden, 1 / area)), 2 * hidden
    )


def moonvit_k3(config: Config, image: Config, text_hidden: int) -> Stack:
    """Kimi K3: MoonViT with RMS norms, no biases, attention wider than the hidden state."""
    shape_like = {key: image.flag(key, default=False) for key in ("attn_bias", "linear_bias", "patch_embed_proj_bias")}
    for key, value in (("norm_type", "rmsnorm"), ("mlp_type", "mlp2"), ("mm_projector_type", "patchmergerv2")):
        image.text(key, allowed=(value,))
    hidden = image.width("vt_hidden_size")
    heads = image.heads("vt_num_attention_heads")
    area = 1
    for kernel in image.wholes("merge_kernel_size", low=1, high=64):
        area *= kernel
    del config
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("vt_num_hidden_layers"),
        heads_count=heads,
        head_dim_count=image.divides(
            heads, image.width("qkv_hidden_size"), "vt_num_attention_heads", "qkv_hidden_size"
        ),
        inner_count=image.width("vt_intermediate_size"),
        patch_inputs_count=patch_inputs(image),
        patch_bias=shape_like["patch_embed_proj_bias"],
        positions_count=image.whole("init_pos_emb_height", low=1, high=MAX_TOKENS)
        * image.whole("init_pos_emb_width", low=1, high=MAX_TOKENS),
        qkv_bias=shape_like["attn_bias"],
        out_bias=shape_like["attn_bias"],
        mlp_bias=shape_like["linear_bias"],
        norm_biased=False,
        outer_norms=1,
    )
    wide = hidden * area
    parts = (
        merged("merge-1", wide, wide, 1 / area, bias=False),
        merged("merge-2", wide, text_hidden, 1 / area, bias=False),
    )
    return tower(shape, parts, text_hidden)


def minimax_m3_tower(config: Config, image: Config, text_hidden: int) -> Stack:
    """MiniMax-M3: a CLIP-like tower with rotary positions, two MLPs around a four-to-one merge."""
    hidden = image.width("hidden_size")
    wide = config.width("projector_hidden_size", default=text_hidden)
    nested = image.section("img_token_compression_config", required=False)
    area = nested.whole("spatial_merge_size", low=1, high=64, default=2) ** 2
    frames = nested.whole("temporal_patch_size", low=1, high=64, default=2)
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("num_hidden_layers"),
        heads_count=image.heads("num_attention_heads"),
        inner_count=image.width("intermediate_size"),
        patch_inputs_count=patch_inputs(image) * frames,
        patch_bias=False,
        outer_norms=1,
    )
    parts = (
        linear("projector-1", "other", hidden, wide, bias=True),
        linear("projector-2", "other", wide, text_hidden, bias=True),
        merged("merge-1", text_hidden * area, wide, 1 / area),
        merged("merge-2", wide, text_hidden, 1 / area),
    )
    return tower(shape, parts)


def step_tower(config: Config, image: Config, text_hidden: int) -> Stack:
    """Step 3.7: a tower with scales in each layer, two strided convolutions, one matrix."""
    hidden = image.width("hidden_size", "width")
    ratio = image.number("mlp_ratio", low=0.5, high=64, default=8960 / 1536)
    image.skip("intermediate_size")
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("num_hidden_layers", "layers"),
        heads_count=image.heads("num_attention_heads", "heads"),
        inner_count=int(hidden * ratio),
        patch_inputs_count=patch_inputs(image),
        patch_bias=False,
        positions_count=patches_count(image),
        outer_norms=1,
        layer_extra_count=2 * hidden,
    )
    parts = (
        merged("downsample-1", 9 * hidden, 2 * hidden, 1 / 4),
        merged("downsample-2", 9 * 2 * hidden, 4 * hidden, 1 / 16),
        merged("projector", 4 * hidden, text_hidden, 1 / 16, bias=config.flag("projector_bias", default=False)),
    )
    return tower(shape, parts)


def pixtral(config: Config, image: Config, text_hidden: int) -> Stack:
    """Mistral Small 3.1: Pixtral's tower, patches merged four to one, two matrices."""
    shape = pixtral_tower(image)
    hidden = shape.hidden_count
    area = config.whole("spatial_merge_size", low=1, high=64, default=2) ** 2
    bias = config.flag("multimodal_projector_bias", default=False)
    parts = (
        merged("merge", hidden * area, hidden, 1 / area, bias=False),
        merged("projector-1", hidden, text_hidden, 1 / area, bias=bias),
        merged("projector-2", text_hidden, text_hidden, 1 / area, bias=bias),
    )
    return tower(shape, parts, hidden)


_TOWERS: dict[str, Callable[[Config], Tower]] = {
    "clip_vision_model": clip_tower,
    "siglip_vision_model": siglip_tower,
    "pixtral": pixtral_tower,
}


def llava(config: Config, image: Config, text_hidden: int) -> Stack:
    """LLaVA: a CLIP, SigLIP or Pixtral tower and two matrices on every patch; LLaVA-NeXT learns a line break."""
    kind = image.text("model_type", allowed=tuple(_TOWERS))
    shape = _TOWERS[kind](image)
    bias = config.flag("multimodal_projector_bias", default=True)
    newline = text_hidden if config.get("model_type") in ("llava_next", "llava_onevision") else 0
    parts = (
        linear("projector-1", "other", shape.hidden_count, text_hidden, bias=bias),
        linear("projector-2", "other", text_hidden, text_hidden, bias=bias),
    )
    return tower(shape, parts, newline)


def phi3_vision(text: Reader) -> Reader:
    """Phi-3-vision: CLIP ViT-L/14 at 336 named, not described; four patches to one, two matrices, two separators."""
    named = "openai/clip-vit-large-patch14-336"
    figures: dict[str, Any] = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
    }

    def read(config: Config) -> Shell:
        shell = text(config)
        image = config.section("img_processor")
        image.text("model_name", allowed=(named,))
        wide = image.width("image_dim_out")
        shape = clip_tower(Config(figures, where=config.where, path=f"{config.path}img_processor."))
        parts = (
            merged("projector-1", 4 * wide, shell.hidden_count, 1 / 4),
            merged("projector-2", shell.hidden_count, shell.hidden_count, 1 / 4),
        )
        return replace(shell, others=(tower(shape, parts, 2 * 4 * wide),))

    return read
