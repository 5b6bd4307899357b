"""Quantised checkpoints: formats by role, exceptions by matrix, and counts that do not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.intake import load_model, transformer_from_config
from ridgeline.specs import Transformer
from ridgeline.workload.parameters import weight_bytes

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 128,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}
MOE: dict[str, Any] = {**LLAMA, "model_type": "qwen3_moe", "head_dim": 8, "num_experts": 8, "num_experts_per_tok": 2}
MOE |= {"moe_intermediate_size": 32}
NVFP4 = {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}
INT4 = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "targets": ["Linear"]}


def read(config: dict[str, Any], recipe: dict[str, Any] | None = None) -> Transformer:
    whole = config if recipe is None else {**config, "quantization_config": recipe}
    return transformer_from_config(whole, id="m", where="x")


@pytest.mark.parametrize(
    ("config", "recipe", "expected"),
    [
        (LLAMA, {"quant_method": "fp8"}, {"attention": "fp8", "mlp": "fp8"}),
        (LLAMA, {"quant_method": "gptq", "bits": 4, "group_size": 128}, {"attention": "int4_g128", "mlp": "int4_g128"}),
        (LLAMA, {"quant_method": "awq", "bits": 4, "group_size": 32}, {"attention": "int4_g32", "mlp": "int4_g32"}),
        (LLAMA, {"quant_method": "gptq", "bits": 8, "group_size": -1}, {"attention": "int8", "mlp": "int8"}),
        (LLAMA, {"quant_method": "bitsandbytes", "load_in_4bit": True}, {"attention": "nf4", "mlp": "nf4"}),
        (LLAMA, {"quant_algo": "FP8", "ignore": ["lm_head"]}, {"attention": "fp8", "mlp": "fp8"}),
        (MOE, {"quant_method": "mxfp4"}, {"expert": "mxfp4"}),
        (
            MOE,
            {"quant_method": "compressed-tensors", "config_groups": {"g": INT4}, "ignore": ["re:.*self_attn.*"]},
            {"expert": "int4_g32"},
        ),
        (
            MOE,
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "config_groups": {"g": NVFP4}, "ignore": ["lm_head"]},
            {"attention": "nvfp4", "expert": "nvfp4"},
        ),
    ],
)
def test_recipes_set_the_formats_of_roles(config: dict[str, Any], recipe: dict[str, Any], expected: Any) -> None:
    model = read(config, recipe)
    assert dict(model.precisions) == {"default": "bf16", **expected}
    assert model.parameters_count == read(config).parameters_count
    assert weight_bytes(model, "bf16") < weight_bytes(read(config), "bf16")


def test_layers_left_out_keep_the_wide_format_one_by_one() -> None:
    recipe = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.0*"]}
    model = read(LLAMA, recipe)
    assert [run.repeat_count for run in model.main.runs] == [1, 3]
    assert {item.precision for item in model.main.runs[0].layer.linears} == {"bf16"}
    assert {item.precision for item in model.main.runs[1].layer.linears} == {""}


def test_mixed_recipes_name_modules() -> None:
    listed = {f"model.layers.{i}.mlp.experts.{e}.{w}" for i in range(4) for e in range(8) for w in ("up_proj",)}
    listed |= {name.replace("up_proj", other) for name in listed for other in ("gate_proj", "down_proj")}
    recipe = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            **{name: {"quant_algo": "NVFP4"} for name in listed},
            **{f"model.layers.{i}.self_attn.{p}_proj": {"quant_algo": "FP8"} for i in range(4) for p in "qkvo"},
        },
    }
    assert dict(read(MOE, recipe).precisions) == {"default": "bf16", "attention": "fp8", "expert": "nvfp4"}


def test_plain_names_match_whole_parts_only() -> None:
    model = read(MOE, {"quant_method": "fp8", "modules_to_not_convert": ["gate", "lm_head", "self_attn.q_proj"]})
    first = {
        item.name: item.precision or model.precisions.get(item.role, "bf16")
        for item in model.main.runs[0].layer.linears
    }
    assert first == {
        "q": "bf16",
        "k": "fp8",
        "v": "fp8",
        "o": "fp8",
        "router": "bf16",
        "expert-gate": "fp8",
        "expert-up": "fp8",
        "expert-down": "fp8",
    }


def test_bytes_by_hand() -> None:
    """Matrices of the layers at one byte, everything else at two."""
    model = read(LLAMA, {"quant_method": "fp8"})
    matrices = 4 * (4 * 64 * 64 + 3 * 64 * 128)
    rest = model.parameters_count - matrices
    assert weight_bytes(model, "bf16") == matrices + 2 * rest


def test_a_recipe_beside_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    recipe = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(recipe))
    model = load_model(str(tmp_path), load_catalog(plugins=False))
    assert dict(model.precisions) == {"default": "bf16", "attention": "fp8", "mlp": "fp8"}
    assert model.id == tmp_path.name


def test_experts_beside_an_mlp_are_other_modules_than_the_mlp() -> None:
    config = {
        **LLAMA,
        "model_type": "gemma4_text",
        "head_dim": 8,
        "global_head_dim": 16,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
    }
    ignore = ["lm_head", "model.layers.*.mlp*", "model.layers.*.self_attn*", "model.layers.*.router*"]
    recipe = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignore}
    assert dict(read(config, recipe).precisions) == {"default": "bf16", "expert": "nvfp4"}
