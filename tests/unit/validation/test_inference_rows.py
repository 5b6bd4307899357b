"""What inference rows mean: names, engines, formats, layouts, lengths, loads. Rows are written here, values by hand."""

from __future__ import annotations

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_cases import LlmCase, llm_case, queued_requests
from ridgeline.validation.inference_encoders import encoder_case, encoder_id
from ridgeline.validation.inference_names import model_id

LLM = {
    "id": "X-0001",
    "source_title": "somebody's table",
    "model": "Llama 3.1 8B",
    "device": "H100 80GB HBM3",
    "n_devices": "1",
    "engine": "TensorRT-LLM",
    "engine_version": "0.17",
    "weight_precision": "FP8",
    "kv_precision": "FP8",
    "tp": "1",
    "batch_or_concurrency": "max load (all requests queued)",
    "input_len": "128",
    "output_len": "2048",
    "metric": "output_tok_s_total",
    "value": "1000",
}
ENCODER = {
    "id": "Y-0001",
    "source_title": "somebody's table",
    "model": "BERT-Large",
    "device": "A100 40GB",
    "n_devices": "1",
    "engine": "TensorRT 8.4",
    "precision": "FP16",
    "batch": "8",
    "input_shape_or_seq": "seq 384",
    "scenario": "latency",
    "metric": "latency_ms",
    "value": "10",
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def case(catalog: Catalog, **cells: str) -> LlmCase:
    return llm_case(Row({**LLM, **cells}, 2), catalog)


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("LLaMA v3.1 70B", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-405B-Instruct-FP8", "llama-3.1-405b-fp8"),
        ("meta-llama/Llama-3.1-405B-Instruct", "llama-3.1-405b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("llama2-70b-interactive-99.9", "llama-2-70b"),
        ("google/flan-t5-xl", "t5-v1.1-xl"),
        ("Llama 3.2:3b", "llama-3.2-3b"),
    ],
)
def test_spellings_name_one_model(catalog: Catalog, text: str, id: str) -> None:
    assert model_id(text, catalog) == id


@pytest.mark.parametrize("text", ["Llama", "llama-3.1", "Qwen3", "an 8B model", "llama-3.1-8b-distilled-from-x"])
def test_parts_of_names_are_no_names(catalog: Catalog, text: str) -> None:
    assert model_id(text, catalog) is None


def test_stated_cells_are_taken_as_they_are(catalog: Catalog) -> None:
    made = case(catalog)
    (plan,) = made.layouts.plans
    assert (plan.weight_precision, plan.activation_precision, plan.kv_precision) == ("fp8", "fp8", "fp8")
    assert (plan.tensor_count, plan.replica_count, made.mode) == (1, 1, "maximum")
    assert (made.load.input_tokens, made.load.output_tokens) == (128, 2048)
    assert made.engine.id == "tensorrt-llm-0.10"
    assert made.fills == ()


@pytest.mark.parametrize(
    ("text", "version", "id"),
    [
        ("vLLM 0.6.5.dev964+mlperf50, Pytorch 2.7.0, ROCm 6.3.1", "", "vllm-0.6"),
        ("Mango LLMBoost AI Enterprise Platform, vllm-0.9.0.2.dev108, ROCm 6.12", "", "vllm-0.8"),
        ("vLLM (TPU)", "", "jetstream"),
        ("vLLM+optimum-neuron", "", "neuron-vllm"),
        ("Transformers NeuronX", "Neuron SDK 2.18.0", "neuron"),
        ("llama.cpp CUDA", "build 2824 (4426e298)", "llama-cpp"),
        ("TensorRT-LLM (PyTorch backend)", "1.0", "tensorrt-llm"),
    ],
)
def test_engine_texts(catalog: Catalog, text: str, version: str, id: str) -> None:
    assert case(catalog, engine=text, engine_version=version).engine.id == id


def test_mlperf_rows_take_the_engine_of_their_round_and_the_lengths_of_their_data(catalog: Catalog) -> None:
    made = case(
        catalog,
        source_title="MLPerf Inference v4.1 closed",
        model="llama2-70b-99.9",
        device="NVIDIA H100-SXM-80GB",
        n_devices="8",
        engine="TensorRT 10.2.0, CUDA 12.4",
        engine_version="",
        weight_precision="fp16",
        kv_precision="",
        tp="",
        batch_or_concurrency="Server",
        input_len="",
        output_len="",
    )
    assert made.engine.id == "tensorrt-llm-0.10"  # August 2024, before the 1.0 of 2025-09
    assert made.load.output_tokens == pytest.approx(294.45)  # the checker's own bound
    assert (made.load.ttft_p95_s, made.load.tpot_p95_s) == (2.0, 0.2)  # the rules' limits
    assert made.layouts.choice == "best"
    assert {plan.devices_count for plan in made.layouts.plans} == {8}
    assert {plan.weight_precision for plan in made.layouts.plans} == {"fp8"}  # what its maker reports for Hopper
    assert made.lengths.input_range == (200, 420)


def test_tensor_degrees_of_neuron_count_cores(catalog: Catalog) -> None:
    cells = {"device": "trn1.32xlarge", "n_devices": "", "engine": "Transformers NeuronX", "weight_precision": "bf16"}
    (plan,) = case(catalog, **cells, tp="32", kv_precision="", batch_or_concurrency="1").layouts.plans
    assert plan.tensor_count == 16  # two cores a chip


def test_cores_of_neuron_hold_whole_heads_and_programs_have_the_compiled_length(catalog: Catalog) -> None:
    cells = {"device": "inf2.48xlarge", "n_devices": "", "engine": "vLLM+optimum-neuron", "weight_precision": "bf16"}
    note = "server batch size 32, seq len 4096; variant std-cpu-sampling.csv"
    made = case(catalog, **cells, tp="8", kv_precision="", batch_or_concurrency="1", note=note)
    assert made.layouts.plans[0].head_units_count == 2
    assert made.engine.bucket_tokens == 4096
    pieces = case(catalog, **cells, tp="8", kv_precision="", batch_or_concurrency="1", note=f"{note} hybrid-ods")
    assert pieces.engine.bucket_tokens == 1024
    chosen_on_device = case(
        catalog, **cells, tp="8", kv_precision="", batch_or_concurrency="1", note="server batch size 32, seq len 4096"
    )
    assert made.engine.host_step_s > chosen_on_device.engine.host_step_s


def test_submissions_set_the_limits_of_their_scheduler(catalog: Catalog) -> None:
    cells = {
        "source_title": "MLPerf Inference v5.0 closed",
        "model": "llama2-70b-99",
        "device": "AMD Instinct MI325X 256GB HBM3e",
        "n_devices": "8",
        "engine": "vLLM 0.6.5",
        "engine_version": "",
        "tp": "",
        "input_len": "",
        "output_len": "",
    }
    offline = case(catalog, **cells, batch_or_concurrency="Offline")
    assert (offline.engine.max_batch_count, offline.engine.max_batch_tokens) == (1024, 16384)
    assert offline.engine.host_sequence_s <= 15e-6
    assert not offline.at_random
    assert case(catalog, **cells, batch_or_concurrency="Server").at_random


def test_runs_of_a_known_number_of_requests_are_told_apart(catalog: Catalog) -> None:
    title = "TensorRT-LLM performance overview (v1.0)"
    assert queued_requests(case(catalog, source_title=title)) == 3000  # the table for 128 tokens in, 2,048 out
    assert queued_requests(case(catalog, source_title=title, input_len="129")) is None
    assert queued_requests(case(catalog)) is None
    assert queued_requests(case(catalog, source_title=title, batch_or_concurrency="8")) is None


def test_experts_spread_wider_than_attention_replicate_attention(catalog: Catalog) -> None:
    cells = {"model": "Qwen3-30B-A3B", "engine": "vLLM", "engine_version": "0.14", "n_devices": "8", "ep": "8"}
    (plan,) = case(catalog, **cells, tp="1", batch_or_concurrency="64").layouts.plans
    assert (plan.tensor_count, plan.expert_count, plan.attention_data_count) == (8, 8, 8)
    (plan,) = case(catalog, **cells, tp="8", batch_or_concurrency="64").layouts.plans
    assert (plan.tensor_count, plan.expert_count, plan.attention_data_count) == (8, 8, 1)


def test_label_with_copies_states_the_batch_of_one(catalog: Catalog) -> None:
    made = case(
        catalog,
        model="Llama-3.1-405B",
        device="MI300X",
        n_devices="8",
        engine="vLLM",
        engine_version="0.6",
        tp="",
        kv_precision="",
        batch_or_concurrency="16",
        note="gpu label '8xMi300x 2FP8-amd'; total = input+output tokens / elapsed; elapsed 94 s for 16 requests",
    )
    (plan,) = made.layouts.plans
    assert (plan.tensor_count, plan.replica_count) == (4, 2)
    assert made.load.concurrency_count == 32
    assert made.mode == "static"


def test_llama_cpp_splits_layers_over_devices(catalog: Catalog) -> None:
    made = case(
        catalog,
        device="NVIDIA GeForce RTX 4090",
        n_devices="4",
        engine="llama.cpp CUDA",
        engine_version="build 2824",
        weight_precision="Q4_K_M",
        kv_precision="",
        tp="",
        pp="4",
        batch_or_concurrency="1",
        input_len="0",
        output_len="512",
        metric="decode_tok_s",
    )
    (plan,) = made.layouts.plans
    assert (plan.tensor_count, plan.pipeline_count, plan.weight_precision) == (1, 4, "q4_k_m")
    assert made.load.static_batch
    assert made.load.output_tokens == 512


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"device": ""}, "device not stated"),
        ({"engine": ""}, "engine not stated"),
        ({"engine": "an engine of my own"}, "is not modelled"),
        ({"model": "my-model"}, "no configuration"),
        ({"note": "MTP speculative decoding, 1 draft token"}, "speculative"),
        ({"weight_precision": "base 3"}, "not known"),
        ({"batch_or_concurrency": "1,2"}, "not understood"),
        ({"input_len": ""}, "length of the prompt"),
    ],
)
def test_what_is_lacking_is_named(catalog: Catalog, cells: dict[str, str], reason: str) -> None:
    with pytest.raises(Unscored, match=reason):
        case(catalog, **cells)


def test_encoder_rows(catalog: Catalog) -> None:
    row = Row(ENCODER, 2)
    id = encoder_id(row.text("model"), catalog)
    assert id == "bert-large"
    made = encoder_case(row, id, catalog)
    assert (made.load.input_tokens, made.load.concurrency_count, made.engine.id) == (384, 8, "tensorrt")
    assert (made.plan.weight_precision, made.plan.activation_precision) == ("fp16", "fp16")


def test_encoder_without_padding_reads_half(catalog: Catalog) -> None:
    cells = {"engine": "EFF-FT (PyTorch)", "note": "EFF-FT removes padding: real mean length is half of seq"}
    made = encoder_case(Row({**ENCODER, **cells}, 2), "bert-large", catalog)
    assert (made.load.input_tokens, made.engine.id) == (192, "fastertransformer")


def test_image_size_sets_the_tokens(catalog: Catalog) -> None:
    cells = {"model": "ViT-B/16", "input_shape_or_seq": "384x384"}
    id = encoder_id(cells["model"], catalog)
    assert id == "vit-base-16"
    made = encoder_case(Row({**ENCODER, **cells}, 2), id, catalog)
    assert made.load.input_tokens == 24 * 24 + 1
