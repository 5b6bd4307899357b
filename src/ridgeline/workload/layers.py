"""What one training layer asks of one device: GEMMs, scores, element-wise traffic and collectives, in both directions.

Counts of collectives follow Megatron: without sequence parallelism an all-reduce after each row-split matrix going
forward and one before each column-split input going backward (four a layer of attention and MLP); with it each
all-reduce is split into a gather and a scatter, and inputs that were kept in shards are gathered once more for the
weight gradient (Korthikanti et al. 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.specs import Layer
from ridgeline.specs.software import SoftwareProfile
from ridgeline.workload.ops import Collective, CollectiveKind, Gemm, Op, Repeated
from ridgeline.workload.training_adapters import adapters_backward, adapters_forward, widened
from ridgeline.workload.training_experts import grouped, routing_backward, routing_forward
from ridgeline.workload.training_mixers import context_exchange, mixer_backward, mixer_forward
from ridgeline.workload.training_shapes import LayerShape, Projection, projections
from ridgeline.workload.training_streams import (
    accumulate,
    cast_backward,
    cast_forward,
    cast_weights,
    gradient_format,
    rows_of,
    stream_backward,
    stream_forward,
)

# What fine-grained recompute makes again: little work for much memory.
CHEAP = ("norms", "activation")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOps:
    """Operations of one layer on one device for one micro-batch; `per_step` once a step.

    `full_recompute` and `selective_recompute` are what is done again before the backward pass under each policy.
    """

    forward: tuple[Repeated, ...]
    backward: tuple[Repeated, ...]
    full_recompute: tuple[Repeated, ...]
    selective_recompute: tuple[Repeated, ...]
    per_step: tuple[Repeated, ...] = ()


def training_layer_ops(layer: Layer, hidden: int, shape: LayerShape, software: SoftwareProfile) -> LayerOps:
    """Operations of `layer`, whose stream is `hidden` wide, on one device.

    Weight gradients are made for `shape.trainable_frac` of the matrices (frozen ones need the input gradient only);
    with adapters for those alone. Matrices stored in few bits are widened before each pass.
    """
    items = projections(layer, shape)
    scores = mixer_forward(layer, shape, software)
    streams = stream_forward(layer, hidden, items, shape, software)
    cheap = [item for item in streams if item.op.name in CHEAP]
    matrices = _matrices_forward(items, shape)
    forward = (
        *widened(items, shape),
        *matrices,
        *adapters_forward(items, shape, software),
        *scores,
        *streams,
        *cast_forward(items, shape, software),
        *routing_forward(hidden, items, shape, software),
        *tensor_exchange(items, shape, backward=False),
        *context_exchange(layer, shape, backward=False),
    )
    backward = (
        *widened(items, shape),
        *_matrices_backward(items, shape, software),
        *adapters_backward(items, shape, software),
        *mixer_backward(layer, shape, software),
        *stream_backward(layer, hidden, items, shape, software),
        *cast_backward(items, shape),
        *(() if shape.adapter_rank else accumulate(items, shape, software)),
        *routing_backward(hidden, items, shape, software),
        *tensor_exchange(items, shape, backward=True),
        *context_exchange(layer, shape, backward=True),
    )
    return LayerOps(
        forward=forward,
        backward=backward,
        full_recompute=_needed(forward, matrices) if software.recompute_stops_early else forward,
        selective_recompute=tuple(cheap if software.cheap_recompute else scores),
        per_step=tuple(cast_weights(items, shape)),
    )


def input_gemm(item: Projection, rows: float, precision: str, stream: str) -> Gemm:
    """Output of a projection: (rows, inputs) by (inputs, outputs)."""
    return _gemm(item.name, rows, item.outputs_count, item.inputs_count, precision, stream)


def gradient_gemms(item: Projection, rows: float, precision: str, stream: str, buffer: str) -> tuple[Gemm, Gemm]:
    """Gradients of a projection: of its input (rows, outputs) by (outputs, inputs), of its weight (inputs, rows) by
    (rows, outputs), the latter written in the precision `buffer`.

    >>> p = Projection(name="up", role="mlp", split="column", inputs_count=4.0, outputs_count=16.0)
    >>> [(g.m, g.n, g.k) for g in gradient_gemms(p, 8.0, "bf16", "bf16", "fp32")]
    [(8.0, 4.0, 16.0), (4.0, 16.0, 8.0)]
    """
    return (
        _gemm(f"{item.name} input gradient", rows, item.inputs_count, item.outputs_count, precision, stream),
        _gemm(f"{item.name} weight gradient", item.inputs_count, item.outputs_count, rows, precision, buffer),
    )


def tensor_exchange(items: Sequence[Projection], shape: LayerShape, *, backward: bool) -> list[Repeated]:
    """Collectives of the tensor group in one direction of one layer.

    One exchange for each row-split matrix of the group (its result is a partial sum) and, mirrored, for the input of
    the columns before it. Whole experts (expert tensor degree 1) take their tokens from shards and need none.
    """
    if shape.tensor_count == 1:
        return []
    counted = 0
    widths = 0.0
    for item in items:
        if item.split == "row" and (item.role != "expert" or shape.expert_tensor_count > 1):
            counted += 1
            widths += item.outputs_count * item.rows_per_token
    if not counted:
        return []
    size = shape.rows * widths / counted * shape.stream_bytes
    kinds: tuple[tuple[str, CollectiveKind, float], ...]
    if not shape.sequence_parallel:
        kinds = (("tensor reduce", "all_reduce", 1.0),)
    elif backward:
        kinds = (
            ("tensor gather", "all_gather", 1.0),
            ("tensor scatter", "reduce_scatter", 1.0),
            *(() if shape.keep_gathered else (("tensor gather again", "all_gather", 1.0),)),
        )
    else:
        kinds = (("tensor gather", "all_gather", 1.0), ("tensor scatter", "reduce_scatter", 1.0))
    return [
        Repeated(
            op=Collective(name=name, kind=kind, message_bytes=size, group=shape.tensor_group), count=counted * times
        )
        for name, kind, times in kinds
    ]


def _gemm(name: str, m: float, n: float, k: float, precision: str, out: str) -> Gemm:
    return Gemm(
        name=name,
        m=m,
        n=n,
        k=k,
        math_precision=precision,
        weight_precision=precision,
        activation_precision=precision,
        output_precision=out,
    )


def _needed(forward: tuple[Repeated, ...], matrices: Sequence[Repeated]) -> tuple[Repeated, ...]:
    """The operations whose results a backward pass needs: the product that ends a layer is not among them."""
    last = matrices[-1] if matrices and isinstance(matrices[-1].op, Gemm) else None
    return tuple(item for item in forward if item is not last)


def _matrices_forward(items: Sequence[Projection], shape: LayerShape) -> list[Repeated]:
    found: list[Repeated] = []
    for item in items:
        if item.role == "expert":
            found.append(Repeated(op=grouped(item, shape, item.name, shape.stream_precision)))
        else:
            op = input_gemm(item, rows_of(item, shape), shape.gemm_precision(item.role), shape.stream_precision)
            found.append(Repeated(op=op, count=item.experts_count))
    return found


def _matrices_backward(items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile) -> list[Repeated]:
    buffer = shape.stream_precision
    if software.fused_wgrad_accumulation:
        buffer = gradient_format(software.gradient_precision, shape)
    found: list[Repeated] = []
    for item in items:
        ops: tuple[Op, Op]
        count = item.experts_count
        if item.role == "expert":
            wide = shape.stream_precision
            ops = (
                grouped(item, shape, f"{item.name} input gradient", wide, transposed=True),
                grouped(item, shape, f"{item.name} weight gradient", buffer),
            )
            count = 1.0
        else:
            precision = shape.gemm_precision(item.role)
            ops = gradient_gemms(item, rows_of(item, shape), precision, shape.stream_precision, buffer)
        found.append(Repeated(op=ops[0], count=count))
        if shape.trainable_frac > 0 and not shape.adapter_rank:
            found.append(Repeated(op=ops[1], count=count * shape.trainable_frac))
    return found
