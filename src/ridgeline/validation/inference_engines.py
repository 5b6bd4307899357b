"""Which engine profile a row's engine text means, and which release: ordered words, the first match counts.

The text is what a source wrote ("TensorRT-LLM (PyTorch backend)", "vLLM 0.6.5.dev964+mlperf50, ROCm 6.3.1", ...). A
release is taken from the version column, else from the text, else from the date of the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ridgeline.catalog import Catalog
from ridgeline.specs import EngineProfile
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored

# (words that must all stand in the text, engine, remark). MLPerf submitters name TensorRT where TensorRT-LLM runs.
LLM_RULES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("tensorrt-llm",), "tensorrt-llm", ""),
    (("trt-llm",), "tensorrt-llm", ""),
    (("trtllm",), "tensorrt-llm", ""),
    (("vllm", "tpu"), "jetstream", ""),
    (("vllm", "neuron"), "neuron-vllm", ""),
    (("neuron",), "neuron", ""),
    (("vllm",), "vllm", ""),
    (("llmboost",), "vllm", "LLMBoost taken as the vLLM of its date, which it is built on"),
    (("sglang",), "sglang", ""),
    (("llama.cpp",), "llama-cpp", ""),
    (("ollama",), "llama-cpp", ""),
    (("mlc",), "mlc-llm", ""),
    (("exllama",), "exllamav2", ""),
    (("fastertransformer",), "fastertransformer", ""),
    (("openvino",), "openvino", ""),
    (("onnx",), "onnxruntime", ""),
    (("jetstream",), "jetstream", ""),
    (("maxtext",), "jetstream", ""),
    (("sax",), "jetstream", "SAX taken as the compiled TPU server of the catalogue"),
    (("tgi",), "vllm", "TGI taken as the continuous-batching engine of its date"),
    (("text generation inference",), "vllm", "TGI taken as the continuous-batching engine of its date"),
    (("text-generation-inference",), "vllm", "TGI taken as the continuous-batching engine of its date"),
    (("tt-",), "tt-metal", ""),
    (("tensorrt",), "tensorrt-llm", "TensorRT named: TensorRT-LLM of its date"),
    (("flexgen",), "pytorch-eager", "FlexGen taken as operation-by-operation execution"),
    (("accelerate",), "pytorch-eager", ""),
    (("deepspeed",), "pytorch-eager", "DeepSpeed taken as operation-by-operation execution"),
    (("megatron",), "pytorch-eager", ""),
    (("habana",), "pytorch-eager", ""),
    (("gaudi",), "pytorch-eager", ""),
    (("transformers",), "pytorch-eager", ""),
    (("pytorch",), "pytorch-eager", ""),
    (("torch",), "pytorch-eager", ""),
)
# Publication of the MLPerf Inference rounds (mlperf-inference-rules).
ROUND_DATES = {
    "v0.5": "2019-11",
    "v0.7": "2020-10",
    "v1.0": "2021-04",
    "v1.1": "2021-09",
    "v2.0": "2022-04",
    "v2.1": "2022-09",
    "v3.0": "2023-04",
    "v3.1": "2023-09",
    "v4.0": "2024-03",
    "v4.1": "2024-08",
    "v5.0": "2025-04",
    "v5.1": "2025-09",
    "v6.0": "2026-04",
}
# Dates of sources that give none in their rows: when the figures were published.
SOURCE_DATES: dict[str, str] = {
    "ML.ENERGY leaderboard": "2025-11",
    "mlc-ai llm-perf-bench": "2023-10",
    "dstack H100 SXM5 vs MI300X": "2024-12",
    "AWS Neuron benchmarks": "2024-04",
    "Google tpu-recipes inference": "2025-11",
    "FlexGen README": "2023-02",
    "OpenVINO LLM benchmarks": "2024-10",
    "geerlingguy ai-benchmarks": "2025-11",
}
_ROUND = re.compile(r"\bv\d\.\d\b")
_VLLM = re.compile(r"vllm[ -]v?(\d+(?:\.\d+)+)", re.IGNORECASE)
# Engines whose releases are records of their own; a version in the text of the others says nothing about them.
_VERSIONED = frozenset({"vllm", "tensorrt-llm", "llama-cpp"})


@dataclass(frozen=True, slots=True)
class RowEngine:
    """The engine of a row, with the fills that it took."""

    profile: EngineProfile
    fills: tuple[str, ...] = ()


def mlperf_round(row: Row) -> str:
    """The MLPerf round that a row's source names ("v4.1"), "" for other sources."""
    title = row.text("source_title")
    found = _ROUND.search(title) if "MLPerf" in title else None
    return found.group() if found else ""


def source_date(row: Row) -> str:
    """When the source was published, as far as known: MLPerf round, table of sources, year column."""
    if (name := mlperf_round(row)) in ROUND_DATES:
        return ROUND_DATES[name]
    title = row.text("source_title")
    for start, date in SOURCE_DATES.items():
        if title.startswith(start):
            return date
    return row.text("year")


def llm_engine(row: Row, catalog: Catalog) -> RowEngine:
    """The profile that served a row; `Unscored` where the text names no engine that is modelled."""
    text = row.text("engine").lower()
    if not text:
        raise Unscored("engine not stated")
    for words, name, remark in LLM_RULES:
        if all(word in text for word in words):
            return _at_release(row, name, [remark] if remark else [], catalog)
    if mlperf_round(row) and "NVIDIA" in row.text("device"):
        return _at_release(row, "tensorrt-llm", ["engine not named: TensorRT-LLM, as other rows of its maker"], catalog)
    raise Unscored(f"engine {row.text('engine')[:40]!r} is not modelled")


def _at_release(row: Row, name: str, fills: list[str], catalog: Catalog) -> RowEngine:
    if name not in _VERSIONED:
        return RowEngine(catalog.engine(name), tuple(fills))
    version = row.text("engine_version")
    if name == "vllm" and (found := _VLLM.search(row.text("engine"))) is not None:
        version = found.group(1)
    if any(character.isdigit() for character in version):
        return RowEngine(catalog.engine(name, version), tuple(fills))
    date = source_date(row)
    if not date:
        return RowEngine(catalog.engine(name), (*fills, "engine release unknown: the newest"))
    # A year alone means its end: "2024" sorts before "2024-03", so the last month is written out.
    whole = date if len(date) > 4 else f"{date}-12"
    return RowEngine(catalog.engine(name, date=whole), (*fills, f"engine release of {whole}"))
