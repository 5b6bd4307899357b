"""Element-wise traffic of a training layer on one device: which tensors each chain of small operations touches.

Every figure is a count of reads and writes of tensors, by kernel, in elements per token; a fused chain touches its
inputs and its output once, an unfused one touches every intermediate.
"""

from __future__ import annotations

from collections.abc import Sequence

from ridgeline.specs import Layer, SoftmaxAttention, bytes_per_element
from ridgeline.specs.software import SoftwareProfile
from ridgeline.workload.ops import Elementwise, ElementwiseKind, Repeated
from ridgeline.workload.training_shapes import LayerShape, Projection, branches_count, heads_on_device

_ROUTED = ("expert", "shared-expert")
_FOUR_BIT_READS = 3.0  # src: transformer-engine-nvfp4
_MASK_BYTES = 1.0  # one byte an element, as frameworks store a dropout mask
# Norm without fusion, in 16-bit accesses: to fp32 (1+2), square (2+2), mean (2), scale (2+2), back (2+1), weight (1+1)
_EAGER_NORM_ACCESSES = 18.0  # src: huggingface-eager-rmsnorm
# Rotation without fusion: negate-and-join (1+1), times cosine (1+1), times sine (1+1), add (2+1)
_EAGER_ROPE_ACCESSES = 9.0  # src: huggingface-eager-rope
_FUSED_GATED_ACCESSES = 3.0  # src: gated-activation-accesses (both branches read, product written)
_EAGER_GATED_ACCESSES = 5.0  # src: gated-activation-accesses (non-linearity 1+1, product 2+1)
_GATED_GRADIENT_ACCESSES = 5.0  # src: gated-activation-accesses (gradient, both branches read; two written)
_EAGER_GATED_GRADIENT_ACCESSES = 9.0  # src: gated-activation-accesses (product 3+2, non-linearity 2+1, recompute 1)
_GRADIENT_ACCESSES = 3.0  # src: chain-rule-accesses (gradient and saved input read, gradient written)
_RESIDUAL_ACCESSES = 3.0  # src: residual-accesses (two read, one written)
_ACTIVATED = frozenset({"mlp", "expert", "shared-expert"})


def stream_forward(
    layer: Layer, hidden: int, items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile
) -> list[Repeated]:
    """Norms, residuals, activation and rotation of one layer.

    A norm in fp32 in a model of 16-bit products reads and writes the stream, and writes what products read.
    """
    wide, rows = shape.stream_bytes, shape.residual_rows
    kept = norm_stream_bytes(shape, software)
    reductions = float(software.norm_reductions_count)
    norm = (2.0 + reductions) * kept + (wide if kept > wide else 0.0)
    if not software.fused_norm:
        norm = _EAGER_NORM_ACCESSES * wide
    gated = _FUSED_GATED_ACCESSES if software.fused_activation else _EAGER_GATED_ACCESSES
    activation = gated if layer.gated else 2.0
    rope = 2.0 if software.fused_rope else _EAGER_ROPE_ACCESSES
    branches = branches_count(items)
    biased = any(item.bias_count > 0 and item.split == "row" for item in items)
    drawn = rows * branches * hidden * software.random_bytes if software.dropout else 0.0
    bias = 0.0
    if not software.fused_bias:  # that of the activation's input is added with it, those of branches with the residual
        inward = [item for item in items if item.split == "column" and item.role not in _ACTIVATED]
        bias = sum(shape.rows * item.bias_count * item.active_count * 2 * wide for item in inward)
    return _kept(
        _op("bias", "other", bias, 1.0),
        _op("norms", "norm", rows * layer.norms_count * hidden * norm, layer.norms_count * (1.0 + reductions)),
        _op("random numbers", "dropout", drawn, branches),
        _op("residuals", "residual", rows * branches * hidden * _residual_bytes(shape, software, biased), branches),
        _op("activation", "activation", _activated(layer, shape) * activation * wide, 1.0),
        _op("rotation", "rope", _rotated(layer, shape) * rope * wide, 1.0 if software.fused_rope else 2.0),
    )


