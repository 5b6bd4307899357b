"""Questions that people asked in public, asked as they would be here: a scenario, and what its answer says.

Expected values are those of the threads named, or what their own figures give.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ridgeline
from ridgeline.errors import NoFeasiblePlan
from ridgeline.scenario import PlanAnswer

GIB = 2.0**30


def train(model: str, system: str, devices: int, batch: int, sequence: int = 2048, **more: Any) -> PlanAnswer:
    folders = more.pop("folders", ())
    job = {"tokens": 1e3 * batch * sequence, "sequence": sequence, "global_batch": batch, **more}
    candidates = [{"system": system, "devices": devices}]
    return ridgeline.plan({"workload": {"model": model, "train": job}, "candidates": candidates}, catalog=folders)


def serve(model: str, system: str, devices: int, **more: Any) -> PlanAnswer:
    load = {"input": 512, "output": 64, "concurrency": 1, **more}
    candidates = [{"system": system, "devices": devices}]
    return ridgeline.plan({"workload": {"model": model, "serve": load}, "candidates": candidates})


def value(tree: dict[str, Any], *path: str) -> float:
    """The value of the part at `path` of a tree of the answer."""
    for name in path:
        tree = next(part for part in tree["parts"] if part["name"] == name)
    return float(tree["value"])


def remarks(answer: PlanAnswer) -> str:
    return "\n".join(note.text for note in answer.rows[0].notes)


STATES = ("weights", "gradients", "master weights", "optimizer moments")


def test_case_37_llama_3_70b_on_16_devices_of_80_gb_is_at_the_edge() -> None:
    """70 GB of states on each of 16 devices went out of memory; 32 devices have 35 GB each (InternLM/xtuner#842)."""
    sharded = {"sharding": "zero3", "tensor": 1, "pipeline": 1, "micro_batch": 1}
    sixteen, thirty_two = (train("llama-3-70b", "dgx-a100", n, n, **sharded) for n in (16, 32))
    for answer, states in ((sixteen, 70.6e9), (thirty_two, 35.3e9)):
        memory = answer.rows[0].to_dict()["memory"]
        assert sum(value(memory, name) for name in STATES) == pytest.approx(states, rel=2e-3)
    assert "memory is tight" in remarks(sixteen)
    assert "memory is tight" not in remarks(thirty_two)


def test_case_38_a_13b_model_needs_four_devices_of_80_gb() -> None:
    """156 GB of master weights and moments alone (Alpha-VLLM/LLaMA2-Accessory#26)."""
    sharded = {"sharding": "zero3", "tensor": 1, "pipeline": 1}
    with pytest.raises(NoFeasiblePlan, match="out of memory"):
        train("llama-2-13b", "dgx-a100", 2, 4, **sharded)
    memory = train("llama-2-13b", "dgx-a100", 4, 4, **sharded).rows[0].to_dict()["memory"]
    assert 4 * (value(memory, "master weights") + value(memory, "optimizer moments")) == pytest.approx(156e9, rel=2e-3)


def test_case_44_what_is_kept_for_the_backward_pass_fills_the_device() -> None:
    """About 60 GiB of activations of a 14B model without checkpointing; checkpointing cures it (Automodel PR 2634)."""
    asked = {"sharding": "zero3", "tensor": 1, "pipeline": 1, "context": 1, "micro_batch": 1}
    with pytest.raises(NoFeasiblePlan, match="out of memory"):
        train("phi-4", "dgx-h100", 8, 8, 8192, recompute="none", **asked)
    again = train("phi-4", "dgx-h100", 8, 8, 8192, recompute="full", **asked).rows[0].to_dict()["memory"]
    assert value(again, "activations") < 8 * GIB


@pytest.mark.parametrize(
    ("model", "system", "devices", "precision", "weights", "room"),
    [
        # ollama#10546: 18.5 GB of a 30B-A3B at 4.85 bits and its cache do not fit what 3 B would fit.
        ("qwen3-30b-a3b", "rtx-4070-1", 1, "q4_k_m", 18.5e9, False),
        ("qwen3-30b-a3b", "rtx-4090-2", 1, "q4_k_m", 18.5e9, True),
        # metaseq#100: 350 GB of weights on 8 x 40 GB, and on 8 x 80 GB.
        ("opt-175b", "dgx-a100-40", 8, "fp16", 350e9, False),
        ("opt-175b", "dgx-a100", 8, "fp16", 350e9, True),
        # huggingface-inferentia2-samples#12: 141 GB on four chips of 32 GB, and on twelve.
        ("llama-3-70b", "inf2-48xlarge", 4, "bf16", 141e9, False),
        ("llama-3-70b", "inf2-48xlarge", 8, "bf16", 141e9, True),
    ],
)
def test_cases_56_65_73_weights_must_be_resident(
    model: str, system: str, devices: int, precision: str, weights: float, room: bool
) -> None:
    asked = {"precision": precision, "tensor": devices, **({"engine": "llama-cpp"} if "q4" in precision else {})}
    if not room:
        with pytest.raises(NoFeasiblePlan, match="do not fit"):
            serve(model, system, devices, **asked)
        return
    memory = serve(model, system, devices, **asked).rows[0].to_dict()["memory"]
    assert value(memory, "weights") * devices == pytest.approx(weights, rel=0.05)


def test_case_49_a_context_that_one_of_eight_attention_ranks_can_hold() -> None:
    """Qwen3-Coder-480B, FP8, data-parallel attention on eight devices of 141 GB: 205,728 tokens fit, 262,144 (62 GiB)
    do not (vllm-project/recipes PR 12)."""
    asked = {"precision": "fp8", "engine": "vllm", "tensor": 8, "expert": 8, "attention_data": 8, "concurrency": 8}
    fits = serve("qwen3-coder-480b-a35b", "dgx-h200", 8, input=205_000, output=728, **asked)
    assert "attention-dp8" in fits.rows[0].layout
    assert 205_728 < fits.rows[0].to_dict()["cache_tokens_count"] / 8 < 262_144
    with pytest.raises(NoFeasiblePlan, match="too small for one request of 262,144 tokens"):
        serve("qwen3-coder-480b-a35b", "dgx-h200", 8, input=262_000, output=144, **asked)


def test_case_67_concurrency_from_the_pool_of_eight_l40s() -> None:
    """About 320 KB a token of Llama-3-70B (fhalde.github.io/posts/sizing); how many sequences fit (vllm#8031)."""
    answer = serve("llama-3-70b", "l40s-8", 8, input=1000, output=500, tensor=8, replicas=1, engine="vllm")
    row = answer.rows[0].to_dict()
    pool = 8 * value(row["memory"], "key-value pool")
    assert row["cache_tokens_count"] == pytest.approx(pool / 327_680, rel=0.02)  # whole blocks
    assert 0.9 < row["max_running_count"] / min(256, row["cache_tokens_count"] / 1250) <= 1.0


@pytest.mark.parametrize(("model", "measured"), [("llama-2-7b", 22.5), ("llama-2-13b", 13.3), ("llama-2-70b", 3.0)])
def test_case_70_four_bits_on_orin(model: str, measured: float) -> None:
    """22.5, 13.3, 3.0 tokens/s; 1.53 of the 7B was a build for the processor (holohub#170)."""
    found = serve(model, "jetson-agx-orin-64-1", 1, input=64, output=128, engine="llama-cpp", precision="q4_k")
    rate = found.rows[0].to_dict()["output_tokens_per_s"]
    assert 0.5 < measured / rate["best"] < 1.2
    assert rate["low"] > 1.53


@pytest.mark.parametrize(("system", "room"), [("g5-12xlarge", False), ("l40s-8", True)])
def test_case_40_frozen_four_bit_weights_of_70b_are_whole_on_every_rank(system: str, room: bool) -> None:
    """Four devices of 24 GB are not one of 96: at least 48 GB a device (hiyouga/LlamaFactory#4559)."""
    asked = {"sharding": "zero2", "tensor": 1, "pipeline": 1, "trainable": 0.002, "frozen": "int4_g128"}
    if not room:
        with pytest.raises(NoFeasiblePlan, match="out of memory"):
            train("llama-2-70b", system, 4, 4, 1024, **asked)
        return
    memory = train("llama-2-70b", system, 4, 4, 1024, **asked).rows[0].to_dict()["memory"]
    ends = 2 * 2 * 32_000 * 8192
    assert value(memory, "weights") == pytest.approx(ends + (68.98e9 - ends / 2) * 4.125 / 8, rel=1e-2)


def test_case_25_a_run_of_61_layers_in_a_pipeline_of_16() -> None:
    """DeepSeek-V3: 14.8 T tokens in 2.79 M H800 hours, sequences of 4,096, 15,360 at once, pipeline of 16 and 64-way
    experts (jax-ml/scaling-book#31). An H100 has the H800's arithmetic and twice its NVLink."""
    found = train("deepseek-v3", "dgx-h100", 2048, 15_360, 4096, precision="fp8")
    row = found.rows[0].to_dict()
    assert row["plan"]["pipeline_count"] % 2 == 0
    hours = 14.8e12 / row["tokens_per_s"] * 2048 / 3600
    assert 0.5 < hours / 2.79e6 < 1.1
    as_published = train(
        "deepseek-v3", "dgx-h100", 2048, 15_360, 4096, precision="fp8", pipeline=16, expert=64, tensor=1
    )
    assert as_published.rows[0].to_dict()["step_s"]["best"] >= row["step_s"]["best"]


CONVNEXT_TINY = {
    "model_type": "convnext",
    "architectures": ["ConvNextForImageClassification"],
    "depths": [3, 3, 9, 3],
    "hidden_sizes": [96, 192, 384, 768],
    "image_size": 224,
    "patch_size": 4,
    "num_channels": 3,
    "layer_scale_init_value": 1e-6,
}


@pytest.mark.parametrize(
    ("model", "measured"), [("resnet-50", 1218.0), ("convnext-tiny", 819.2), ("vit-base-16", 393.0)]
)
def test_vision_models_train_at_the_rate_of_their_stages(model: str, measured: float, tmp_path: Path) -> None:
    """Images a second on one RTX 3090 with PyTorch 1.12 and mixed precision (timm's train benchmark of 2022): norms and
    residuals of a stage work on its own width and rows, not on the widest stage's."""
    if model == "convnext-tiny":
        (tmp_path / "config.json").write_text(json.dumps(CONVNEXT_TINY))
        model = str(tmp_path / "config.json")
    asked = {"precision": "fp16", "software": "pytorch-ddp-1.12", "sharding": "none"}
    row = train(model, "rtx-3090-2", 1, 64, 1, **asked).rows[0].to_dict()
    assert 0.5 < 64 / row["step_s"]["best"] / measured < 1.5
