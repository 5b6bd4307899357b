"""More models of several parts: PaliGemma, Idefics3 and SmolVLM, InternVL, Qwen2-Audio, and SigLIP's pair.

Source: `transformers-5.24`.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.intake.blocks import Heads, encoder_attention, join, linear, mlp
from ridgeline.intake.families.multimodal import merged
from ridgeline.intake.families.towers import Tower, patch_inputs, patches_count, pooling_head, siglip_tower, tower
from ridgeline.intake.families.vision import image_model
from ridgeline.intake.reader import MAX_TOKENS, Config
from ridgeline.intake.shell import Shell, stack
from ridgeline.specs import Layer, Linear, Stack


def paligemma(config: Config, image: Config, text_hidden: int) -> Stack:
    """PaliGemma: SigLIP and one biased matrix on every patch."""
    shape = siglip_tower(image)
    config.skip("projection_dim", "hidden_size", "vocab_size")
    return tower(shape, (linear("projector", "other", shape.hidden_count, text_hidden, bias=True),))


def idefics3(config: Config, image: Config, text_hidden: int) -> Stack:
    """Idefics3 and SmolVLM: a SigLIP-like tower, patches shuffled together, one matrix."""
    shape = siglip_tower(image)
    area = config.whole("scale_factor", low=1, high=64, default=2) ** 2
    return tower(shape, (merged("projector", shape.hidden_count * area, text_hidden, 1 / area, bias=False),))


def internvl(config: Config, image: Config, text_hidden: int) -> Stack:
    """InternVL: a tower with scales in each layer, patches shuffled together, a norm and two matrices."""
    hidden = image.width("hidden_size")
    biased = image.text("norm_type", default="layer_norm", allowed=("layer_norm", "rms_norm")) == "layer_norm"
    ratio = config.number("downsample_ratio", low=0.05, high=1.0, default=0.5)
    area = int(1 / ratio) ** 2
    absolute = image.flag("use_absolute_position_embeddings", default=True)
    shape = Tower(
        hidden_count=hidden,
        layers_count=image.layers("num_hidden_layers"),
        heads_count=image.heads("num_attention_heads"),
        inner_count=image.width("intermediate_size"),
        patch_inputs_count=patch_inputs(image),
        positions_count=patches_count(image) + 1 if absolute else 0,
        tokens_count=hidden,
        qkv_bias=image.flag("attention_bias", default=False),
        norm_biased=biased,
        layer_extra_count=2 * hidden + (2 * hidden if image.flag("use_qk_norm", default=False) else 0),
        outer_norms=0 if image.flag("use_mean_pooling", default=True) else 1,
    )
    wide = hidden * area
    parts = (
        merged("projector-1", wide, text_hidden, 1 / area),
        merged("projector-2", text_hidden, text_hidden, 1 / area),
    )
    return tower(shape, parts, 2 * wide)


def whisper_encoder(config: Config, sound: Config, text_hidden: int) -> Stack:
    """Qwen2-Audio: Whisper's encoder and one matrix on every second frame."""
    del config
    hidden, source = sound.width("d_model"), sound.whole("max_source_positions", low=1, high=MAX_TOKENS)
    convolutions: tuple[Linear, ...] = (
        linear("conv-1", "other", 3 * sound.width("num_mel_bins"), hidden, bias=True, rows_per_token=2.0),
        linear("conv-2", "other", 3 * hidden, hidden, bias=True),
        merged("projector", hidden, text_hidden, 1 / 2),
    )
    layers = (_whisper_layer(sound, hidden),) * sound.layers("encoder_layers")
    return stack("audio", hidden, layers, linears=convolutions, other_count=source * hidden + 2 * hidden)


def _whisper_layer(sound: Config, hidden: int) -> Layer:
    heads = sound.heads("encoder_attention_heads")
    width = sound.divides(heads, hidden, "encoder_attention_heads", "d_model")
    shape = Heads(
        hidden_count=hidden, heads_count=heads, kv_heads_count=heads, key_dim_count=width, value_dim_count=width
    )
    block = encoder_attention(shape)
    unbiased = tuple(replace(item, bias=False) if item.name == "k" else item for item in block.linears)
    inner = mlp(hidden, sound.width("encoder_ffn_dim"), gated=False, bias=True)
    return join((replace(block, linears=unbiased), inner), norm_parameters_count=4 * hidden, gated=False, rope=False)


def siglip(config: Config) -> Shell:
    """SigLIP: the image tower with its pooling head, beside a text column of the same make."""
    image = config.section("vision_config")
    shape = siglip_tower(image)
    pooled = shape.hidden_count, shape.inner_count
    if not config.has("architectures") or "SiglipModel" in config.items("architectures"):
        text = _siglip_text(config.section("text_config"))
        both = tower(shape, pooling_head(*pooled), 3 * shape.hidden_count)
        return replace(text, others=(both,), model_other_count=2, encoder_tokens=shape.positions_count)
    shell = image_model(config, shape, shape.positions_count)
    return replace(
        shell,
        linears=(*shell.linears, *pooling_head(*pooled)),
        other_count=shell.other_count + 3 * shape.hidden_count,
    )


def _siglip_text(config: Config) -> Shell:
    """SigLIP's text column: it sees everything; the last token goes through one matrix."""
    hidden, context = config.width("hidden_size"), config.whole("max_position_embeddings", low=1, high=MAX_TOKENS)
    heads = config.heads("num_attention_heads")
    width = config.divides(heads, hidden, "num_attention_heads", "hidden_size")
    shape = Heads(
        hidden_count=hidden, heads_count=heads, kv_heads_count=heads, key_dim_count=width, value_dim_count=width
    )
    inner = mlp(hidden, config.width("intermediate_size"), gated=False, bias=True)
    layer = join((encoder_attention(shape), inner), norm_parameters_count=4 * hidden, gated=False, rope=False)
    out = config.width("projection_size", default=hidden)
    return Shell(
        layers=(layer,) * config.layers("num_hidden_layers"),
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=True,
        role="encoder",
        linears=(linear("text-projection", "other", hidden, out, bias=True, rows_per_token=0.0),),
        other_count=context * hidden + 2 * hidden,
        headless=True,
        context_tokens=context,
    )
