"""What surrounds the layers in training: token embedding, output matrix with its loss, the optimizer's step."""

from __future__ import annotations

from ridgeline.specs import Transformer
from ridgeline.specs.software import SoftwareProfile
from ridgeline.workload.layers import LayerOps, gradient_gemms, input_gemm
from ridgeline.workload.ops import Collective, CollectiveKind, Elementwise, Op, Repeated
from ridgeline.workload.training_shapes import LayerShape, projection
from ridgeline.workload.training_streams import buffer_bytes, gradient_format

_MASK_BYTES = 1.0  # one byte an element, as frameworks store a dropout mask

# Norm (1), scaling (4), first moment (2+3), second moment (2+3), root, epsilon and quotient (2+2+3), decay (2+3), rate,
# sign and subtraction (2+2+3), in fp32 accesses of one parameter each.
_EAGER_ADAM_ACCESSES = 34.0  # src: nvidia-bert-optimization

# Bytes moved for one logit, forward and backward, logits arriving in 16 bit (2 B) and softmax in fp32 (4 B).
# eager: to fp32 (2+4), log-softmax (4+4), gradient (4+4), back to 16 bit (4+2).
# split: to fp32 (2+4), maximum (4), subtract (4+4), exponential (4+4), sum (4), divide (4+4); gradient scaled (4+4),
#   back (4+2): the kernels of Megatron's vocabulary-parallel loss one by one.
# fused: to fp32 with maximum (2+4), subtract, exponential and sum (4+4), divide (4+4); gradient to 16 bit (4+2).
# in-place: one pass for the statistics (2), one that leaves the gradient in the logits (2+2), scaling it (2+2).
# chunked: as fused, on pieces that are never kept.
LOSS_BYTES: dict[str, tuple[float, float, float]] = {  # forward, backward, kernels
    "eager": (14.0, 14.0, 6.0),  # src: pytorch-cross-entropy-accesses
    "split": (38.0, 14.0, 9.0),  # src: megatron-vocab-parallel-loss
    "fused": (22.0, 6.0, 4.0),  # src: megatron-fused-loss
    "in-place": (6.0, 4.0, 3.0),  # src: transformer-engine-loss
    "chunked": (22.0, 6.0, 8.0),  # src: liger-fused-linear-loss
}


def embedding_ops(model: Transformer, shape: LayerShape, software: SoftwareProfile) -> LayerOps:
    """Token embedding of one micro-batch: rows gathered, and their gradients scattered into a table's gradient.

    A vocabulary-parallel table is summed over the tensor group. The gradient of the table is as large as the table:
    it is cleared, filled, and added to the buffer once a micro-batch.
    """
    wide, rows, hidden = shape.stream_bytes, shape.rows, model.hidden_count
    table = model.vocab_count * hidden / shape.tensor_count
    moved = rows * hidden * wide * (1.0 + 1.0 / shape.tensor_count)
    if software.dropout:
        moved += shape.residual_rows * hidden * (2 * wide + _MASK_BYTES + 2 * software.random_bytes)
    forward: list[Op] = [Elementwise(name="embedding", kind="embedding", bytes=moved, launches_count=2.0)]
    filled = table * wide * 2 + (table * 2 * buffer_bytes(shape, software) if software.states == "copy" else 0.0)
    back = rows * hidden * wide * 2 + filled * (1.0 if shape.trainable_frac == 1 else 0.0)
    launches = 3.0  # src: pytorch-embedding-backward
    backward: list[Op] = [Elementwise(name="embedding backward", kind="embedding", bytes=back, launches_count=launches)]
    if shape.tensor_count > 1:
        kind: CollectiveKind = "reduce_scatter" if shape.sequence_parallel else "all_reduce"
        size = rows * hidden * wide
        forward.append(
            Collective(name="tensor reduce embedding", kind=kind, message_bytes=size, group=shape.tensor_group)
        )
        if shape.sequence_parallel:
            gather = Collective(
                name="tensor gather embedding", kind="all_gather", message_bytes=size, group=shape.tensor_group
            )
            backward.append(gather)
    return _ops(forward, backward)


def ahead_ops(model: Transformer, shape: LayerShape, software: SoftwareProfile) -> LayerOps:
    """What a module of multi-token prediction has beside its layers and the head: the embedding of the next token,
    norms of both inputs, and the matrix that joins them (its inputs written side by side).
    """
    if model.ahead is None:
        return _ops([], [])
    wide, rows, hidden = shape.stream_precision, shape.rows, model.hidden_count
    stream = shape.residual_rows * hidden * shape.stream_bytes
    found = embedding_ops(model, shape, software)
    forward, backward = [item.op for item in found.forward], [item.op for item in found.backward]
    buffer = gradient_format(software.gradient_precision, shape)
    for joint in (projection(item, shape.tensor_count) for item in model.ahead.linears):
        forward.append(input_gemm(joint, rows, wide, wide))
        backward += gradient_gemms(joint, rows, wide, wide, buffer)
    forward.append(Elementwise(name="norms of both inputs", kind="norm", bytes=2 * 2 * stream, launches_count=2.0))
    forward.append(Elementwise(name="inputs side by side", kind="other", bytes=2 * 2 * stream))
    gradient = 3 * stream  # src: chain-rule-accesses
    backward.append(Elementwise(name="norms backward", kind="norm", bytes=2 * gradient, launches_count=2.0))
    return _ops(forward, backward)


