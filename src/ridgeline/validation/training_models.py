"""The model of a training row: from its dimensions where it states them, else the public configuration by name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.catalog import Catalog
from ridgeline.intake import load_model, transformer_from_config
from ridgeline.specs import Linear, Transformer
from ridgeline.validation.corpus import Row

# Public configurations of the models that rows name without (all) dimensions, as catalogue ids.
MODEL_IDS: dict[str, str] = {
    "DeepSeek-V3": "deepseek-v3",
    "GPT-OSS-120B": "gpt-oss-120b",
    "GPT-OSS-20B": "gpt-oss-20b",
    "Kimi-K2": "kimi-k2",
    "Moonlight-16B-A3B": "moonlight-16b-a3b",
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Mixtral-8x7B": "mixtral-8x7b",
    "Mixtral-8x22B": "mixtral-8x22b",
    "Nemotron_3_Nano": "nemotron-3-nano-30b-a3b",
    "Nemotron-3-Nano-30B-A3B": "nemotron-3-nano-30b-a3b",
    "Nemotron V3 Nano 30B (26.02)": "nemotron-3-nano-30b-a3b",
    "Nemotron_3_Super": "nemotron-3-super-120b-a12b",
    "Nemotron V3 Super 120B (26.02)": "nemotron-3-super-120b-a12b",
    "T5-v1.1-small": "t5-v1.1-small",
    "T5-v1.1-large": "t5-v1.1-large",
    "T5-v1.1-xl": "t5-v1.1-xl",
    "T5-v1.1-xxl": "t5-v1.1-xxl",
}
# Dimensions of the NeMo and Megatron configurations that rows name but do not spell out
# (layers, hidden, heads, feed-forward width, vocabulary): nemo-gpt-configs.
NAMED_DIMS: dict[str, tuple[int, int, int, int, int]] = {
    "GPT-5B": (24, 4096, 32, 16384, 51200),
    "GPT-126M": (12, 768, 12, 3072, 51200),
    "GPT3-5B": (24, 4096, 32, 16384, 51200),
    "GPT3-20B": (44, 6144, 48, 24576, 51200),
    "GPT3-175B": (96, 12288, 96, 49152, 51200),
    "GPT-175B": (96, 12288, 96, 49152, 51200),
    "Nemotron-8B": (32, 4096, 32, 16384, 256000),
    "Nemotron-22B": (40, 6144, 48, 24576, 256000),
}
_VARIANT = re.compile(r" (LoRA|SFT|pre-training|fine-tuning)$| \(.*\)$")
_HEAD_DIM = re.compile(r"head_dim (\d+)")
# Share of positions that a masked-language head computes: at most 20 of 128 and 80 of 512 are predicted: bert-2018.
MASKED_SHARE = 0.156
DEFAULT_HEAD_DIM = 128  # the head size of GPT-3-like models, where only the width is stated


@dataclass(frozen=True, slots=True)
class RowModel:
    """A model made for a row, with what had to be filled; `model` is None where `reason` says why it cannot be made."""

    model: Transformer | None
    fills: tuple[str, ...] = ()
    reason: str = ""
    trainable_frac: float = 1.0


def row_model(row: Row, catalog: Catalog) -> RowModel:
    """The model of a training row."""
    family, name = row.text("family"), _VARIANT.sub("", row.text("model"))
    if family in ("cnn", "diffusion"):
        return RowModel(None, reason=f"layer graph of {row.text('model')!r} not known")
    trainable_frac = 0.0 if row.text("model").endswith(" LoRA") else 1.0
    if family == "bert":
        return _bert(row)
    if family == "vit":
        return _vit(row)
    if row.text("model") in MODEL_IDS or name in MODEL_IDS:
        key = MODEL_IDS.get(row.text("model")) or MODEL_IDS[name]
        return RowModel(load_model(key, catalog), (f"dims of the public configuration {key}",), "", trainable_frac)
    made = _decoder(row, name)
    return replace(made, trainable_frac=trainable_frac)


def _decoder(row: Row, name: str) -> RowModel:
    """A dense or mixture decoder from stated dimensions; what is blank comes from the named configuration."""
    fills: list[str] = []
    named = NAMED_DIMS.get(name)
    hidden = row.count("hidden") or (named[1] if named else None)
    if hidden is None:
        return RowModel(None, reason="dimensions not stated and no public configuration known")
    vocab = row.count("vocab") or (named[4] if named else None)
    if vocab is None:
        vocab = 51200
        fills.append("vocabulary 51200 (padded GPT-2) assumed")
    layers = row.count("layers") or (named[0] if named else None) or _layers_from_size(row, hidden, vocab)
    if layers is None:
        return RowModel(None, reason="number of layers not stated and not implied by the size")
    if not row.count("layers"):
        fills.append(f"{layers} layers from the stated size" if named is None else "dims of the named configuration")
    heads = row.count("heads") or (named[2] if named else None)
    if heads is None:
        heads = max(1, hidden // DEFAULT_HEAD_DIM)
        while hidden % heads:
            heads -= 1
        fills.append(f"{heads} heads assumed (head size {hidden // heads})")
    ffn = row.count("ffn_hidden") or (named[3] if named else None)
    if ffn is None:
        ffn = 4 * hidden
        fills.append("feed-forward width of four times the hidden width assumed")
    dims = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": row.count("kv_heads") or heads,
        "ffn": ffn,
        "vocab": vocab,
        "sequence": row.count("seq_len") or 2048,
        "experts": row.count("experts"),
        "topk": row.count("topk"),
        "head_dim": int(found.group(1)) if (found := _HEAD_DIM.search(row.text("note"))) else None,
    }
    return RowModel(_closest(dims, row), tuple(fills))


def _closest(dims: Mapping[str, Any], row: Row) -> Transformer:
    """Gated or plain feed-forward, tied or separate embeddings: whichever comes closest to the stated size."""
    choices = [
        transformer_from_config(config, id=row.text("model"), where=f"line {row.line}")
        for config in decoder_configs(dims)
    ]
    size = row.number("params_b")
    if size is None:
        return choices[0]
    return min(choices, key=lambda model: abs(math.log(model.parameters_count / (size * 1e9))))


def decoder_configs(dims: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidate configurations with the given dimensions, in the keys of public ones."""
    common: dict[str, Any] = {
        "hidden_size": dims["hidden"],
        "num_hidden_layers": dims["layers"],
        "num_attention_heads": dims["heads"],
        "num_key_value_heads": dims["kv_heads"],
        "intermediate_size": dims["ffn"],
        "vocab_size": dims["vocab"],
        "max_position_embeddings": max(2048, dims["sequence"]),
        "tie_word_embeddings": False,
    }
    if dims["head_dim"]:
        common["head_dim"] = dims["head_dim"]
    if dims["experts"]:
        mixture = {"num_local_experts": dims["experts"], "num_experts_per_tok": dims["topk"] or 2}
        return [{"model_type": "mixtral", **common, **mixture}]
    gated = {"model_type": "llama", **common, "hidden_act": "silu"}
    plain = {"model_type": "nemotron", **common, "hidden_act": "relu2"}
    if dims["kv_heads"] != dims["heads"] or dims["head_dim"]:
        return [gated, plain]
    gpt = {
        "model_type": "gpt2",
        "n_embd": dims["hidden"],
        "n_layer": dims["layers"],
        "n_head": dims["heads"],
        "n_inner": dims["ffn"],
        "vocab_size": dims["vocab"],
        "n_positions": max(2048, dims["sequence"]),
        "tie_word_embeddings": True,
    }
    return [gpt, gated, plain] if dims["ffn"] >= 4 * dims["hidden"] else [gated, gpt]


