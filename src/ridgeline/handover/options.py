"""Names of the options that are written, as each tool's own source or documentation gives them."""

from __future__ import annotations

from ridgeline.errors import UnknownName

# The version, where its names were read, and the names; nothing else is ever written into a command line.
VLLM_READ = "vLLM 0.32.0, vllm/engine/arg_utils.py (the same names since 0.11)"
VLLM = frozenset(
    {
        "--host",
        "--port",
        "--dtype",
        "--quantization",
        "--kv-cache-dtype",
        "--max-model-len",
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--gpu-memory-utilization",
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--data-parallel-size",
        "--enable-expert-parallel",
        "--kv-transfer-config",
    }
)  # src: vllm-source
SGLANG_READ = "SGLang 0.5.23, sglang/srt/arg_groups; docs/advanced_features/server_arguments.md"
SGLANG = frozenset(
    {
        "--model-path",
        "--host",
        "--port",
        "--dtype",
        "--quantization",
        "--kv-cache-dtype",
        "--context-length",
        "--max-running-requests",
        "--chunked-prefill-size",
        "--max-prefill-tokens",
        "--mem-fraction-static",
        "--tp-size",
        "--pp-size",
        "--dp-size",
        "--ep-size",
        "--enable-dp-attention",
        "--disaggregation-mode",
        "--disaggregation-transfer-backend",
    }
)  # src: sglang-docs
TRTLLM_SERVE_READ = "TensorRT-LLM, tensorrt_llm/commands/serve.py at 00209af149e7"
TRTLLM_SERVE = frozenset(
    {
        "--host",
        "--port",
        "--backend",
        "--max_batch_size",
        "--max_num_tokens",
        "--max_seq_len",
        "--tp_size",
        "--pp_size",
        "--ep_size",
        "--kv_cache_free_gpu_memory_fraction",
        "--enable_chunked_prefill",
        "--extra_llm_api_options",
    }
)  # src: trtllm-serve
TRTLLM_BUILD_READ = "TensorRT-LLM, tensorrt_llm/commands/build.py at 65f1d1536e18"
TRTLLM_BUILD = frozenset(
    {
        "--checkpoint_dir",
        "--output_dir",
        "--max_batch_size",
        "--max_num_tokens",
        "--max_input_len",
        "--max_seq_len",
        "--gemm_plugin",
    }
)  # src: trtllm-serve

KNOWN = {"vllm": VLLM, "sglang": SGLANG, "trtllm-serve": TRTLLM_SERVE, "trtllm-build": TRTLLM_BUILD}
READ = {
    "vllm": VLLM_READ,
    "sglang": SGLANG_READ,
    "trtllm-serve": TRTLLM_SERVE_READ,
    "trtllm-build": TRTLLM_BUILD_READ,
}


def checked(tool: str, words: list[str]) -> list[str]:
    """`words` of a command line, every option of which `tool` has.

    >>> checked("vllm", ["vllm", "serve", "m", "--max-num-seqs", "8"])[-1]
    '8'
    """
    for word in words:
        if word.startswith("--") and word not in KNOWN[tool]:
            raise UnknownName(f"option of {tool}", word, KNOWN[tool])
    return words
