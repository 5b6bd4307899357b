"""Questions of people who trained models, about memory: the arithmetic that their threads established.

The numbers of the cases are those of the threads named in each docstring.
"""

from __future__ import annotations

import pytest

from ridgeline.specs import SoftwareProfile
from ridgeline.workload.memory import logits_bytes, sharded_states, state_recipe

GIB = 2**30
MIXED = state_recipe("bf16", SoftwareProfile(id="mixed", gradient_precision="same"))
PURE = state_recipe("bf16", SoftwareProfile(id="pure", gradient_precision="same", master_bytes=0.0, moment_bytes=4.0))
H100_BYTES = 85.5e9  # what the driver offers of "80 GB"


def test_70b_full_fine_tune_does_not_fit_16_devices_of_80_gb() -> None:
    """InternLM/xtuner#842: 70 GB of states alone on each of 16, 35 GB on each of 32."""
    on_16, on_32 = (sharded_states(70e9, 1.0, n, MIXED, "zero3").total for n in (16.0, 32.0))
    assert on_16 == 70e9
    assert on_32 == 35e9
    assert on_16 / H100_BYTES > 0.8  # nothing is left for activations, gathered layers and buffers
    assert on_32 / H100_BYTES < 0.5


def test_13b_full_fine_tune_needs_four_devices() -> None:
    """Alpha-VLLM/LLaMA2-Accessory#26: 156 GB of master weights and moments alone, so two of 80 GB do not do."""
    whole = sharded_states(13e9, 1.0, 1.0, MIXED, "none")
    assert whole.master + whole.moments == 156e9
    each = [sharded_states(13e9, 1.0, n, MIXED, "zero3").total for n in (2.0, 4.0)]
    assert each[0] > 80e9 > each[1]


def test_frozen_quantised_weights_are_not_shared_by_data_ranks() -> None:
    """hiyouga/LlamaFactory#4559: a 4-bit 70B is 35 GB on every rank; four of 24 GB are not one of 96 GB."""
    frozen = sharded_states(70e9, 0.0, 4.0, MIXED, "zero2")
    four_bit = frozen.weights / 4
    assert frozen.gradients == frozen.master == frozen.moments == 0
    assert four_bit == 35e9 > 24e9


def test_pure_16_bit_states_of_70b() -> None:
    """huggingface/blog#2245: 1.13 TB in mixed precision, 564 GB with 16-bit states."""
    assert MIXED.total * 70.55e9 == pytest.approx(1.13e12, rel=0.002)
    assert PURE.total * 70.55e9 == pytest.approx(564e9, rel=0.001)


def test_fp32_logits_of_a_large_vocabulary() -> None:
    """NVIDIA-NeMo/labs-molt PR#121: 8 k tokens by 248 k entries in fp32 are 7.57 GiB a rank."""
    assert logits_bytes(8192, 248_000, 4.0) / GIB == pytest.approx(7.57, abs=0.005)


def test_a_whole_bf16_copy_of_8b_on_one_device() -> None:
    """ZHZisZZ/dllm#9: the 14.9 GiB that could not be allocated."""
    assert sharded_states(8.0e9, 1.0, 2.0, MIXED, "zero2").weights / GIB == pytest.approx(14.9, abs=0.01)
