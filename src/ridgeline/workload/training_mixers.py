"""Attention scores and recurrences of a layer in training, forward and backward, fused or through memory."""

from __future__ import annotations

from ridgeline.specs import Layer, Recurrence, SoftmaxAttention
from ridgeline.specs.software import SoftwareProfile
from ridgeline.workload.ops import AttentionPrefill, Collective, Elementwise, Gemm, Op, Repeated
from ridgeline.workload.training_shapes import LayerShape, heads_on_device, keys_of

_MASK_BYTES = 1.0  # one byte an element, as frameworks store a dropout mask


def mixer_forward(layer: Layer, shape: LayerShape, software: SoftwareProfile) -> list[Repeated]:
    """Scores and scans of one layer on one device."""
    ops: list[Op] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Recurrence):
            ops += _scan(mixer, shape, backward=False)
            continue
        ops += _indexer(mixer, shape)
        ops += _unfused_forward(mixer, shape, software) if _unfused(software) else [_fused(mixer, shape, False)]
    return [Repeated(op=op) for op in ops]


def mixer_backward(layer: Layer, shape: LayerShape, software: SoftwareProfile) -> list[Repeated]:
    """Gradients of the scores and scans of one layer on one device."""
    ops: list[Op] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Recurrence):
            ops += _scan(mixer, shape, backward=True)
            continue
        ops += _unfused_backward(mixer, shape, software) if _unfused(software) else [_fused(mixer, shape, True)]
    return [Repeated(op=op) for op in ops]


def context_exchange(layer: Layer, shape: LayerShape, *, backward: bool) -> list[Repeated]:
    """Keys and values that context-parallel ranks pass around, in all-gather form (a ring moves the same bytes).

    Backward they are passed around again, and their gradients are summed on the way back (reduce-scatter form).
    """
    if shape.context_count == 1:
        return []
    count = 0.0
    for mixer in layer.mixers:
        if isinstance(mixer, SoftmaxAttention) and not mixer.cross:
            _, kv_heads = heads_on_device(mixer, shape)
            count += kv_heads * (mixer.key_dim_count + mixer.value_dim_count)
    size = shape.sequences_count * shape.sequence_tokens * count * shape.stream_bytes
    if size <= 0:
        return []
    gather = Collective(name="context gather", kind="all_gather", message_bytes=size, group=shape.context_group)
    scatter = Collective(name="context scatter", kind="reduce_scatter", message_bytes=size, group=shape.context_group)
    return [Repeated(op=op) for op in ((gather, scatter) if backward else (gather,))]


def _unfused(software: SoftwareProfile) -> bool:
    return software.attention == "unfused"


def _fused(mixer: SoftmaxAttention, shape: LayerShape, backward: bool) -> AttentionPrefill:
    heads, kv_heads = heads_on_device(mixer, shape)
    documents = 1.0 if mixer.cross else shape.documents_count
    return AttentionPrefill(
        name="scores backward" if backward else "scores",
        batch_count=shape.sequences_count * documents,
        query_tokens=shape.query_tokens / documents * mixer.rows_per_token,
        key_tokens=keys_of(mixer, shape),
        heads_count=heads,
        kv_heads_count=kv_heads,
        key_dim_count=mixer.key_dim_count,
        value_dim_count=mixer.value_dim_count,
        causal=mixer.causal and not mixer.cross and mixer.stride_tokens == 1,
        window_tokens=mixer.window_tokens,
        selected_tokens=mixer.selected_tokens,
        backward=backward,
        precision=shape.stream_precision,
    )


def _indexer(mixer: SoftmaxAttention, shape: LayerShape) -> list[Op]:
    if not mixer.indexer_per_key_flop:
        return []
    depth = mixer.indexer_per_key_flop / 2
    return [_product("indexer", shape.sequences_count, shape.query_tokens, keys_of(mixer, shape), depth, shape)]


