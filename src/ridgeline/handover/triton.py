"""Model configurations for Triton: a dynamically batched encoder with its tokenizer as an ensemble, or a vLLM model.

Fields are those of the model configuration of Triton (source triton-model-config).
"""

from __future__ import annotations

import json
import math

from ridgeline.handover.deployment import Deployment
from ridgeline.search.sizing_result import Pool

_MICROSECOND_S = 1e-6  # src: si-prefixes


def triton_files(deployment: Deployment) -> dict[str, str]:
    """A model repository: paths and contents; empty where Triton has no backend for the shape (pools of two kinds)."""
    if deployment.generates:
        return {} if len(deployment.pools) > 1 else _vllm_model(deployment, deployment.pools[0])
    return _encoder_models(deployment, deployment.pools[0])


def _vllm_model(deployment: Deployment, pool: Pool) -> dict[str, str]:
    """The vLLM backend: one instance that batches by itself; its arguments stand in model.json."""
    plan = pool.plan
    arguments: dict[str, object] = {
        "model": deployment.model_name,
        "tensor_parallel_size": plan.tensor_count,
        "pipeline_parallel_size": plan.pipeline_count,
        "max_model_len": deployment.context_tokens,
        "max_num_seqs": pool.batch_limit_count,
        "max_num_batched_tokens": max(pool.batch_tokens_count, pool.batch_limit_count),
        "gpu_memory_utilization": deployment.memory_frac,
    }
    if plan.kv_precision == "fp8":
        arguments["kv_cache_dtype"] = "fp8"
    if plan.weight_precision == "fp8" and not deployment.quantised:
        arguments["quantization"] = "fp8"
    folder = f"triton/{deployment.name}"
    return {
        f"{folder}/config.pbtxt": 'backend: "vllm"\ninstance_group [\n  { count: 1 kind: KIND_MODEL }\n]\n',
        f"{folder}/1/model.json": json.dumps(arguments, indent=2) + "\n",
    }


def queue_delay_s(deployment: Deployment, pool: Pool) -> float:
    """Longest that a request may be held back for a fuller batch: what the limit leaves, at most the time of a batch.

    While a batch runs the next one gathers anyway; holding back helps idle devices alone, so without a limit it is half
    the time of a batch.
    """
    step_s = pool.step.value
    limit = deployment.load.e2e_p95_s
    if limit is None:
        return step_s / 2
    return max(0.0, min(step_s, limit - deployment.sized.latencies.e2e_p95_s))


def _encoder_models(deployment: Deployment, pool: Pool) -> dict[str, str]:
    """Tokenizer (Python, on the host) and encoder (ONNX Runtime, dynamically batched), and both as one ensemble.

    One instance of the encoder on each device that a server sees.
    """
    largest = max(1, pool.batch_limit_count)
    usual = max(1, min(largest, round(pool.running_count)))
    preferred = ", ".join(str(size) for size in dict.fromkeys((usual, largest)))
    delay = math.floor(queue_delay_s(deployment, pool) / _MICROSECOND_S)
    length = math.ceil(deployment.load.input_tokens)
    encoder, tokenizer, whole = (f"{deployment.name}-{part}" for part in ("encoder", "tokenizer", "ensemble"))
    tensors = ("input_ids", "attention_mask")
    encoder_text = (
        f'name: "{encoder}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: {largest}\n'
        + _list("input", [f'name: "{name}" data_type: TYPE_INT64 dims: [ {length} ]' for name in tensors])
        + _list("output", ['name: "embedding" data_type: TYPE_FP32 dims: [ -1 ]'])
        + f"dynamic_batching {{\n  preferred_batch_size: [ {preferred} ]\n"
        f"  max_queue_delay_microseconds: {delay}\n}}\n"
        "instance_group [\n  { count: 1 kind: KIND_GPU }\n]\n"
    )
    tokenizer_text = (
        f'name: "{tokenizer}"\nbackend: "python"\nmax_batch_size: {largest}\n'
        + _list("input", ['name: "text" data_type: TYPE_STRING dims: [ 1 ]'])
        + _list("output", [f'name: "{name}" data_type: TYPE_INT64 dims: [ {length} ]' for name in tensors])
        + "dynamic_batching { }\ninstance_group [\n  { count: 1 kind: KIND_CPU }\n]\n"
    )
    first = "".join(_mapped("output_map", name, name) for name in tensors)
    second = "".join(_mapped("input_map", name, name) for name in tensors)
    whole_text = (
        f'name: "{whole}"\nplatform: "ensemble"\nmax_batch_size: {largest}\n'
        + _list("input", ['name: "text" data_type: TYPE_STRING dims: [ 1 ]'])
        + _list("output", ['name: "embedding" data_type: TYPE_FP32 dims: [ -1 ]'])
        + "ensemble_scheduling {\n  step [\n"
        + f'    {{ model_name: "{tokenizer}" model_version: -1\n{_mapped("input_map", "text", "text")}{first}    }},\n'
        + f'    {{ model_name: "{encoder}" model_version: -1\n{second}{_mapped("output_map", "embedding", "embedding")}'
        + "    }\n  ]\n}\n"
    )
    texts = {encoder: encoder_text, tokenizer: tokenizer_text, whole: whole_text}
    return {f"triton/{name}/config.pbtxt": text for name, text in texts.items()}


def _list(name: str, items: list[str]) -> str:
    inner = ",\n".join(f"  {{ {item} }}" for item in items)
    return f"{name} [\n{inner}\n]\n"


def _mapped(name: str, key: str, value: str) -> str:
    return f'      {name} {{ key: "{key}" value: "{value}" }}\n'
