"""Weights, caches, states and operations of models, by hand."""

from __future__ import annotations

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import UnknownName
from ridgeline.intake import load_model, transformer_from_config
from ridgeline.specs import Transformer
from ridgeline.workload.cache import cross_bytes, kv_bytes, kv_bytes_per_token, state_bytes_per_sequence
from ridgeline.workload.flop import (
    CONVENTIONS,
    forward_flop_per_token,
    mean_keys,
    megatron_flop_per_token,
    model_flop_per_token,
)
from ridgeline.workload.parameters import weight_bytes, weight_bytes_by_precision
from ridgeline.workload.summary import model_summary


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(plugins=False)


def gpt(layers: int, hidden: int, vocab: int) -> Transformer:
    config = {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": 8, "n_positions": 64}
    return transformer_from_config({**config, "vocab_size": vocab}, id="gpt", where="x")


def test_latent_cache_of_deepseek_v3(catalog: Catalog) -> None:
    """61 layers x (512 + 64) elements."""
    model = load_model("deepseek-v3", catalog)
    assert kv_bytes_per_token(model, 4096, "bf16") == 61 * 576 * 2
    assert kv_bytes_per_token(model, 4096, "fp8") == 61 * 576


def test_windows_stop_growing(catalog: Catalog) -> None:
    """Gemma 2 9B: 42 layers, half with a window of 4096; a layer keeps 2 x 8 x 256 elements a token."""
    model = load_model("gemma-2-9b", catalog)
    layer = 2 * 8 * 256 * 2
    assert kv_bytes_per_token(model, 4096, "bf16") == 42 * layer
    assert kv_bytes_per_token(model, 4097, "bf16") == 21 * layer
    assert kv_bytes(model, 8192, "bf16") == 21 * layer * 4096 + 21 * layer * 8192
    total = sum(kv_bytes_per_token(model, tokens, "bf16") for tokens in range(4000, 4200))
    assert kv_bytes(model, 4199, "bf16") - kv_bytes(model, 3999, "bf16") == total


def test_compressed_and_indexed_cache() -> None:
    """DeepSeek-V4's kind: a window of plain keys, one key for 4 tokens with an indexer, one for 128."""
    config = {
        "model_type": "deepseek_v4",
        "hidden_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "head_dim": 64,
        "q_lora_rank": 32,
        "o_lora_rank": 32,
        "o_groups": 2,
        "compress_ratios": [0, 4, 128],
        "sliding_window": 16,
        "index_n_heads": 2,
        "index_head_dim": 32,
        "index_topk": 8,
        "hc_mult": 2,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "vocab_size": 100,
    }
    model = transformer_from_config(config, id="v4", where="x")
    beyond = kv_bytes_per_token(model, 1000, "bf16")
    assert beyond == (64 * 2 + 32 + 4) / 4 + 64 * 2 / 128
    assert kv_bytes_per_token(model, 16, "bf16") == beyond + 3 * 64 * 2


def test_state_of_a_state_space_model(catalog: Catalog) -> None:
    """Mamba-2 2.7B: 64 layers x (80 x 64 x 128 states + 3 taps of 5120 + 2 x 128 channels), in 16 bits."""
    model = load_model("mamba2-2.7b", catalog)
    assert state_bytes_per_sequence(model) == 64 * 2 * (80 * 64 * 128 + 3 * (5120 + 256))
    assert kv_bytes_per_token(model, 4096, "bf16") == 0
    assert state_bytes_per_sequence(load_model("llama-2-7b", catalog)) == 0


def test_cross_attention_is_no_part_of_a_marginal_token(catalog: Catalog) -> None:
    """Whisper large-v3: 32 decoder layers of 2 x 1280; 1500 encoder tokens are kept once."""
    model = load_model("whisper-large-v3", catalog)
    assert kv_bytes_per_token(model, 100, "fp16") == 32 * 2 * 1280 * 2
    assert cross_bytes(model, 1500, "fp16") == 32 * 2 * 1280 * 2 * 1500


def test_encoders_keep_nothing(catalog: Catalog) -> None:
    assert kv_bytes(load_model("bert-base", catalog), 512, "fp16") == 0


def test_weights_of_gpt_oss(catalog: Catalog) -> None:
    """Experts at 4.25 bits, the rest at 16: the 120B checkpoint has 65.2 GB (its card)."""
    model = load_model("gpt-oss-120b", catalog)
    experts = 36 * 128 * 3 * 2880 * 2880
    assert weight_bytes(model, "bf16") == experts * 4.25 / 8 + (model.parameters_count - experts) * 2
    assert weight_bytes(model, "bf16") == pytest.approx(65.2e9, rel=1e-3)
    assert set(weight_bytes_by_precision(model, "bf16")) == {"mxfp4", "bf16"}


def test_plan_format_holds_for_a_plain_checkpoint(catalog: Catalog) -> None:
    model = load_model("llama-3.1-8b", catalog)
    assert weight_bytes(model, "bf16") == 2 * model.parameters_count
    assert weight_bytes(model, "fp8") == model.parameters_count


def test_forward_operations_of_a_gpt_by_hand() -> None:
    """12 h^2 a layer in matrices, scores over (s + 1) / 2 keys of 2 x h, the tied head."""
    model = gpt(layers=3, hidden=64, vocab=100)
    matrices = 2 * 3 * 12 * 64**2 + 2 * 64 * 100
    assert forward_flop_per_token(model, 32, causal_half=False) == matrices + 3 * 4 * 64 * 32
    assert forward_flop_per_token(model, 32) == matrices + 3 * 4 * 64 * 16.5


def test_conventions_agree_where_they_should() -> None:
    """Full attention and Megatron's count are the same for a GPT; 6 N + 12 L h s differs by norms and tables only."""
    model = gpt(layers=12, hidden=768, vocab=50257)
    full = model_flop_per_token(model, 1024, "full-attention")
    assert full == pytest.approx(megatron_flop_per_token(12, 768, 50257, 1024), rel=1e-12)
    assert model_flop_per_token(model, 1024, "megatron") == pytest.approx(full, rel=1e-12)
    assert model_flop_per_token(model, 1024, "six-n-attention") == pytest.approx(full, rel=2e-3)
    assert (
        model_flop_per_token(model, 1024, "six-n-causal-attention") < model_flop_per_token(model, 1024, "causal") * 1.01
    )


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(UnknownName, match="six-n"):
        model_flop_per_token(gpt(1, 64, 10), 8, "six")


def test_every_convention_answers(catalog: Catalog) -> None:
    model = load_model("gpt3-175b", catalog)
    counts = [model_flop_per_token(model, 2048, convention) for convention in CONVENTIONS]
    assert max(counts) / min(counts) < 1.04


def test_mixtures_count_active_experts_only(catalog: Catalog) -> None:
    model = load_model("qwen3-30b-a3b", catalog)
    per_token = forward_flop_per_token(model, 1)
    table = model.vocab_count * model.hidden_count
    assert per_token == pytest.approx(2 * (model.active_parameters_count - table), rel=2e-3)


def test_mean_keys_of_a_window_is_the_mean() -> None:
    for limit in (1, 3, 8, 20):
        exact = sum(min(i, limit) for i in range(1, 9)) / 8
        assert mean_keys(8, limit, half=True) == pytest.approx(exact)


def test_encoder_work_is_shared_among_the_decoders_tokens(catalog: Catalog) -> None:
    """T5 base at 512 + 512 tokens: two operations for each parameter outside the table, once, plus scores and head."""
    model = load_model("t5-base", catalog)
    outside = model.parameters_count - model.embedding_parameters_count
    scores = 12 * 4 * 768 * (512 + 256.5 + 512)
    head = 2 * 768 * 32128
    assert forward_flop_per_token(model, 512) == pytest.approx(2 * outside + scores + head, rel=1e-3)


def test_vision_transformer_operations(catalog: Catalog) -> None:
    """ViT-B/16 at 224 x 224: 17.5 G multiply-adds an image (Touvron et al. 2021, table 5: 17.6)."""
    model = load_model("vit-base-16", catalog)
    tokens = model.encoder_tokens
    assert tokens == 197
    assert forward_flop_per_token(model, tokens) * tokens / 2e9 == pytest.approx(17.5, abs=0.1)


def test_summary_is_plain_data(catalog: Catalog) -> None:
    summary = model_summary(load_model("qwen3-coder-480b-a35b", catalog), 8192, "bf16")
    assert summary["kv_bytes_per_token"] == 253_952
    assert summary["experts_count"] == 160
    assert summary["active_experts_count"] == 8
    assert (summary["heads_count"], summary["kv_heads_count"]) == (96, 8)
    assert summary["state_bytes_per_sequence"] == 0
    assert summary["source"]
