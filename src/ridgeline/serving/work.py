"""What one kernel does, in operations and bytes, whatever it takes."""

from __future__ import annotations

from ridgeline.specs import bytes_per_element
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, ComputeOp


def op_flop(op: ComputeOp) -> float:
    """Operations of one kernel; attention counts the pairs of query and key that it needs."""
    if isinstance(op, AttentionPrefill):
        return attention_flop(op)
    if isinstance(op, AttentionDecode):
        pairs = op.batch_count * op.context_tokens * op.heads_count
        return 2.0 * pairs * (op.key_dim_count + op.value_dim_count)
    return op.flop


def attention_flop(op: AttentionPrefill) -> float:
    """Operations of scores and weighted values of a prefill: half of the new square where it is causal."""
    seen = op.key_tokens - (op.query_tokens - 1.0) / 2.0 if op.causal else op.key_tokens
    for bound in (op.window_tokens, op.selected_tokens):
        seen = min(seen, float(bound)) if bound is not None else seen
    pairs = op.batch_count * op.query_tokens * seen * op.heads_count
    return 2.0 * pairs * (op.key_dim_count + op.value_dim_count)


def op_bytes(op: ComputeOp) -> float:
    """Compulsory memory traffic of one kernel."""
    if isinstance(op, AttentionPrefill):
        width = bytes_per_element(op.precision) * (op.key_dim_count + op.value_dim_count)
        return op.batch_count * width * (op.heads_count * op.query_tokens + op.kv_heads_count * op.key_tokens)
    return op.bytes