def _scan(mixer: Recurrence, shape: LayerShape, *, backward: bool) -> list[Op]:
    """The scan, and the short convolution before and gated norm behind it where there are such.

    Going back, the scan's states are made again. The convolution reads and writes the mixed channels (again, and
    two reads and a write for its gradient); the norm reads the scan's output and the gate and writes (reads three,
    makes its result again and writes two).
    """
    times = _BACKWARD_SCANS if backward else 1.0
    rows = times * shape.rows / shape.tensor_count
    moved = rows * mixer.elementwise_per_token_count * shape.stream_bytes
    ops: list[Op] = [
        Elementwise(name="scan", kind="scan", bytes=moved, launches_count=times, flop=rows * mixer.per_token_flop)
    ]
    around = _around_scan_count(mixer, backward) * shape.rows / shape.tensor_count * shape.stream_bytes
    if around > 0:
        ops.append(Elementwise(name="scan ends", kind="other", bytes=around, launches_count=2 * times))
    return ops


# Kernels around a Mamba-2 scan: accesses to the convolved channels, and to the channels of the gated norm.
_CONVOLVED_ACCESSES = (2.0, 5.0)  # src: mamba-ssm-combined
_NORMED_ACCESSES = (3.0, 6.0)  # src: mamba-ssm-combined


def _around_scan_count(mixer: Recurrence, backward: bool) -> float:
    """Elements a token that the kernels around a scan read and write (0 for mixers that have none).

    The stream of a Mamba-2 scan is twice the channels and the convolved ones; the convolution's tail of 3 inputs
    says how many the latter are.
    """
    if mixer.kind != "mamba2" or not mixer.tail_per_sequence_count:
        return 0.0
    convolved = mixer.tail_per_sequence_count / _TAIL_INPUTS
    channels = max(0.0, (mixer.elementwise_per_token_count - convolved) / 2.0)
    return _CONVOLVED_ACCESSES[backward] * convolved + _NORMED_ACCESSES[backward] * channels


# Two products for each of the forward pass, and the chunks' states and products of B and C again.
_BACKWARD_SCANS = 2.45  # src: mamba-ssm-combined
_TAIL_INPUTS = 3.0  # src: mamba-ssm-combined (filters of four taps)


def _product(name: str, batch: float, m: float, n: float, k: float, shape: LayerShape) -> Gemm:
    wide = shape.stream_precision
    return Gemm(
        name=name,
        m=m,
        n=n,
        k=k,
        batch_count=batch,
        math_precision=wide,
        weight_precision=wide,
        activation_precision=wide,
        output_precision=wide,
    )


def _scores_count(mixer: SoftmaxAttention, shape: LayerShape) -> tuple[float, float, float]:
    """Batched heads, keys (the whole square: masking saves nothing here) and score elements on this device."""
    heads, _ = heads_on_device(mixer, shape)
    batch = shape.sequences_count * heads
    keys = shape.cross_tokens if mixer.cross else shape.sequence_tokens * mixer.rows_per_token
    return batch, keys, batch * shape.query_tokens * mixer.rows_per_token * keys


def _unfused_forward(mixer: SoftmaxAttention, shape: LayerShape, software: SoftwareProfile) -> list[Op]:
    """Scores, softmax, dropout, weighted sum, each through memory.

    Dropout reads and writes each score, as the softmax keeps it, and writes its mask; where a kernel of its own draws
    the random numbers, that writes them and dropout reads them. The result is brought back from head-major order (read,
    write); where nothing is fused, queries, keys and values are brought there first.
    """
    batch, keys, scores = _scores_count(mixer, shape)
    wide = shape.stream_bytes
    ops: list[Op] = [_product("scores", batch, shape.query_tokens, keys, mixer.key_dim_count, shape)]
    ops += _softmax("softmax", scores, _softmax_bytes(wide, software), software)
    if software.dropout:
        moved = scores * (2 * _kept_score_bytes(wide, software) + _MASK_BYTES + software.random_bytes)
        ops.append(Elementwise(name="attention dropout", kind="dropout", bytes=moved))
        if software.random_bytes:
            drawn = scores * software.random_bytes
            ops.append(Elementwise(name="attention random numbers", kind="dropout", bytes=drawn))
    out = batch * shape.query_tokens * mixer.value_dim_count * 2 * wide
    if not software.fused_kernels:  # batched products of a framework want their operands head by head
        queries = batch * shape.query_tokens * mixer.key_dim_count
        out += (queries + batch * keys * (mixer.key_dim_count + mixer.value_dim_count)) * 2 * wide
    ops.append(_product("weighted values", batch, shape.query_tokens, mixer.value_dim_count, keys, shape))
    ops.append(Elementwise(name="head order", kind="other", bytes=out))
    return ops