def stream_backward(
    layer: Layer, hidden: int, items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile
) -> list[Repeated]:
    """Gradients of norms, residuals, activation and rotation of one layer, and of its biases.

    A norm reads the gradient and its input and writes a gradient; that of its weight needs both again unless one
    kernel makes the two. Gradients of the two ways around a branch are summed where they meet.
    """
    wide, rows = shape.stream_bytes, shape.residual_rows
    norm = _GRADIENT_ACCESSES + (0.0 if software.fused_norm_gradient else 2.0)
    launches = 2.0 if software.norm_reductions_count else 1.0
    norm += 2.0 * (launches - 1.0)  # sums of rows read gradient and input first
    kept = norm_stream_bytes(shape, software) if software.fused_norm else wide  # casts of one that is not are counted
    if not software.fused_norm:
        norm = 2 * _EAGER_NORM_ACCESSES
    gated = _GATED_GRADIENT_ACCESSES if software.fused_activation else _EAGER_GATED_GRADIENT_ACCESSES
    activation = gated if layer.gated else _GRADIENT_ACCESSES
    rope = 2.0 if software.fused_rope else _EAGER_ROPE_ACCESSES
    branches = branches_count(items)
    dropout = rows * branches * hidden * (2 * wide + _MASK_BYTES) if software.dropout else 0.0
    bias = 0.0
    if not software.fused_bias_gradient:
        bias = sum(shape.rows * item.bias_count * item.active_count * wide for item in items)
    return _kept(
        _op("norms backward", "norm", rows * layer.norms_count * hidden * norm * kept, layer.norms_count * launches),
        _op("residuals backward", "residual", rows * branches * hidden * _added_bytes(shape, software), branches),
        _op("dropout backward", "dropout", dropout, branches),
        _op("activation backward", "activation", _activated(layer, shape) * activation * wide, 1.0),
        _op("rotation backward", "rope", _rotated(layer, shape) * rope * wide, 1.0),
        _op("bias gradients", "other", bias, len(items)),
        _op("input gradient sums", "residual", _summed(items, shape, software), 1.0),
    )


def _summed(items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile) -> float:
    """Bytes of adding up the input gradients of matrices that are products of their own: two read, one written each."""
    if software.joined_projections:
        return 0.0
    sums = [rows_of(item, shape) * item.inputs_count * item.name.count("+") for item in items if item.split == "column"]
    return sum(sums) * _RESIDUAL_ACCESSES * shape.stream_bytes


def cast_forward(items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile) -> list[Repeated]:
    """Inputs of narrow GEMMs, quantised in both orientations (weight gradients contract the other axis).

    Where the norm before a projection quantises its own result, the wide result is never written: two narrow ones
    take its place and nothing is added for 8 bits. Experts read what was sorted by expert, and what is beside them
    reads the wide result that routing needs too.
    """
    if not shape.narrow_bytes:
        return []
    moved, launches = 0.0, 0.0
    for item in items:
        if shape.gemm_precision(item.role) != shape.precision:
            continue
        fed_by_norm = item.split == "column" and software.fused_cast and item.role not in _ROUTED
        each = max(0.0, 2 * shape.narrow_bytes - shape.stream_bytes) if fed_by_norm else _cast_bytes(shape, item)
        moved += rows_of(item, shape) * item.inputs_count * each
        launches += 0.0 if fed_by_norm else 1.0
    return _kept(_op("casts", "cast", moved, launches))


def cast_backward(items: Sequence[Projection], shape: LayerShape) -> list[Repeated]:
    """Gradients that enter narrow GEMMs, quantised in both orientations."""
    if not shape.narrow_bytes:
        return []
    narrow = [item for item in items if shape.gemm_precision(item.role) == shape.precision]
    moved = sum(rows_of(item, shape) * item.outputs_count * _cast_bytes(shape, item) for item in narrow)
    return _kept(_op("casts backward", "cast", moved, len(narrow)))


def cast_weights(items: Sequence[Projection], shape: LayerShape) -> list[Repeated]:
    """Weights of narrow GEMMs, quantised once a step in both orientations."""
    if not shape.narrow_bytes:
        return []
    narrow = [item for item in items if shape.gemm_precision(item.role) == shape.precision]
    return _kept(_op("weight casts", "cast", sum(i.weights_count for i in narrow) * _cast_bytes(shape), len(narrow)))


def accumulate(items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile) -> list[Repeated]:
    """Weight gradients of one micro-batch added to the buffer.

    A GEMM that adds reads the buffer once (its write is counted with it); a separate kernel reads gradient and
    buffer and writes the buffer. With a master shard alone there is no whole buffer, but a flat tensor may have to be
    joined from the gradients of all matrices (read, write) and cast for the wire (read, write). Some frameworks cast
    to the buffer's format in a kernel of its own first, and make the 16-bit weights anew from fp32 ones.
    """
    if software.states == "copy":
        kept = buffer_bytes(shape, software)
        each = kept if software.fused_wgrad_accumulation else shape.stream_bytes + 2 * kept
        if software.casts_gradients and kept > shape.stream_bytes:
            each = shape.stream_bytes + kept + (1 + 2) * kept  # cast: narrow in, wide out; sum: two wide in, one out
        if software.clips_micro_batches:  # norm read, scaling read and written; finite or not, read, in 16 bits
            each += (1 + 2) * kept + (kept if shape.stream_bytes < _FP32_BYTES else 0.0)
    elif software.flat_gradients:
        wire = wire_bytes(shape, software)
        each = 2 * shape.stream_bytes + (shape.stream_bytes + wire if wire != shape.stream_bytes else 0.0)
    else:
        return []
    weights = sum(item.weights_count for item in items)
    made = weights * (_FP32_BYTES + shape.stream_bytes) if _makes_weights(shape, software) else 0.0
    return _kept(
        _op("gradient accumulation", "accumulate", weights * shape.trainable_frac * each, len(items)),
        _op("weights made narrow", "cast", made, len(items)),
    )


