"""Vision models on their own: ViT and its relatives, CLIP and SigLIP, Swin, ConvNeXt, ResNet.

An image classifier whose file gives no labels (or only the placeholder pair of the base class) has the 1000 classes
of ImageNet-1k, for which these families are published. A stack's tokens are the patches of one image; convolutional
models and later stages of pyramids have rows in proportion. Source: `transformers-5.24`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ridgeline.intake.blocks import attention, join, linear, mlp
from ridgeline.intake.families.decoder import heads_of
from ridgeline.intake.families.encoders import labels_count, task_of
from ridgeline.intake.families.towers import (
    Tower,
    clip_tower,
    outer_count,
    patch_embedding,
    patch_inputs,
    patches_count,
    pooling_head,
    siglip_tower,
    tower,
    tower_layers,
)
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell
from ridgeline.specs import Linear

IMAGENET_CLASSES = 1000


def classifier(config: Config, hidden: int, *, always: bool = True) -> Linear | None:
    """The matrix to the classes: one row an image; None for a bare model (`always`: convolutional families)."""
    if task_of(config) not in ("ImageClassification", "ImageClassificationWithTeacher") and not always:
        return None
    classes = labels_count(config, IMAGENET_CLASSES)
    return linear("classifier", "head", hidden, classes, bias=True, rows_per_token=0.0)


def image_model(config: Config, shape: Tower, tokens: int, *, pooler: bool = False) -> Shell:
    """A tower as the main stack, with its classifier or pooler."""
    head = classifier(config, shape.hidden_count, always=False)
    extra: tuple[Linear, ...] = ()
    if head is None and pooler and not task_of(config):
        extra = (linear("pooler", "other", shape.hidden_count, shape.hidden_count, bias=True, rows_per_token=0.0),)
    return Shell(
        layers=tower_layers(shape),
        hidden_count=shape.hidden_count,
        vocab_count=head.outputs_count if head else 0,
        role="vision",
        linears=(patch_embedding(shape), *extra),
        other_count=outer_count(shape),
        embedding_count=0,
        head=head,
        headless=head is None,
        encoder_tokens=tokens,
    )


def _plain_tower(config: Config, special: int) -> tuple[Tower, int]:
    """ViT's tower with `special` learned tokens, and its tokens an image."""
    hidden = config.width("hidden_size")
    heads = config.heads("num_attention_heads")
    config.divides(heads, hidden, "num_attention_heads", "hidden_size")
    patches = patches_count(config)
    shape = Tower(
        hidden_count=hidden,
        layers_count=config.layers("num_hidden_layers"),
        heads_count=heads,
        inner_count=config.width("intermediate_size"),
        patch_inputs_count=patch_inputs(config),
        positions_count=patches + special,
        tokens_count=special * hidden,
        qkv_bias=config.flag("qkv_bias", default=True),
        outer_norms=1,
    )
    return shape, patches + special


def vit(config: Config) -> Shell:
    """ViT: a class token, learned positions, a norm at the end."""
    shape, tokens = _plain_tower(config, 1)
    return image_model(config, shape, tokens, pooler=True)


def deit(config: Config) -> Shell:
    """DeiT: ViT with a distillation token; the distilled classifier has a second matrix."""
    shape, tokens = _plain_tower(config, 2)
    shell = image_model(config, shape, tokens, pooler=True)
    if task_of(config) == "ImageClassificationWithTeacher" and shell.head is not None:
        return replace(shell, linears=(*shell.linears, replace(shell.head, name="distilled-classifier")))
    return shell


def yolos(config: Config) -> Shell:
    """YOLOS: ViT with detection tokens and positions between layers; boxes and classes from two small MLPs."""
    detections = config.whole("num_detection_tokens", low=1, high=4096, default=100)
    shape, tokens = _plain_tower(config, 1 + detections)
    between = (shape.layers_count - 1) * tokens if config.flag("use_mid_position_embeddings", default=True) else 0
    shell = image_model(config, shape, tokens)
    hidden = shape.hidden_count
    heads: list[Linear] = []
    if task_of(config) == "ObjectDetection":
        share = detections / tokens
        classes = labels_count(config, 91) + 1
        for name, outputs in (("class", classes), ("box", 4)):
            widths = ((hidden, hidden), (hidden, hidden), (hidden, outputs))
            heads += [
                linear(f"{name}-{i}", "head", a, b, bias=True, rows_per_token=share) for i, (a, b) in enumerate(widths)
            ]
    elif not task_of(config):
        heads.append(linear("pooler", "other", hidden, hidden, bias=True, rows_per_token=0.0))
    return replace(shell, linears=(*shell.linears, *heads), other_count=shell.other_count + between * hidden)


