"""What one replica can hold and take on, as the whole numbers that the loop counts with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ridgeline.serving.capacity import capacity, sequence_cache_bytes
from ridgeline.serving.estimate import require_room
from ridgeline.serving.job import ServingJob, padded_tokens
from ridgeline.specs.requests import Counts, Requests

# No limit, as a whole number that can still be added to.
UNLIMITED = 2**40  # src: rl-numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLimits:
    """`blocks_count` of `block_tokens` in the pool (`fixed_blocks` more a sequence), `block_bytes` on one device; most
    sequences at once; tokens of a step in all and of one prompt."""

    blocks_count: int
    block_tokens: int
    fixed_blocks: int
    block_bytes: float
    sequences_count: int
    step_tokens: int
    chunk_tokens: int


def replica_limits(job: ServingJob, requests: Requests) -> ReplicaLimits:
    """Limits of one replica of `job` under `requests`.

    Raises `OutOfMemory` where weights or a request of mean length do not fit. A cache that does not grow evenly with
    the length (windows, states of recurrences) is taken as a fixed part and blocks, exact at one block and at the
    mean length.
    """
    inputs, outputs = float(requests.input_tokens.mean()), float(requests.output_tokens.mean())
    job = job.with_load(
        input_tokens=max(1.0, inputs), output_tokens=max(1.0, outputs), rate_per_s=None, concurrency_count=None
    )
    room = capacity(job)
    require_room(job, room)
    block = max(1, job.engine.block_tokens)
    one = sequence_cache_bytes(job, block)
    whole = max(2, math.ceil((inputs + outputs) / block))
    each = (sequence_cache_bytes(job, whole * block) - one) / (whole - 1.0)
    groups = job.plan.attention_data_count
    if each > 0:
        blocks, fixed = math.floor(groups * room.pool_bytes / each), max(0, round(one / each - 1.0))
    elif one > 0:
        blocks, fixed, block, each = math.floor(groups * room.pool_bytes / one), 0, UNLIMITED, one
    else:
        blocks, fixed = UNLIMITED, 0
    sequences = _whole(job.max_batch_count * job.schedulers_count)
    return ReplicaLimits(
        blocks_count=blocks,
        block_tokens=block,
        fixed_blocks=fixed,
        block_bytes=each,
        sequences_count=max(1, min(sequences, blocks, max(1, requests.count))),
        step_tokens=_whole(job.max_batch_tokens * job.schedulers_count),
        chunk_tokens=_whole(job.max_batch_tokens),
    )


def read_tokens(job: ServingJob, requests: Requests) -> Counts:
    """Tokens that the engine reads for each prompt: compiled shapes are longer than what is in them."""
    bucket = job.engine.bucket_tokens
    if bucket <= 0:
        return requests.input_tokens
    lengths, index = np.unique(requests.input_tokens, return_inverse=True)
    padded = np.array([int(padded_tokens(float(length), bucket)) for length in lengths], dtype=np.int64)
    found: Counts = padded[index]
    return found


def _whole(limit: float) -> int:
    return int(limit) if math.isfinite(limit) else UNLIMITED
