"""How many sequences fit: memory of one device as an engine divides it, and the limits of its scheduler."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.core import Breakdown, leaf, total
from ridgeline.core import model as formula
from ridgeline.serving.job import ServingJob
from ridgeline.specs import Layer, ServingPlan, bytes_per_element
from ridgeline.workload.placement import (
    attention_tensor_count,
    cache_bytes_per_device,
    local_linear,
    weight_bytes_per_device,
    wide_precision,
)

# Hidden states that live at once through a layer: the residual, the normed input and the output in the making.
_LIVE_HIDDEN = 3.0  # src: rl-derivation
# Tokens of the profiling or warm-up pass where neither plan nor engine bounds a step.
_UNBOUNDED_TOKENS = 8192.0  # src: rl-derivation


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What one replica can hold.

    `memory` [B] splits one device: weights, key-value pool, workspace, context and what the engine leaves unused; it
    adds up to `available_bytes`. `pool_bytes` may be negative: the weights do not fit. `cache_bytes_per_sequence`: of
    one device, for a sequence of the length that admission reserves; `request_bytes`: of one device, for a request
    whose last token is out, which must fit even where admission reserves less. `running_count`: most sequences at once
    (fractions are means), `binding` names what limits them: "key-value pool", "max batch", "token budget", "memory".
    `cache_tokens_count`: tokens that the pools of a replica hold in sequences of that length (0 without a cache).
    """

    memory: Breakdown
    available_bytes: float
    pool_bytes: float
    cache_bytes_per_sequence: float
    request_bytes: float
    running_count: float
    binding: str
    cache_tokens_count: float

    @property
    def fits(self) -> bool:
        """Whether the weights fit and one request can run to its last token: alone, no other can make room for it."""
        return self.pool_bytes >= 0 and self.running_count >= 1 and self.request_bytes <= self.pool_bytes


def capacity(job: ServingJob) -> Capacity:
    """Pool and sequences of one replica of `job`.

    "total": pool = frac * memory - weights - workspace - context; "free": pool = frac * (memory - weights - workspace
    - context); "static": pool = frac * memory - weights, everything else lives in the rest; "none": what is left.
    Memory is what the driver offers (an "80 GB" part may offer more than 80e9 bytes). Sequences: pool over the cache of
    one sequence, in whole blocks, at its full length where admission never evicts, at its mean length where it does;
    then the scheduler's limits.
    """
    engine, chip = job.engine, job.system.chip
    available = job.memory_bytes if job.memory_bytes is not None else chip.memory_bytes()
    weights = weight_bytes_per_device(job.model, job.plan)
    workspace = workspace_bytes(job) + engine.workspace_bytes
    pool = _pool_bytes(job, available, weights, workspace)
    reserved = reserved_tokens(job)
    each = sequence_cache_bytes(job, reserved)
    count, binding = _running(job, pool, each)
    groups = job.plan.attention_data_count
    pooled = max(0.0, pool) if job.model.main.role == "decoder" else 0.0
    leaves = [
        leaf("weights", weights, "B", model="serving-weight-bytes"),
        *(
            [leaf("key-value pool", pooled, "B", model="kv-pool", uses=(engine.fact_id("pool_frac"),))]
            if pooled
            else []
        ),
        leaf("workspace", workspace, "B", model="serving-workspace"),
        leaf("context", engine.context_bytes, "B", uses=(engine.fact_id("context_bytes"),)),
    ]
    used = math.fsum(item.value for item in leaves)
    short = max(0.0, -pool)
    leaves.append(leaf("unused", available - used + short, "B", uses=(chip.fact_id("memory_usable_bytes"),)))
    if short > 0:
        leaves.append(leaf("missing", -short, "B"))
    return Capacity(
        memory=total("device memory", "B", leaves),
        available_bytes=available,
        pool_bytes=pool,
        cache_bytes_per_sequence=each,
        request_bytes=sequence_cache_bytes(job, full_tokens(job)),
        running_count=count,
        binding=binding,
        cache_tokens_count=groups * max(0.0, pool) / each * reserved if each > 0 else 0.0,
    )


def _pool_bytes(job: ServingJob, available: float, weights: float, workspace: float) -> float:
    engine = job.engine
    return pool_bytes(engine.pool_basis, engine.pool_frac, available, weights, workspace + engine.context_bytes)


