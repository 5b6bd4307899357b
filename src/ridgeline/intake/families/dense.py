"""Families of dense decoders with plain softmax attention, as a table of rules.

Source of every entry: the modelling code of the family in `transformers-5.24`, or the code that the model's own
repository carries for those marked "own code". Counts of published models in tests/reference confirm them.
"""

from __future__ import annotations

from dataclasses import replace

from ridgeline.intake.families import patterns
from ridgeline.intake.families.rules import DecoderRules

_TIED = ("tie_word_embeddings", True)
_ATTENTION_BIAS = ("attention_bias", False)
_LLAMA = DecoderRules(qkv_bias=_ATTENTION_BIAS, out_bias=_ATTENTION_BIAS, mlp_bias=("mlp_bias", False))
_PLAIN = DecoderRules()
_QWEN2 = DecoderRules(qkv_bias=True, windows=patterns.switched)
_QWEN3 = DecoderRules(
    qkv_bias=_ATTENTION_BIAS, out_bias=_ATTENTION_BIAS, query_key_norm="head", windows=patterns.switched
)
_GEMMA = DecoderRules(qkv_bias=_ATTENTION_BIAS, out_bias=_ATTENTION_BIAS, tied=_TIED)
_GEMMA2 = replace(_GEMMA, norms_count=4, windows=patterns.alternating, defaults={"sliding_window": 4096})
# Gemma 3's published files leave out what equals its class defaults, so these are part of the format.
_GEMMA3 = replace(
    _GEMMA,
    norms_count=4,
    query_key_norm="head",
    windows=patterns.global_every(6),
    defaults={
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
)
_GPT2 = DecoderRules(
    norm="layer",
    gated=False,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    tied=_TIED,
    head_dim=False,
    rope=False,
    ffn_multiple=4,
    positions_offset=0,
)
_GPTJ = DecoderRules(
    norm="layer", norms_count=1, gated=False, mlp_bias=True, head_bias=True, head_dim=False, ffn_multiple=4
)
_PHI = DecoderRules(
    norm="layer",
    norms_count=1,
    gated=False,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    head_bias=True,
    query_key_norm="head-bias",
    query_key_switch=("qk_layernorm", False),
    head_dim=False,
    ffn_multiple=4,
)
_GLM = DecoderRules(qkv_bias=("attention_bias", True))

DENSE: dict[str, DecoderRules] = {
    "llama": _LLAMA,
    "mistral": replace(_PLAIN, windows=patterns.every_layer, defaults={"sliding_window": 4096}),
    "ministral": replace(_PLAIN, windows=patterns.every_layer),
    "ministral3": _PLAIN,
    "qwen2": _QWEN2,
    "qwen3": _QWEN3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "phi": _PHI,
    "phi-msft": _PHI,  # own code
    "phi3": replace(_PLAIN, windows=patterns.every_layer),
    "cohere": DecoderRules(
        norm="layer-no-bias",
        norms_count=1,
        qkv_bias=_ATTENTION_BIAS,
        out_bias=_ATTENTION_BIAS,
        query_key_norm="full",
        query_key_switch=("use_qk_norm", False),
        tied=_TIED,
    ),
    "cohere2": DecoderRules(
        norm="layer-no-bias",
        norms_count=1,
        qkv_bias=_ATTENTION_BIAS,
        out_bias=_ATTENTION_BIAS,
        tied=_TIED,
        windows=patterns.global_every(4),
        defaults={"sliding_window": 4096},
    ),
    # chowdhery-2022-palm, section 2: parallel layers, no biases, one key-value head, tied embeddings.
    "palm": DecoderRules(norm="layer-no-bias", norms_count=1, tied=_TIED),
    "olmo": DecoderRules(norm="none", qkv_bias=_ATTENTION_BIAS, out_bias=_ATTENTION_BIAS),
    "olmo2": DecoderRules(qkv_bias=_ATTENTION_BIAS, out_bias=_ATTENTION_BIAS, query_key_norm="full"),
    "olmo3": DecoderRules(
        qkv_bias=_ATTENTION_BIAS,
        out_bias=_ATTENTION_BIAS,
        query_key_norm="full",
        windows=patterns.global_every(4),
        defaults={"sliding_window": 4096},
    ),
    "granite": replace(_LLAMA, tied=("tie_word_embeddings", False)),
    "exaone": _PLAIN,
    "exaone4": DecoderRules(query_key_norm="head", windows=patterns.global_every(4), defaults={"sliding_window": 4096}),
    "internlm": DecoderRules(qkv_bias=("bias", True), out_bias=("bias", True)),  # own code
    "internlm2": DecoderRules(qkv_bias=("bias", False), out_bias=("bias", False)),  # own code
    "internlm3": DecoderRules(qkv_bias=("qkv_bias", False), out_bias=("bias", False), mlp_bias=("bias", False)),
    "baichuan": _PLAIN,  # own code
    "glm": _GLM,
    "glm4": replace(_GLM, norms_count=4),
    "minicpm": replace(_PLAIN, tied=_TIED),  # own code
    "stablelm": DecoderRules(
        norm="layer",
        qkv_bias=("use_qkv_bias", False),
        query_key_norm="full",
        query_key_switch=("qk_layernorm", False),
    ),
    "starcoder2": DecoderRules(
        norm="layer",
        gated=False,
        qkv_bias=("use_bias", True),
        out_bias=("use_bias", True),
        mlp_bias=("use_bias", True),
        tied=_TIED,
        windows=patterns.every_layer,
    ),
    "gpt2": _GPT2,
    "gptj": _GPTJ,
    "codegen": _GPTJ,
    "gpt_neo": replace(_GPT2, qkv_bias=False, windows=patterns.local_pairs),
    "gpt_neox": DecoderRules(
        norm="layer",
        gated=False,
        qkv_bias=("attention_bias", True),
        out_bias=("attention_bias", True),
        mlp_bias=True,
        head_dim=False,
    ),
    "bloom": replace(_GPT2, positions_offset=None, embedding_norm=True),
    "persimmon": DecoderRules(
        norm="layer",
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        query_key_norm="head-bias",
        query_key_switch=("qk_layernorm", True),
    ),
    "nemotron": DecoderRules(
        norm="layer",
        gated=False,
        qkv_bias=_ATTENTION_BIAS,
        out_bias=_ATTENTION_BIAS,
        mlp_bias=("mlp_bias", False),
    ),
    "smollm3": replace(_LLAMA, tied=_TIED, windows=patterns.switched),
    "seed_oss": DecoderRules(
        qkv_bias=("attention_bias", True), out_bias=("attention_out_bias", False), mlp_bias=("mlp_bias", False)
    ),
    "arcee": replace(_LLAMA, gated=False),
    "helium": DecoderRules(qkv_bias=_ATTENTION_BIAS, mlp_bias=("mlp_bias", False)),
    "ernie4_5": DecoderRules(
        qkv_bias=("use_bias", False), out_bias=("use_bias", False), mlp_bias=("use_bias", False), tied=_TIED
    ),
    "hunyuan_v1_dense": replace(_LLAMA, query_key_norm="head", query_key_switch=("use_qk_norm", True)),
    "orion": DecoderRules(norm="layer", qkv_bias=_ATTENTION_BIAS, out_bias=_ATTENTION_BIAS),  # own code
    "xverse": _PLAIN,  # own code
    "aquila": _LLAMA,  # own code
    "Yi": _LLAMA,  # own code, of early files
}