_FP32_BYTES = 4.0  # src: pytorch-eager-softmax-accesses


def _kept_score_bytes(wide: float, software: SoftwareProfile) -> float:
    """Bytes of one score behind the softmax: fp32 where automatic mixed precision makes it wide."""
    return wide if software.fused_softmax or not software.wide_softmax else max(wide, _FP32_BYTES)


def _softmax(name: str, scores: float, each: tuple[float, float], software: SoftwareProfile) -> list[Op]:
    """Kernels of a softmax over `scores` elements; `each`: bytes of the reduction and of what surrounds it.

    One of its own, not fused with scale and mask, reduces rows as a norm does and is timed by that law.
    """
    rows, around = each
    if software.fused_softmax:
        return [Elementwise(name=name, kind="softmax", bytes=scores * (rows + around))]
    reduction = Elementwise(name=name, kind="norm", bytes=scores * rows)
    return [
        reduction,
        Elementwise(name=f"{name} scale and mask", kind="other", bytes=scores * around, launches_count=2.0),
    ]


def _softmax_bytes(wide: float, software: SoftwareProfile) -> tuple[float, float]:
    """Bytes a score of softmax, and of scale and mask where they are operations of their own.

    Together, each score is read and written once. Apart, scale and mask read and write on a stream of `wide` bytes an
    element; automatic mixed precision computes the softmax in fp32 (read narrow, write fp32), and what reads it next
    casts back (read fp32, write narrow); a stream in fp32, or a model cast to 16 bits as a whole, needs no cast.

    >>> eager = SoftwareProfile(id="eager", fused_softmax=False)
    >>> _softmax_bytes(2.0, eager), _softmax_bytes(4.0, eager), _softmax_bytes(2.0, SoftwareProfile(id="fused"))
    ((6.0, 14.0), (8.0, 16.0), (4.0, 0.0))
    """
    if software.fused_softmax:
        return 2 * wide, 0.0
    kept = _kept_score_bytes(wide, software)
    cast = kept + wide if kept > wide else 0.0
    return wide + kept, 2 * (2 * wide) + cast


def _softmax_gradient_bytes(wide: float, software: SoftwareProfile) -> tuple[float, float]:
    """Bytes a score of their gradients: two operands read and one written; apart, casts on both sides of a softmax
    that is wider than the stream, and the scale (read, write).

    >>> eager = SoftwareProfile(id="eager", fused_softmax=False)
    >>> _softmax_gradient_bytes(2.0, eager), _softmax_gradient_bytes(4.0, eager)
    ((12.0, 16.0), (12.0, 8.0))
    """
    if software.fused_softmax:
        return (1.0 + 2.0) * wide, 0.0
    kept = _kept_score_bytes(wide, software)
    casts = 2 * (wide + kept) if kept > wide else 0.0
    return (1.0 + 2.0) * kept, casts + 2 * wide


def _unfused_backward(mixer: SoftmaxAttention, shape: LayerShape, software: SoftwareProfile) -> list[Op]:
    """Four batched products, gradients of dropout (read, mask, write) and softmax (two reads, one write).

    Gradients of queries, keys and values are put back in token-major order (read, write).
    """
    batch, keys, scores = _scores_count(mixer, shape)
    wide, queries = shape.stream_bytes, shape.query_tokens
    ops: list[Op] = [
        _product("scores by values", batch, queries, keys, mixer.value_dim_count, shape),
        _product("value gradient", batch, keys, mixer.value_dim_count, queries, shape),
        _product("query gradient", batch, queries, mixer.key_dim_count, keys, shape),
        _product("key gradient", batch, keys, mixer.key_dim_count, queries, shape),
    ]
    ops += _softmax("softmax backward", scores, _softmax_gradient_bytes(wide, software), software)
    if software.dropout:
        moved = scores * (2 * _kept_score_bytes(wide, software) + _MASK_BYTES)
        ops.append(Elementwise(name="attention dropout backward", kind="dropout", bytes=moved))
    out = batch * (queries * mixer.key_dim_count + keys * (mixer.key_dim_count + mixer.value_dim_count)) * 2 * wide
    ops.append(Elementwise(name="head order backward", kind="other", bytes=out))
    return ops