def _layers_from_size(row: Row, hidden: int, vocab: int) -> int | None:
    """Layers that the stated parameter count implies for a GPT: N = V h + 12 L h^2 (narayanan-2021, equation 2)."""
    size = row.number("params_b")
    if size is None:
        return None
    exact = (size * 1e9 - vocab * hidden) / (12 * hidden**2)
    layers = round(exact)
    return layers if layers >= 1 and abs(exact - layers) / layers < 0.02 else None


def _bert(row: Row) -> RowModel:
    config = {
        "model_type": "bert",
        "hidden_size": row.count("hidden") or 1024,
        "num_hidden_layers": row.count("layers") or 24,
        "num_attention_heads": row.count("heads") or 16,
        "intermediate_size": row.count("ffn_hidden") or 4096,
        "vocab_size": row.count("vocab") or 30522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }
    model = transformer_from_config(config, id=row.text("model"), where=f"line {row.line}")
    if "SQuAD" in row.text("model"):
        return RowModel(model)
    head = Linear(
        name="masked-language head",
        role="head",
        inputs_count=model.hidden_count,
        outputs_count=model.vocab_count,
        rows_per_token=MASKED_SHARE,
    )
    return RowModel(replace(model, head=head, tied_embeddings=True), ("masked-language head on 15.6 % of positions",))


_PATCH = re.compile(r"patch(\d+)_(\d+)|/(\d+)$")


def vit_tokens(row: Row) -> int | None:
    """Tokens of a vision transformer from the patch and image size in its name (224 pixels where only the patch is)."""
    found = _PATCH.search(row.text("model"))
    if found is None:
        return 197 if "ViT-Base" in row.text("model") else None
    patch = int(found.group(1) or found.group(3))
    image = int(found.group(2) or 224)
    return (image // patch) ** 2 + 1


def _vit(row: Row) -> RowModel:
    tokens, layers, hidden = vit_tokens(row), row.count("layers"), row.count("hidden")
    if tokens is None or layers is None or hidden is None:
        return RowModel(None, reason="vision transformer without stated dimensions")
    patch = next(int(g) for g in (_PATCH.search(row.text("model") + "/16") or [16]).groups() if g)  # type: ignore[union-attr]
    config = {
        "model_type": "vit",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": row.count("heads") or max(1, hidden // 64),
        "intermediate_size": row.count("ffn_hidden") or 4 * hidden,
        "image_size": round(math.sqrt(tokens - 1)) * patch,
        "patch_size": patch,
        "num_channels": 3,
        "num_labels": 1000,
    }
    return RowModel(transformer_from_config(config, id=row.text("model"), where=f"line {row.line}"))