def head_ops(model: Transformer, shape: LayerShape, software: SoftwareProfile) -> LayerOps:
    """Output matrix and loss of one micro-batch, the vocabulary split over the tensor group.

    Final norm, logits, cross entropy, and their gradients; the statistics of the loss (maximum, sum, the target's
    logit) are summed over the tensor group. Metrics of the trainer read the logits again, forward only.
    """
    if model.head is None:
        return _ops([], [])
    item = projection(model.head, shape.tensor_count)
    wide, rows = shape.stream_precision, shape.rows * (item.rows_per_token or 1.0)
    logits = rows * item.outputs_count
    forward_bytes, backward_bytes, kernels = LOSS_BYTES[software.loss]
    norm = shape.residual_rows * model.hidden_count * shape.stream_bytes
    buffer = gradient_format(software.gradient_precision, shape)
    gradients = gradient_gemms(item, rows, wide, wide, buffer)
    kept = 0.0 if software.states == "master-only" else item.weights_count * buffer_bytes(shape, software)
    forward: list[Op] = [
        Elementwise(name="final norm", kind="norm", bytes=2 * norm),
        input_gemm(item, rows, wide, wide),
        Elementwise(name="loss", kind="loss", bytes=logits * forward_bytes, launches_count=kernels),
    ]
    if software.logit_metrics_count:
        metric_bytes, _, metric_kernels = LOSS_BYTES["eager"]
        count = software.logit_metrics_count
        moved, launches = count * logits * metric_bytes, count * metric_kernels
        forward.append(Elementwise(name="metrics", kind="loss", bytes=moved, launches_count=launches))
    backward: list[Op] = [
        Elementwise(name="loss backward", kind="loss", bytes=logits * backward_bytes, launches_count=2.0),
        gradients[0],
    ]
    if shape.trainable_frac == 1:
        backward.append(gradients[1])
        backward.append(Elementwise(name="head gradient accumulation", kind="accumulate", bytes=kept))
    backward.append(Elementwise(name="final norm backward", kind="norm", bytes=3 * norm))  # src: chain-rule-accesses
    if shape.tensor_count > 1:
        forward += _head_exchange(model, shape, rows, backward=False)
        backward += _head_exchange(model, shape, rows, backward=True)
    return _ops(forward, backward)


def _head_exchange(model: Transformer, shape: LayerShape, rows: float, *, backward: bool) -> list[Op]:
    """Gather of the input in shards going forward, sum of its gradient going backward, statistics of the loss."""
    size = rows * model.hidden_count * shape.stream_bytes
    group = shape.tensor_group
    if backward:
        kind: CollectiveKind = "reduce_scatter" if shape.sequence_parallel else "all_reduce"
        return [Collective(name="tensor reduce head", kind=kind, message_bytes=size, group=group)]
    small = rows * 4.0  # src: ieee-754 (one fp32 value a token)
    found: list[Op] = [
        Collective(name=f"tensor loss {name}", kind="all_reduce", message_bytes=small, group=group)
        for name in ("maximum", "target", "sum")
    ]
    if shape.sequence_parallel:
        found.append(Collective(name="tensor gather head", kind="all_gather", message_bytes=size, group=group))
    return found


def optimizer_ops(
    shard_count: float, local_count: float, shape: LayerShape, software: SoftwareProfile
) -> list[Repeated]:
    """Adam's step on `shard_count` parameters, and cleaning up the `local_count` gradients that a device holds.

    Per parameter of the shard: gradient norm (read), clipping (read, write), Adam (gradient, master, two moments
    read; master and moments written), and the compute copy (written). The gradient buffer is zeroed (written). A loop
    over parameters in the framework's own operations, as scripts of fp32 and tf32 have it, touches every intermediate.
    """
    gradient = buffer_bytes(shape, software)
    master = 4.0  # src: ieee-754 (fp32)
    adam = gradient + 2 * master + 2 * software.moment_bytes
    copy = shape.stream_bytes if software.states == "copy" and shape.stream_bytes < master else 0.0
    moved = shard_count * (3 * gradient + adam + copy)  # src: gradient-clipping-accesses (one read; one read, write)
    if not software.fused_optimizer and shape.stream_bytes >= master:
        moved = shard_count * _EAGER_ADAM_ACCESSES * master
    zeroed = local_count * gradient if software.states == "copy" else 0.0
    ops = (
        Elementwise(name="optimizer", kind="optimizer", bytes=moved, launches_count=4.0),  # src: fused-adam-launches
        Elementwise(name="gradient reset", kind="optimizer", bytes=zeroed),
    )
    return [Repeated(op=op) for op in ops if op.bytes > 0]


def _ops(forward: list[Op], backward: list[Op]) -> LayerOps:
    return LayerOps(
        forward=tuple(Repeated(op=op) for op in forward),
        backward=tuple(Repeated(op=op) for op in backward),
        full_recompute=(),
        selective_recompute=(),
    )