@formula(id="kv-pool", sources=("vllm-docs", "trtllm-docs", "sglang-docs"))
def pool_bytes(basis: str, pool_frac: float, available_bytes: float, weight_bytes: float, other_bytes: float) -> float:
    """Bytes of the key-value pool of one device, by the engine's rule (see `capacity`).

    >>> pool_bytes("free", 0.9, 80e9, 70e9, 4e9), pool_bytes("total", 0.9, 80e9, 60e9, 4e9)
    (5400000000.0, 8000000000.0)
    """
    left = available_bytes - weight_bytes - other_bytes
    if basis == "free":
        return pool_frac * left if left > 0 else left
    if basis == "total":
        return pool_frac * available_bytes - weight_bytes - other_bytes
    if basis == "static":
        return min(pool_frac * available_bytes - weight_bytes, left)
    return left


@formula(id="serving-workspace", sources=("rl-derivation", "vllm-docs"))
def workspace_bytes(job: ServingJob) -> float:
    """Activations at the largest step that the scheduler may make: what an engine measures before it sizes its pool.

    Tokens of a step * (live hidden states + the widest products of a layer, those of experts once for each expert that
    a token goes to, in and out) * width, plus logits of a full batch in fp32. Encoders: the tokens of one batch.
    """
    plan, model = job.plan, job.model
    wide = bytes_per_element(wide_precision(plan))
    tokens = min(job.max_batch_tokens, _largest_step_tokens(job))
    widest = max((_widest_count(run.layer, plan) for run in model.main.runs), default=0.0)
    held = tokens * (_LIVE_HIDDEN * model.hidden_count + widest) * wide
    if model.head is not None:
        rows = min(job.max_batch_count, _largest_batch(job))
        held += rows * model.head.outputs_count / attention_tensor_count(plan) * bytes_per_element("fp32")
    return held


def _widest_count(layer: Layer, plan: ServingPlan) -> float:
    """Elements that the products of one layer write for each token."""
    written = 0.0
    for linear in layer.linears:
        if linear.split == "column" or linear.role == "expert":
            written += local_linear(linear, plan).outputs_count * linear.active_count
    return written


def _largest_batch(job: ServingJob) -> float:
    if job.load.concurrency_count is not None:
        return max(1.0, job.load.concurrency_count / job.plan.replica_count / job.plan.attention_data_count)
    return job.max_batch_count if math.isfinite(job.max_batch_count) else 256.0  # src: rl-derivation


def _largest_step_tokens(job: ServingJob) -> float:
    if job.engine.batching == "continuous" and job.generates:
        # Such engines size their pool once, for the largest step that they may ever make.
        return _UNBOUNDED_TOKENS if math.isinf(job.max_batch_tokens) else job.max_batch_tokens
    if job.load.static_batch or not job.generates:
        return max(1.0, job.load.concurrency_count or 1.0) * job.prompt_tokens / job.plan.attention_data_count
    return _UNBOUNDED_TOKENS


def reserved_tokens(job: ServingJob) -> float:
    """Cached tokens for which admission makes room: the full length, or the mean of a running sequence."""
    full = full_tokens(job)
    if job.engine.admission == "evict" and not job.load.static_batch:
        return (job.prompt_tokens + full) / 2
    return full


def full_tokens(job: ServingJob) -> float:
    """Cached tokens of a request whose last token is out: the prompt and what all of its beams generated."""
    generated = job.load.beams_count * job.load.output_tokens if job.generates else 0.0
    return job.prompt_tokens + generated


def sequence_cache_bytes(job: ServingJob, tokens: float) -> float:
    """Cache of one sequence of `tokens` on one device, rounded up to whole blocks; 0 for models without a cache."""
    if job.model.main.role != "decoder":
        return 0.0
    block = float(job.engine.block_tokens)
    rounded = math.ceil(tokens / block) * block
    return cache_bytes_per_device(job.model, job.plan, rounded, job.encoder_tokens, job.engine.window_cache)


def _running(job: ServingJob, pool: float, each: float) -> tuple[float, str]:
    groups = job.plan.attention_data_count
    if pool < 0:
        return 0.0, "memory"
    limits = {"max batch": job.max_batch_count * job.schedulers_count}
    if each > 0:
        limits["key-value pool"] = float(groups * math.floor(pool / each))
    if job.generates and not job.load.static_batch:
        limits["token budget"] = token_budget_count(job)
    binding = min(limits, key=limits.__getitem__)
    return limits[binding], binding


def token_budget_count(job: ServingJob) -> float:
    """Running sequences at which decode tokens and the prompts that replace finished ones fill the token budget.

    In steady state N sequences finish at N / (out - 1 + pieces) a step, so a step carries N (1 + in/out) tokens; the
    budget is that of one scheduler, of which there is one a pipeline stage and attention group.
    """
    budget = job.max_batch_tokens * job.schedulers_count
    if not math.isfinite(budget) or not job.engine.mixed_steps:
        return math.inf
    beams = job.load.beams_count
    return max(1.0, budget / (beams + job.prompt_tokens / max(1.0, job.load.output_tokens)))
