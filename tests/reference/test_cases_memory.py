"""Questions of people whose training job did or did not fit, asked as they would be here.

Whether it fits, and the figures that the threads name, are those of the threads.
"""

from __future__ import annotations

from typing import Any

import pytest

import ridgeline
from ridgeline.errors import NoFeasiblePlan
from ridgeline.units import parse
from ridgeline.workload.memory import logits_bytes

GIB = 2.0**30
STATES = ("weights", "gradients", "master weights", "optimizer moments")


def memory_of(model: str, system: str, devices: int, sequence: int = 2048, **job: Any) -> dict[str, float]:
    """Memory of one device by part [bytes], with the whole under "total", as `ridgeline train` prints it."""
    asked = {"tokens": 1e3 * devices * sequence, "sequence": sequence, "global_batch": devices, **job}
    candidates = [{"system": system, "devices": devices}]
    answer = ridgeline.plan({"workload": {"model": model, "train": asked}, "candidates": candidates})
    tree = answer.rows[0].to_dict()["memory"]
    return {"total": float(tree["value"]), **{part["name"]: float(part["value"]) for part in tree["parts"]}}


def refused(model: str, system: str, devices: int, sequence: int = 2048, **job: Any) -> str:
    """What is said of a job that does not fit."""
    with pytest.raises(NoFeasiblePlan, match="out of memory") as told:
        memory_of(model, system, devices, sequence, **job)
    return str(told.value)


SHARDED: dict[str, Any] = {"sharding": "zero3", "tensor": 1, "pipeline": 1, "micro_batch": 1}


@pytest.mark.parametrize("software", ["deepspeed", "pytorch-fsdp"])
def test_case_37_a_70b_model_needs_32_devices_of_80_gb(software: str) -> None:
    """70 GB of states alone on each of 16 devices: out of memory; 35 GB on each of 32 (InternLM/xtuner#842)."""
    assert "a100-sxm4-80" in refused("llama-3-70b", "dgx-a100", 16, software=software, **SHARDED)
    memory = memory_of("llama-3-70b", "dgx-a100", 32, software=software, **SHARDED)
    assert sum(memory.get(name, 0.0) for name in STATES) == pytest.approx(35.3e9, rel=2e-3)


@pytest.mark.parametrize("software", ["deepspeed", "pytorch-fsdp", "megatron-core"])
def test_case_38_a_13b_model_needs_four_devices_of_80_gb(software: str) -> None:
    """156 GB of master weights and moments do not fit two devices (Alpha-VLLM/LLaMA2-Accessory#26)."""
    refused("llama-2-13b", "dgx-a100", 2, software=software, **SHARDED)
    memory = memory_of("llama-2-13b", "dgx-a100", 4, software=software, **SHARDED)
    assert 4 * (memory["master weights"] + memory["optimizer moments"]) == pytest.approx(156e9, rel=2e-3)


def test_case_40_frozen_weights_are_whole_on_every_data_rank() -> None:
    """Four devices of 24 GB are not one of 96: a 70B in 4 bit asks for 48 GB on each (hiyouga/LlamaFactory#4559)."""
    adapters = {"tensor": 1, "pipeline": 1, "micro_batch": 1, "adapter_rank": 16, "frozen": "int4"}
    refused("llama-3-70b", "g5-12xlarge", 4, 1024, sharding="zero2", **adapters)
    one, two = (memory_of("llama-3-70b", "a40-8", n, 1024, sharding="none", **adapters) for n in (1, 2))
    assert one["weights"] == two["weights"] > 24e9


def test_case_41_states_of_70b_in_mixed_precision() -> None:
    """16 bytes a parameter are 1.13 TB, not 300 or 500 GB (huggingface/blog#2245)."""
    memory = memory_of("llama-3-70b", "dgx-h100", 64, software="deepspeed", **SHARDED)
    assert 64 * sum(memory[name] for name in STATES) == pytest.approx(1.13e12, rel=2e-3)


def test_case_43_fp32_logits_of_a_large_vocabulary() -> None:
    """8 k tokens over 248 k entries in fp32: 7.57 GiB on each rank (NVIDIA-NeMo/labs-molt PR#121)."""
    assert logits_bytes(8192, 248_000, 4.0) / GIB == pytest.approx(7.57, abs=5e-3)
    job = {"tensor": 1, "pipeline": 4, "expert": 32, "micro_batch": 1, "sharding": "zero1", "recompute": "full"}
    memory = memory_of("qwen3.5-397b-a17b", "dgx-h200", 256, 8192, software="pytorch-fsdp-2.2", **job)
    eager = 14.0  # logits in 16 bit, two copies and a gradient in fp32
    assert memory["logits"] * 4.0 / eager / GIB == pytest.approx(7.57, rel=2e-3)


def test_case_44_activations_of_a_14b_model_fill_a_device_without_checkpointing() -> None:
    """States are small and do not grow: what is kept for the backward pass goes over; checkpointing cures it."""
    job = {**SHARDED, "context": 1, "software": "pytorch-fsdp"}
    refused("phi-4", "dgx-h100", 8, 8192, recompute="none", **job)
    short = memory_of("phi-4", "dgx-h100", 8, 4096, recompute="none", **job)  # lengths vary: some steps fit
    assert 2 * short["activations"] == pytest.approx(60 * GIB, rel=0.15)
    cured = memory_of("phi-4", "dgx-h100", 8, 8192, recompute="full", **job)
    assert cured["activations"] < 4e9
    assert cured["total"] < 50e9


def test_case_46_full_copies_of_16_bit_weights_under_zero2() -> None:
    """14.9 GiB at once: sharding of gradients and optimizer leaves whole weights on each device (ZHZisZZ/dllm#9)."""
    job = {"sharding": "zero2", "tensor": 1, "pipeline": 1, "micro_batch": 1, "software": "deepspeed"}
    refused("llama-3.1-8b", "dgx-a100-40", 2, 1024, **job)
    memory = memory_of("llama-3.1-8b", "dgx-a100-40", 2, 1024, offload_optimizer=True, **job)
    assert memory["weights"] / GIB == pytest.approx(14.9, rel=5e-3)


def test_case_47_units_of_a_checkpoint_rate() -> None:
    """676,320,105,034 bytes in 844 s are 801 MB/s, which are 764 MiB/s: one rate (AMD-AGI/Primus PR#81)."""
    rate = 676_320_105_034 / 844
    assert parse("801 MB/s", "bandwidth") == pytest.approx(rate, rel=1e-3)
    assert parse("764 MiB/s", "bandwidth") == pytest.approx(rate, rel=1e-3)
    job: dict[str, Any] = {"tokens": 1e9, "sequence": 2048, "global_batch": 32, "sharding": "zero3"}
    runs = []
    for storage in ("801.3 MB/s", "764.2 MiB/s"):
        scenario = {
            "workload": {"model": "llama-3-70b", "train": job},
            "candidates": [{"system": "dgx-h100", "devices": 32}],
            "failures": {"storage": storage},
        }
        runs.append(ridgeline.plan(scenario).rows[0].to_dict()["goodput"])
    for run in runs:
        assert run["checkpoint_write_s"] == pytest.approx(run["checkpoint_bytes"] / rate, rel=1e-3)
