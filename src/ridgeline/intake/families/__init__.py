"""The families of models that can be read: `model_type` of a configuration to the code that understands it."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.intake.families import multimodal as parts
from ridgeline.intake.families.audio import AUDIO_BUILDERS
from ridgeline.intake.families.decoder import decoder
from ridgeline.intake.families.dense import DENSE
from ridgeline.intake.families.encoder_decoder import ENCODER_DECODER_BUILDERS
from ridgeline.intake.families.encoders import ENCODER_BUILDERS
from ridgeline.intake.families.gemma4 import gemma4_text
from ridgeline.intake.families.hybrid import HYBRID_BUILDERS
from ridgeline.intake.families.kimi import kimi_linear
from ridgeline.intake.families.latent import LATENT_BUILDERS
from ridgeline.intake.families.minimax_m3 import minimax_m3
from ridgeline.intake.families.moe import MIXTURES, MOE_BUILDERS
from ridgeline.intake.families.multimodal_more import idefics3, internvl, paligemma, siglip, whisper_encoder
from ridgeline.intake.families.pyramids import PYRAMID_BUILDERS
from ridgeline.intake.families.rules import DecoderRules
from ridgeline.intake.families.rwkv import RWKV_BUILDERS
from ridgeline.intake.families.variants import VARIANTS
from ridgeline.intake.families.vision import VISION_BUILDERS
from ridgeline.intake.reader import Config
from ridgeline.intake.shell import Shell

Builder = Callable[[Config], Shell]


def _by_rules(rules: DecoderRules) -> Builder:
    return lambda config: decoder(config, rules)


TEXT: dict[str, Builder] = {
    **{name: _by_rules(rules) for name, rules in {**DENSE, **MIXTURES}.items()},
    **VARIANTS,
    **MOE_BUILDERS,
    **LATENT_BUILDERS,
    **HYBRID_BUILDERS,
    **RWKV_BUILDERS,
    "gemma4_text": gemma4_text,
    "kimi_linear": kimi_linear,
    "minimax_m3": minimax_m3,
    "qwen2_vl_text": _by_rules(DENSE["qwen2"]),
    "qwen2_5_vl_text": _by_rules(DENSE["qwen2"]),
    "qwen3_vl_text": _by_rules(DENSE["qwen3"]),
    "qwen3_vl_moe_text": _by_rules(MIXTURES["qwen3_moe"]),
    "glm4v_text": _by_rules(DENSE["glm4"]),
    "glm4v_moe_text": MOE_BUILDERS["glm4_moe"],
}


def _only(name: str, build: parts.TowerBuilder) -> Builder:
    return parts.composed(TEXT[name], build)


# LLaVA's published files leave out what equals the class defaults of its text part (transformers-5.24, Llama 7B).
LLAVA_TEXT = {
    "llama": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    },
    "mistral": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 32000,
    },
}

MULTIMODAL: dict[str, Builder] = {
    "qwen2_vl": _only("qwen2", parts.qwen2_vl),
    "qwen2_5_vl": _only("qwen2", parts.qwen2_5_vl),
    "qwen3_vl": _only("qwen3", parts.qwen3_vl),
    "qwen3_vl_moe": _only("qwen3_moe", parts.qwen3_vl),
    "qwen3_5": _only("qwen3_5_text", parts.qwen3_vl),
    "qwen3_5_moe": _only("qwen3_5_moe_text", parts.qwen3_vl),
    "glm4v": _only("glm4v_text", parts.glm4v),
    "glm4v_moe": _only("glm4v_moe_text", parts.glm4v),
    "gemma3": _only("gemma3_text", parts.gemma3_tower),
    "gemma4": _only("gemma4_text", parts.gemma4_tower),
    "llama4": _only("llama4_text", parts.llama4_tower),
    "kimi_k25": parts.composed({name: TEXT[name] for name in ("kimi_k2", "deepseek_v3")}, parts.moonvit),
    "kimi_k3": _only("kimi_linear", parts.moonvit_k3),
    "minimax_m3_vl": _only("minimax_m3", parts.minimax_m3_tower),
    "step3p7": _only("step3p5", parts.step_tower),
    "mistral3": parts.composed({name: TEXT[name] for name in ("mistral", "ministral3")}, parts.pixtral),
    "llava": parts.composed(TEXT, parts.llava, defaults=LLAVA_TEXT),
    "llava_next": parts.composed(TEXT, parts.llava, defaults=LLAVA_TEXT),
    "paligemma": parts.composed({name: TEXT[name] for name in ("gemma", "gemma2")}, paligemma),
    "idefics3": parts.composed(TEXT, idefics3),
    "smolvlm": parts.composed(TEXT, idefics3),
    "internvl": parts.composed(TEXT, internvl),
    "qwen2_audio": parts.composed(TEXT, whisper_encoder, vision="audio_config"),
    "siglip": siglip,
    "llava_onevision": parts.composed(TEXT, parts.llava),
    "phi3_v": parts.phi3_vision(TEXT["phi3"]),
}

BUILDERS: dict[str, Builder] = {
    **TEXT,
    **ENCODER_BUILDERS,
    **ENCODER_DECODER_BUILDERS,
    **VISION_BUILDERS,
    **PYRAMID_BUILDERS,
    **AUDIO_BUILDERS,
    **MULTIMODAL,
}
