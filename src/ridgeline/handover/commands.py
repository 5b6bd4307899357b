"""Command lines of vLLM, SGLang and TensorRT-LLM for each pool of a deployment."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from typing import Any

from ridgeline.handover.deployment import Deployment
from ridgeline.handover.options import checked
from ridgeline.search.sizing_result import Pool

PORT = 8000
_WIDE = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_VLLM_QUANTISED = {"fp8": "fp8"}  # made on loading; other formats are those of the checkpoint
_SGLANG_QUANTISED = {"fp8": "fp8", "mxfp4": "mxfp4", "mxfp8": "mxfp8"}
_VLLM_CACHE = {"fp8": "fp8"}
_SGLANG_CACHE = {"fp8": "fp8_e4m3", "fp4": "fp4_e2m1"}
_TRTLLM_CACHE = {"fp8": "fp8", "nvfp4": "nvfp4"}


def vllm_command(deployment: Deployment, pool: Pool) -> list[str]:
    """`vllm serve` for one engine of `pool`.

    Attention that is data-parallel inside an engine is vLLM's data parallelism with experts over all its devices.
    """
    plan = pool.plan
    words = ["vllm", "serve", deployment.model_name, "--host", "0.0.0.0", "--port", str(PORT)]
    words += _numbers(
        {
            "--tensor-parallel-size": plan.tensor_count // plan.attention_data_count,
            "--pipeline-parallel-size": plan.pipeline_count if plan.pipeline_count > 1 else None,
            "--data-parallel-size": plan.attention_data_count if plan.attention_data_count > 1 else None,
            "--max-model-len": deployment.context_tokens,
            "--max-num-seqs": pool.batch_limit_count,
            "--max-num-batched-tokens": _budget(deployment, pool),
        }
    )
    words += ["--gpu-memory-utilization", f"{_memory_frac(deployment, 'vllm'):g}"]
    if plan.expert_count > 1:
        words.append("--enable-expert-parallel")
    words += _formats(deployment, pool, _VLLM_QUANTISED, _VLLM_CACHE)
    if pool.role != "both":
        role = "kv_producer" if pool.role == "prefill" else "kv_consumer"
        words += ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})]
    return checked("vllm", words)


def sglang_command(deployment: Deployment, pool: Pool) -> list[str]:
    """`python -m sglang.launch_server` for one engine of `pool`."""
    plan = pool.plan
    words = ["python3", "-m", "sglang.launch_server", "--model-path", deployment.model_name]
    words += ["--host", "0.0.0.0", "--port", str(PORT)]
    words += _numbers(
        {
            "--tp-size": plan.tensor_count,
            "--pp-size": plan.pipeline_count if plan.pipeline_count > 1 else None,
            "--dp-size": plan.attention_data_count if plan.attention_data_count > 1 else None,
            "--ep-size": plan.expert_count if plan.expert_count > 1 else None,
            "--context-length": deployment.context_tokens,
            "--max-running-requests": pool.batch_limit_count * plan.attention_data_count,
            "--chunked-prefill-size": _budget(deployment, pool),
        }
    )
    if plan.attention_data_count > 1:
        words.append("--enable-dp-attention")
    words += _formats(deployment, pool, _SGLANG_QUANTISED, _SGLANG_CACHE)
    if pool.role != "both":
        words += ["--disaggregation-mode", pool.role, "--disaggregation-transfer-backend", "nixl"]
    return checked("sglang", words)


def trtllm_command(deployment: Deployment, pool: Pool, settings_file: str) -> list[str]:
    """`trtllm-serve` for one engine of `pool`; what has no option stands in `settings_file` (`trtllm_settings`)."""
    plan = pool.plan
    words = ["trtllm-serve", deployment.model_name, "--host", "0.0.0.0", "--port", str(PORT), "--backend", "pytorch"]
    words += _numbers(
        {
            "--tp_size": plan.tensor_count,
            "--pp_size": plan.pipeline_count if plan.pipeline_count > 1 else None,
            "--ep_size": plan.expert_count if plan.expert_count > 1 else None,
            "--max_batch_size": pool.batch_limit_count,
            "--max_num_tokens": _budget(deployment, pool),
            "--max_seq_len": deployment.context_tokens,
        }
    )
    words += ["--kv_cache_free_gpu_memory_fraction", f"{_memory_frac(deployment, 'tensorrt-llm'):g}"]
    words += ["--enable_chunked_prefill", "--extra_llm_api_options", settings_file]
    return checked("trtllm-serve", words)


def trtllm_settings(deployment: Deployment, pool: Pool) -> dict[str, Any]:
    """The YAML beside `trtllm-serve`: cache format, attention data parallelism, transfer of caches."""
    cache: dict[str, Any] = {"free_gpu_memory_fraction": _memory_frac(deployment, "tensorrt-llm")}
    if pool.plan.kv_precision in _TRTLLM_CACHE:
        cache["dtype"] = _TRTLLM_CACHE[pool.plan.kv_precision]
    settings: dict[str, Any] = {"kv_cache_config": cache}
    if pool.plan.attention_data_count > 1:
        settings["enable_attention_dp"] = True
    if pool.role != "both":
        settings["cache_transceiver_config"] = {"backend": "DEFAULT"}
    if pool.role == "prefill":
        settings["disable_overlap_scheduler"] = True
    return settings


def trtllm_build_command(deployment: Deployment, pool: Pool) -> list[str]:
    """`trtllm-build` of a TensorRT engine from a converted checkpoint (whose conversion fixes formats and degrees)."""
    words = ["trtllm-build", "--checkpoint_dir", f"checkpoint-{pool.role}", "--output_dir", f"engine-{pool.role}"]
    words += _numbers(
        {
            "--max_batch_size": pool.batch_limit_count,
            "--max_num_tokens": _budget(deployment, pool),
            "--max_input_len": math.ceil(deployment.load.input_tokens),
            "--max_seq_len": deployment.context_tokens,
        }
    )
    return checked("trtllm-build", [*words, "--gemm_plugin", "auto"])


def disaggregated_settings(deployment: Deployment) -> dict[str, Any]:
    """The YAML of `trtllm-serve disaggregated`: which servers read prompts and which decode."""
    by_role = {pool.role: pool for pool in deployment.pools}
    return {
        "hostname": "0.0.0.0",
        "port": PORT,
        "backend": "pytorch",
        "context_servers": _servers(deployment, by_role["prefill"]),
        "generation_servers": _servers(deployment, by_role["decode"]),
    }


def _servers(deployment: Deployment, pool: Pool) -> dict[str, Any]:
    count = pool.plan.replica_count
    urls = [f"{deployment.name}-{pool.role}-{index}:{PORT}" for index in range(count)]
    return {"num_instances": count, "urls": urls}


def script(comments: Sequence[str], commands: Sequence[Sequence[str]]) -> str:
    """Command lines as a shell script, one option a line."""
    lines = ["#!/bin/sh", *(f"# {text}" for text in comments), "set -eu"]
    for words in commands:
        lines += ["", _folded(words)]
    return "\n".join(lines) + "\n"


def _folded(words: Sequence[str]) -> str:
    parts: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        if word.startswith("--") or not parts:
            parts.append(quoted)
        else:
            parts[-1] += f" {quoted}"
    return " \\\n  ".join(parts)


def _numbers(options: dict[str, int | None]) -> list[str]:
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def _budget(deployment: Deployment, pool: Pool) -> int:
    """Tokens of a step: not below a full batch of single tokens, which engines refuse."""
    return max(pool.batch_tokens_count, pool.batch_limit_count)


def _memory_frac(deployment: Deployment, engine: str) -> float:
    """Share of the memory for weights and cache: that of the modelled engine where it is the one, else 0.9."""
    return deployment.memory_frac if deployment.engine.startswith(engine) else 0.9


def _formats(deployment: Deployment, pool: Pool, quantised: dict[str, str], caches: dict[str, str]) -> list[str]:
    plan, words = pool.plan, []
    if plan.weight_precision in _WIDE and not deployment.quantised:
        words += ["--dtype", _WIDE[plan.weight_precision]]
    elif plan.weight_precision in quantised and not deployment.quantised:
        words += ["--quantization", quantised[plan.weight_precision]]
    if plan.kv_precision in caches:
        words += ["--kv-cache-dtype", caches[plan.kv_precision]]
    return words
