"""Questions that people asked in public about utilisation and memory, as far as they are arithmetic of the model.

Each has the figures of its thread; the expected value is what the thread established or what its own figures give.
Peaks are the catalogue's, so that dense and sparse figures cannot be mixed up.
"""

from __future__ import annotations

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.intake import load_model
from ridgeline.workload.cache import kv_bytes, kv_bytes_per_token
from ridgeline.workload.flop import model_flop_per_token, six_n_attention_flop_per_token, six_n_flop_per_token
from ridgeline.workload.parameters import weight_bytes

DAY_S, HOUR_S, GIB = 86400.0, 3600.0, 2.0**30


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(plugins=False)


def test_dense_not_sparse_peak(catalog: Catalog) -> None:
    """fms-fsdp issue 89: 7B on H100 at 9600 tokens/s and 0.05 TFLOP a token is 24 % of the sparse peak, 48.5 % of
    the dense one, which is the one that counts."""
    achieved = 9600 * 0.05e12
    dense = catalog.chip("h100-sxm5-80").peak("bf16")
    assert achieved / dense == pytest.approx(0.485, abs=0.001)
    assert achieved / (2 * dense) == pytest.approx(0.24, abs=0.005)
    seven = load_model("llama-2-7b", catalog)
    assert model_flop_per_token(seven, 4096, "six-n-attention") == pytest.approx(0.05e12, rel=0.07)


def test_utilisation_above_one_is_another_chips_peak(catalog: Catalog) -> None:
    """nanoGPT issue 464: 104 % of A100's peak on an H100 is 32.8 %. nanochat issue 147: 74 % on A100 shown as 23 %."""
    a100, h100 = catalog.chip("a100-sxm4-80").peak("bf16"), catalog.chip("h100-sxm5-80").peak("bf16")
    assert 1.04 * a100 / h100 == pytest.approx(0.328, abs=0.001)
    assert 0.74 * a100 / h100 == pytest.approx(0.233, abs=0.001)


def test_training_takes_six_operations_a_parameter_not_two() -> None:
    """scaling-book issue 31: DeepSeek-V3, 37 B active, 14.8 T tokens, 2.79 M H800 hours at 1.513 PFLOP/s: 21.6 %."""
    spent = 2.79e6 * HOUR_S * 1.513e15
    assert six_n_flop_per_token(37e9) * 14.8e12 / spent == pytest.approx(0.216, abs=0.001)
    assert 2 * 37e9 * 14.8e12 / spent == pytest.approx(0.072, abs=0.001)


def test_gpt2_on_eight_a100(catalog: Catalog) -> None:
    """nanoGPT issue 182: 600 k steps of 491 520 tokens in 4 days; 8.55e8 FLOP a token (N without positions)."""
    model = load_model("gpt2", catalog)
    parameters = model.parameters_count - 1024 * 768
    per_token = six_n_attention_flop_per_token(parameters, 12, 768, 1024)
    assert per_token == pytest.approx(8.55e8, rel=1e-3)
    peak = 8 * catalog.chip("a100-sxm4-80").peak("bf16")
    assert per_token * 600_000 * 491_520 / (4 * DAY_S * peak) == pytest.approx(0.292, abs=0.001)


def test_seven_b_at_3700_tokens_a_second(catalog: Catalog) -> None:
    """fms-fsdp issue 67: 3.7 k tokens/s on A100 is 48 % by 6 N and 55.6 % with attention, not 15 %."""
    model, peak = load_model("llama-2-7b", catalog), catalog.chip("a100-sxm4-80").peak("bf16")
    assert 3700 * model_flop_per_token(model, 4096, "six-n") / peak == pytest.approx(0.48, abs=0.002)
    assert 3700 * model_flop_per_token(model, 4096, "six-n-attention") / peak == pytest.approx(0.556, abs=0.001)


def test_cache_of_qwen3_coder(catalog: Catalog) -> None:
    """vllm recipes pull request 12: 62 layers x 8 x 128 x 2 x 2 bytes; 262 144 tokens are exactly 62 GiB."""
    model = load_model("qwen3-coder-480b-a35b", catalog)
    assert kv_bytes_per_token(model, 262_144, "bf16") == 253_952
    assert kv_bytes(model, 262_144, "bf16") / GIB == 62.0


def test_grouped_queries_shrink_the_cache(catalog: Catalog) -> None:
    """vllm issue 8089: 3000 tokens of Llama 3 70B are 0.983 GB; 7.86 GB would be all 64 heads."""
    model = load_model("llama-3-70b", catalog)
    assert kv_bytes(model, 3000, "bf16") == pytest.approx(0.983e9, rel=1e-3)
    assert kv_bytes(model, 3000, "bf16") * 8 == pytest.approx(7.86e9, rel=1e-3)


def test_mixtral_reads_two_of_eight_experts(catalog: Catalog) -> None:
    """gpt-fast issue 225: 12.88 B active; two A100 can read them at most 158 times a second."""
    model = load_model("mixtral-8x7b", catalog)
    assert model.active_parameters_count == pytest.approx(12.88e9, rel=1e-3)
    bandwidth = 2 * catalog.chip("a100-sxm4-80").need("memory_bandwidth_bytes_per_s")
    assert bandwidth / (2 * model.active_parameters_count) == pytest.approx(158, abs=1)


def test_all_experts_must_be_resident(catalog: Catalog) -> None:
    """ollama issue 10546: a 30B-A3B at 4.85 bits needs 18.5 GB, not what 3 B would."""
    assert weight_bytes(load_model("qwen3-30b-a3b", catalog), "q4_k_m") == pytest.approx(18.5e9, rel=2e-3)


def test_weights_of_opt_175b_do_not_fit_eight_40_gb_cards(catalog: Catalog) -> None:
    """metaseq issue 100: 350 GB against 320."""
    assert weight_bytes(load_model("opt-175b", catalog), "fp16") == pytest.approx(350e9, rel=5e-3)


def test_states_of_mixed_precision_adam(catalog: Catalog) -> None:
    """huggingface blog issue 2245: 16 bytes a parameter of Llama 3 70B are 1.13 TB, 8 bytes 564 GB."""
    count = load_model("llama-3-70b", catalog).parameters_count
    assert 16 * count == pytest.approx(1.13e12, rel=2e-3)
    assert 8 * count == pytest.approx(564e9, rel=2e-3)
