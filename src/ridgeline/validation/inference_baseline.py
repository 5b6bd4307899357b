"""The naive figure of a serving row: flat shares of peak and bandwidth on the model's own work."""

from __future__ import annotations

from ridgeline.errors import RidgelineError
from ridgeline.serving import ServingEstimate
from ridgeline.validation.baseline import compute_baseline_s, decode_baseline_s
from ridgeline.validation.inference_cases import LlmCase
from ridgeline.workload.flop import forward_flop_per_token
from ridgeline.workload.placement import cache_bytes_per_device, weight_bytes_per_device


def llm_baseline(case: LlmCase, estimate: ServingEstimate, metric: str) -> float | None:
    """Naive figure in the unit of `metric`; None where a peak or bandwidth is not published.

    Prompts cost their FLOP at half of the peak. A decode step reads the weights of the device and the caches of its
    batch at 60 % of the bandwidth; at maximum load, where no batch is given, output tokens cost their FLOP too.
    """
    try:
        return _figure(case, estimate, metric)
    except RidgelineError:
        return None


def _figure(case: LlmCase, estimate: ServingEstimate, metric: str) -> float | None:
    load, plan = case.load, estimate.plan
    replicas = plan.replica_count
    prompt_s = _prompt_s(case, estimate)
    if case.mode == "maximum":
        each_s = prompt_s + _token_s(case, estimate) * load.output_tokens
        rate = replicas / each_s
        return _rate(rate, load.input_tokens, load.output_tokens, plan.devices_count, metric)
    count = max(1.0, (load.concurrency_count or 1.0) / replicas)
    step_s = decode_baseline_s(_step_bytes(case, estimate, count), case.system.chip, plan.devices_per_replica_count)
    tpot_s = step_s + (0.0 if case.mode == "static" else count * prompt_s / max(1.0, load.output_tokens))
    ttft_s = prompt_s * (count if case.mode == "static" else 1.0)
    e2e_s = ttft_s + max(0.0, load.output_tokens - 1.0) * tpot_s
    times = {"ttft_ms": ttft_s, "tpot_ms": tpot_s, "latency_ms": e2e_s}
    if metric in times:
        return times[metric] * 1e3
    if metric == "decode_tok_s":
        return count / step_s
    if metric == "prefill_tok_s":
        return load.input_tokens / prompt_s
    if load.rate_per_s is not None:
        return _rate(load.rate_per_s, load.input_tokens, load.output_tokens, plan.devices_count, metric)
    return _rate(replicas * count / e2e_s, load.input_tokens, load.output_tokens, plan.devices_count, metric)


def _rate(requests_per_s: float, prompt: float, output: float, devices: int, metric: str) -> float | None:
    return {
        "requests_s": requests_per_s,
        "output_tok_s_total": requests_per_s * output,
        "total_tok_s": requests_per_s * (prompt + output),
        "tok_s_per_device": requests_per_s * output / devices,
    }.get(metric)


def _prompt_s(case: LlmCase, estimate: ServingEstimate) -> float:
    tokens = case.load.input_tokens
    flop = forward_flop_per_token(case.model, max(1.0, tokens)) * tokens
    plan = estimate.plan
    return compute_baseline_s(flop, case.system.chip, plan.activation_precision, plan.devices_per_replica_count)


def _token_s(case: LlmCase, estimate: ServingEstimate) -> float:
    flop = forward_flop_per_token(case.model, case.load.total_tokens)
    plan = estimate.plan
    return compute_baseline_s(flop, case.system.chip, plan.activation_precision, plan.devices_per_replica_count)


def _step_bytes(case: LlmCase, estimate: ServingEstimate, count: float) -> float:
    """Weights that a token uses and caches of the batch, on all devices of a replica."""
    plan, model = estimate.plan, case.model
    devices = plan.tensor_count * plan.pipeline_count
    used = model.active_parameters_count / model.parameters_count
    reached = min(1.0, used * count)
    weights = weight_bytes_per_device(model, plan) * devices * max(used, reached)
    context = case.load.input_tokens + case.load.output_tokens / 2
    each = cache_bytes_per_device(model, plan, context) * devices
    return weights + count * each / plan.attention_data_count