_FP32_BYTES = 4.0  # src: ieee-754


def _makes_weights(shape: LayerShape, software: SoftwareProfile) -> bool:
    """Whether 16-bit weights are made from fp32 ones in every micro-batch."""
    return software.casts_weights and shape.stream_bytes < _FP32_BYTES


def buffer_bytes(shape: LayerShape, software: SoftwareProfile) -> float:
    """Bytes of one element of the gradient buffer."""
    return _gradient_bytes(software.gradient_precision, shape)


def wire_bytes(shape: LayerShape, software: SoftwareProfile) -> float:
    """Bytes of one element of a gradient on the wire."""
    return _gradient_bytes(software.reduce_precision, shape)


def gradient_format(precision: str, shape: LayerShape) -> str:
    """Number format of gradients that a framework keeps in `precision`, never narrower than the hidden states.

    "same": that of the hidden states; "fp32-if-bf16": wide for bf16 alone, whose mantissa is too short to add in.
    """
    if precision == "fp32-if-bf16":
        precision = "fp32" if shape.stream_precision == "bf16" else "same"
    if precision == "same" or bytes_per_element(precision) < shape.stream_bytes:
        return shape.stream_precision
    return precision


def _gradient_bytes(precision: str, shape: LayerShape) -> float:
    return bytes_per_element(gradient_format(precision, shape))


def rows_of(item: Projection, shape: LayerShape) -> float:
    """Rows that go through a projection on one device."""
    if item.role == "expert":
        return shape.routed_rows * item.active_count
    if item.role == "router":
        return shape.routed_rows * item.rows_per_token
    if item.from_encoder and shape.cross_tokens > 0:
        return shape.sequences_count * shape.cross_tokens / shape.context_count
    return shape.rows * item.rows_per_token


def _cast_bytes(shape: LayerShape, item: Projection | None = None) -> float:
    """Bytes an element of making both orientations.

    4-bit formats with a scale a tensor read three times: for the largest value, and once for each orientation, of which
    one is rotated first. The law of dense 4-bit products was measured with that; experts' products are not.
    """
    wide = shape.stream_bytes
    if item is not None and item.role in _ROUTED and shape.narrow_bytes < 1.0:
        wide *= _FOUR_BIT_READS
    return wide + 2 * shape.narrow_bytes


def norm_stream_bytes(shape: LayerShape, software: SoftwareProfile) -> float:
    """Bytes of an element of the stream and of its norms: fp32 where mixed precision keeps them so.

    >>> shape = LayerShape(sequences_count=1.0, query_tokens=8.0, sequence_tokens=8.0, precision="fp16")
    >>> norm_stream_bytes(shape, SoftwareProfile(id="mixed", wide_stream=True))
    4.0
    """
    return max(shape.stream_bytes, _FP32_BYTES) if software.wide_stream else shape.stream_bytes


def _added_bytes(shape: LayerShape, software: SoftwareProfile) -> float:
    """Bytes an element of adding a branch, as wide as products are, to the stream (read, write)."""
    return shape.stream_bytes + (_RESIDUAL_ACCESSES - 1.0) * norm_stream_bytes(shape, software)


def _residual_bytes(shape: LayerShape, software: SoftwareProfile, biased: bool) -> float:
    """Bytes an element of one branch's way into the stream: bias, dropout and addition, fused or one by one."""
    wide = shape.stream_bytes
    added = _added_bytes(shape, software) + (_MASK_BYTES + software.random_bytes if software.dropout else 0.0)
    if software.fused_dropout_add:
        return added
    return added + (2 * wide if software.dropout else 0.0) + (2 * wide if biased else 0.0)


def _activated(layer: Layer, shape: LayerShape) -> float:
    return shape.rows / shape.tensor_count * layer.activation_count


def _rotated(layer: Layer, shape: LayerShape) -> float:
    if not layer.rope:
        return 0.0
    count = 0.0
    for mixer in layer.mixers:
        if isinstance(mixer, SoftmaxAttention):
            heads, kv_heads = heads_on_device(mixer, shape)
            count += (heads + kv_heads) * mixer.key_dim_count
    return shape.rows * count


def _op(name: str, kind: ElementwiseKind, moved: float, launches: float) -> Repeated:
    return Repeated(op=Elementwise(name=name, kind=kind, bytes=moved, launches_count=launches))


def _kept(*ops: Repeated) -> list[Repeated]:
    return [item for item in ops if isinstance(item.op, Elementwise) and item.op.bytes > 0]