def dinov2(config: Config) -> Shell:
    """DINOv2: a class token, scales in each layer; the classifier reads class token and mean patch."""
    hidden, patches = config.width("hidden_size"), patches_count(config)
    ratio = config.number("mlp_ratio", low=0.5, high=64, default=4.0)
    swiglu = config.flag("use_swiglu_ffn", default=False)
    inner = round(hidden * ratio)
    if swiglu:
        inner = (int(inner * 2 / 3) + 7) // 8 * 8
    masked = config.flag("use_mask_token", default=True)
    shape = Tower(
        hidden_count=hidden,
        layers_count=config.layers("num_hidden_layers"),
        heads_count=config.heads("num_attention_heads"),
        inner_count=inner,
        patch_inputs_count=patch_inputs(config),
        positions_count=patches + 1,
        tokens_count=(2 if masked else 1) * hidden,
        gated=swiglu,
        qkv_bias=config.flag("qkv_bias", default=True),
        outer_norms=1,
        layer_extra_count=2 * hidden,
    )
    shell = image_model(config, shape, patches + 1)
    if shell.head is None:
        return shell
    return replace(shell, head=replace(shell.head, inputs_count=2 * hidden))


def beit(config: Config) -> Shell:
    """BEiT: no key bias, scales in each layer, relative position tables where the file says so."""
    hidden, patches = config.width("hidden_size"), patches_count(config)
    layers, heads = config.layers("num_hidden_layers"), config.heads("num_attention_heads")
    absolute = config.flag("use_absolute_position_embeddings", default=False)
    side = round(patches**0.5)
    table = ((2 * side - 1) ** 2 + 3) * heads
    own = table if config.flag("use_relative_position_bias", default=False) else 0
    shared = table if config.flag("use_shared_relative_position_bias", default=False) else 0
    scales = 2 * hidden if config.number("layer_scale_init_value", default=0.1) > 0 else 0
    masked = config.flag("use_mask_token", default=False)
    shape = Tower(
        hidden_count=hidden,
        layers_count=layers,
        heads_count=heads,
        inner_count=config.width("intermediate_size"),
        patch_inputs_count=patch_inputs(config),
        positions_count=patches + 1 if absolute else 0,
        tokens_count=(2 if masked else 1) * hidden,
        key_bias=False,
        outer_norms=1,
        layer_extra_count=scales + own,
    )
    config.skip("vocab_size")
    shell = image_model(config, shape, patches + 1)
    return replace(shell, other_count=shell.other_count + shared)


def clip(config: Config) -> Shell:
    """CLIP: a causal text column (the main stack) and an image tower, each projected to a common width."""
    text = config.section("text_config", defaults=CLIP_TEXT)
    image = config.section("vision_config", defaults=CLIP_VISION)
    joint = config.width("projection_dim", default=512)
    shape = clip_tower(image)
    projection = linear("visual-projection", "other", shape.hidden_count, joint, rows_per_token=0.0)
    text_shell = clip_text(text)
    out = linear("text-projection", "other", text_shell.hidden_count, joint, rows_per_token=0.0)
    return replace(
        text_shell,
        linears=(out,),
        others=(tower(shape, (projection,)),),
        model_other_count=1,
        encoder_tokens=shape.positions_count,
    )


# Files of CLIP leave out what equals the class defaults of its two parts (transformers-5.24, ViT-B/32).
CLIP_TEXT = {
    "vocab_size": 49408,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
}
CLIP_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
}


def clip_text(config: Config) -> Shell:
    """CLIP's text column: causal, biased, learned positions, a norm at the end."""
    hidden, context = config.width("hidden_size"), config.context()
    if context is None:
        config.missing("max_position_embeddings")
    heads = heads_of(config, hidden, head_dim=False)
    parts = (
        attention(heads, qkv_bias=True, out_bias=True),
        mlp(hidden, config.width("intermediate_size"), gated=False, bias=True),
    )
    layer = join(parts, norm_parameters_count=4 * hidden, gated=False, rope=False)
    return Shell(
        layers=(layer,) * config.layers("num_hidden_layers"),
        hidden_count=hidden,
        vocab_count=config.vocab(),
        tied=True,
        role="encoder",
        other_count=context * hidden + 2 * hidden,
        headless=True,
        context_tokens=context,
    )


def clip_vision(config: Config) -> Shell:
    """CLIP's image tower alone."""
    shape = clip_tower(config)
    return image_model(config, shape, shape.positions_count)


def siglip_vision(config: Config) -> Shell:
    """SigLIP's image tower alone, with its attention pooling head."""
    shape = siglip_tower(config)
    hidden = shape.hidden_count
    shell = image_model(config, shape, shape.positions_count)
    if not config.flag("vision_use_head", default=True):
        return shell
    return replace(
        shell,
        linears=(*shell.linears, *pooling_head(hidden, shape.inner_count)),
        other_count=shell.other_count + 3 * hidden,
    )


VISION_BUILDERS: dict[str, Callable[[Config], Shell]] = {
    "vit": vit,
    "deit": deit,
    "yolos": yolos,
    "dinov2": dinov2,
    "beit": beit,
    "clip": clip,
    "clip_vision_model": clip_vision,
    "clip_text_model": clip_text,
    "siglip_vision_model": siglip_vision,
}
