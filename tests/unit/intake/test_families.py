"""How families become matrices and mixers: small configurations counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ridgeline.intake import transformer_from_config
from ridgeline.specs import Linear, Recurrence, SoftmaxAttention, Transformer


def read(**config: Any) -> Transformer:
    return transformer_from_config(config, id="m", where="x")


SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


def mixers(model: Transformer) -> list[SoftmaxAttention | Recurrence]:
    return [mixer for run in model.main.runs for _ in range(run.repeat_count) for mixer in run.layer.mixers]


def linear(model: Transformer, name: str, layer: int = 0) -> Linear:
    layers = [run.layer for run in model.main.runs for _ in range(run.repeat_count)]
    return next(item for item in layers[layer].linears if item.name == name)


def test_llama_by_hand() -> None:
    model = read(model_type="llama", **SMALL)
    attention = 64 * 64 * 2 + 2 * 64 * 16  # q, o; k and v of two heads of 8
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert model.parameters_count == 2 * 100 * 64 + 4 * layer + 64
    assert model.layers_count == 4
    assert len(model.main.runs) == 1
    assert linear(model, "k").head_count == 2
    assert linear(model, "o").split == "row"


def test_tied_embeddings_count_once_and_still_have_a_head() -> None:
    tied, untied = read(model_type="llama", tie_word_embeddings=True, **SMALL), read(model_type="llama", **SMALL)
    assert untied.parameters_count - tied.parameters_count == 100 * 64
    assert tied.head is not None


@pytest.mark.parametrize(
    "alias", [{"n_embd": 64, "n_layer": 4, "n_head": 8}, {"d_model": 64, "n_layers": 4, "n_heads": 8}]
)
def test_names_of_the_same_figure(alias: dict[str, int]) -> None:
    plain = read(model_type="phi", hidden_size=64, num_hidden_layers=4, num_attention_heads=8, vocab_size=100)
    assert read(model_type="phi", vocab_size=100, **alias).parameters_count == plain.parameters_count


def test_windows_alternate_in_gemma_2_and_are_global_every_sixth_layer_in_gemma_3() -> None:
    second = read(model_type="gemma2", head_dim=8, sliding_window=32, **SMALL)
    assert [mixer.window_tokens for mixer in mixers(second)] == [32, None, 32, None]
    third = read(model_type="gemma3_text", head_dim=8, sliding_window=32, **{**SMALL, "num_hidden_layers": 7})
    assert [mixer.window_tokens for mixer in mixers(third)] == [32] * 5 + [None, 32]


def test_a_null_window_sets_the_class_default_aside() -> None:
    assert mixers(read(model_type="mistral", **SMALL))[0].window_tokens == 4096
    assert mixers(read(model_type="mistral", sliding_window=None, **SMALL))[0].window_tokens is None
    assert (
        mixers(read(model_type="qwen2", sliding_window=32, use_sliding_window=False, **SMALL))[0].window_tokens is None
    )


def test_mixture_active_parameters_are_all_but_the_idle_experts() -> None:
    model = read(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2, **SMALL)
    experts = 4 * 8 * 3 * 64 * 128
    assert model.parameters_count - model.active_parameters_count == experts * 6 // 8
    assert linear(model, "expert-up").active_count == 2


def test_first_dense_layers_and_shared_experts_of_deepseek() -> None:
    config = {
        **SMALL,
        "num_key_value_heads": 8,
        "q_lora_rank": 16,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "moe_intermediate_size": 32,
        "n_routed_experts": 16,
        "n_shared_experts": 2,
        "num_experts_per_tok": 4,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
    }
    model = read(model_type="deepseek_v3", **config)
    assert [run.layer.experts_count for run in model.main.runs] == [0, 16]
    attention = mixers(model)[0]
    assert isinstance(attention, SoftmaxAttention)
    assert (attention.cached_per_token_count, attention.latent_dim_count) == (28, 28)
    assert (attention.key_dim_count, attention.value_dim_count) == (12, 8)
    assert linear(model, "shared-up", 1).outputs_count == 64
    sparse = model.main.runs[1].layer
    assert model.mtp_parameters_count == sparse.parameters_count + 2 * 64 * 64 + 3 * 64
    without = read(model_type="deepseek_v3", **{**config, "num_nextn_predict_layers": 0})
    assert without.parameters_count == model.parameters_count


def test_jamba_mixes_attention_and_scan_at_their_periods() -> None:
    model = read(
        model_type="jamba",
        **{**SMALL, "num_hidden_layers": 8},
        num_experts=4,
        num_experts_per_tok=2,
        attn_layer_period=8,
        attn_layer_offset=4,
        expert_layer_period=2,
        expert_layer_offset=1,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_dt_rank=4,
    )
    kinds = [type(mixer).__name__ for mixer in mixers(model)]
    assert kinds == ["Recurrence"] * 4 + ["SoftmaxAttention"] + ["Recurrence"] * 3
    scan = mixers(model)[0]
    assert isinstance(scan, Recurrence)
    assert scan.state_per_sequence_count == 128 * 16
    assert scan.tail_per_sequence_count == 3 * 128


def test_encoder_decoder_has_its_encoder_beside_it_and_cross_attention() -> None:
    model = read(model_type="t5", d_model=64, d_kv=8, d_ff=128, num_layers=2, num_heads=8, vocab_size=100)
    assert [stack.role for stack in model.others] == ["encoder"]
    assert sum(mixer.cross for mixer in mixers(model) if isinstance(mixer, SoftmaxAttention)) == 2
    assert linear(model, "cross-k").from_encoder
    assert not linear(model, "cross-q").from_encoder
    assert all(not mixer.cached_per_token_count for run in model.others[0].runs for mixer in run.layer.mixers)


def test_a_classifier_without_labels_has_the_classes_of_imagenet() -> None:
    vit = {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "image_size": 32,
        "patch_size": 16,
    }
    placeholder = {"0": "LABEL_0", "1": "LABEL_1"}
    thousand, two = read(**vit), read(**vit, id2label={"0": "cat", "1": "dog"})
    assert read(**vit, id2label=placeholder).parameters_count == thousand.parameters_count
    assert thousand.parameters_count - two.parameters_count == 998 * 65
    assert thousand.encoder_tokens == 5


def test_resnet_50_operations_of_an_image() -> None:
    """4.09 G multiply-adds at 224 x 224 without the classifier (He et al. 2015: 3.8 with the stride in the first
    convolution of a block; torchvision's and this variant has it in the second: 4.09)."""
    model = read(
        model_type="resnet",
        embedding_size=64,
        hidden_sizes=[256, 512, 1024, 2048],
        depths=[3, 4, 6, 3],
        num_labels=1000,
    )
    assert model.parameters_count == 25_557_032
    assert model.encoder_tokens == 56 * 56
    per_token = sum(item.matrix_count * item.rows_per_token for item in model.main.linears)
    per_token += sum(
        run.repeat_count * item.matrix_count * item.rows_per_token
        for run in model.main.runs
        for item in run.layer.linears
    )
    assert per_token * model.encoder_tokens / 1e9 == pytest.approx(4.087, abs=0.005)


def test_albert_stores_one_layer_and_runs_all() -> None:
    model = read(
        model_type="albert",
        vocab_size=100,
        embedding_size=16,
        hidden_size=64,
        num_hidden_layers=12,
        num_attention_heads=8,
        intermediate_size=128,
        max_position_embeddings=32,
    )
    assert model.layers_count == 12
    assert model.main.runs[0].stored_count == 1


def test_a_model_without_a_described_tower_is_its_text_part() -> None:
    config = {"head_dim": 8, **SMALL}
    alone = read(model_type="qwen3", tie_word_embeddings=True, **config)
    wrapped = read(model_type="qwen3_vl", tie_word_embeddings=True, text_config=config)
    assert wrapped.parameters_count == alone.parameters_count
    assert wrapped.others == ()
