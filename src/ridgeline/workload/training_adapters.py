"""Adapters in training: small trained pairs beside frozen matrices (LoRA), and frozen matrices in few bits (QLoRA).

A pair of rank r beside a matrix of k inputs and n outputs adds x A B to x W, with A of (k, r) and B of (r, n). Matrices
that run as one product have a pair each unless the framework holds them as one. Experts have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ridgeline.specs import SoftwareProfile, Transformer
from ridgeline.workload.ops import Elementwise, Gemm, Repeated
from ridgeline.workload.training_shapes import LayerShape, Projection
from ridgeline.workload.training_streams import rows_of

# Kernels of their own beside the products of a pair: its result scaled (read, write), and added to that of the frozen
# matrix (two reads, a write); going back the gradient scaled, and the gradient of the input added.
_SCALING_ACCESSES = 2.0  # src: peft-lora-layer
_SUM_ACCESSES = 3.0  # src: peft-lora-layer


def adapted(items: Iterable[Projection], targets: str = "all") -> list[Projection]:
    """Matrices of a layer that have a pair: all but experts and routers, or those before the scores alone."""
    found = [item for item in items if item.role not in ("expert", "router")]
    return [item for item in found if targets == "all" or (item.role == "attention" and item.split == "column")]


def adapter_parameters_count(model: Transformer, rank: int, targets: str = "all") -> float:
    """Parameters of pairs of `rank` beside matrices of the layers of `model`: r (inputs + outputs) each."""
    return sum(
        rank * run.repeat_count * linear.experts_count * (linear.inputs_count + linear.outputs_count)
        for stack in model.stacks
        for run in stack.runs
        for linear in run.layer.linears
        if linear.role not in ("expert", "router")
        and (targets == "all" or (linear.role == "attention" and linear.split == "column"))
    )


def adapters_forward(items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile) -> list[Repeated]:
    """What pairs add to a forward pass: two thin products each, and their result scaled and added."""
    if not shape.adapter_rank:
        return []
    found: list[Repeated] = []
    passes = _SUM_ACCESSES + (0.0 if software.fused_adapter else _SCALING_ACCESSES)
    for item in adapted(items, shape.adapter_targets):
        rows, pairs, rank = rows_of(item, shape), _pairs(item, software), float(shape.adapter_rank)
        found += [
            Repeated(op=_product("adapter down", rows, rank, item.inputs_count, shape), count=pairs),
            Repeated(op=_product("adapter up", rows, item.outputs_count / pairs, rank, shape), count=pairs),
            Repeated(op=_traffic("adapter sum", rows * item.outputs_count * passes, 2 * pairs, shape)),
        ]
    return found


def adapters_backward(items: Sequence[Projection], shape: LayerShape, software: SoftwareProfile) -> list[Repeated]:
    """Gradients of both matrices of each pair, and of its input."""
    if not shape.adapter_rank:
        return []
    found: list[Repeated] = []
    scaling = 0.0 if software.fused_adapter else _SCALING_ACCESSES
    for item in adapted(items, shape.adapter_targets):
        rows, pairs, rank = rows_of(item, shape), _pairs(item, software), float(shape.adapter_rank)
        inputs, outputs = item.inputs_count, item.outputs_count / pairs
        moved = rows * pairs * (outputs * scaling + inputs * _SUM_ACCESSES)
        products = (
            _product("adapter up input gradient", rows, rank, outputs, shape),
            _product("adapter up weight gradient", rank, outputs, rows, shape),
            _product("adapter down input gradient", rows, inputs, rank, shape),
            _product("adapter down weight gradient", inputs, rank, rows, shape),
        )
        found += [Repeated(op=op, count=pairs) for op in products]
        found.append(Repeated(op=_traffic("adapter sum backward", moved, 2 * pairs, shape)))
    return found


def _pairs(item: Projection, software: SoftwareProfile) -> float:
    """Pairs beside a product: one a matrix, or one for all where the framework holds them as one matrix."""
    return 1.0 if software.joined_projections else item.name.count("+") + 1.0


def widened(items: Sequence[Projection], shape: LayerShape) -> list[Repeated]:
    """Frozen matrices in few bits, made wide before each product: stored bytes read, wide ones written."""
    if not shape.frozen_bytes:
        return []
    count = sum(item.weights_count for item in items)
    moved = count * (shape.frozen_bytes + shape.stream_bytes)
    return [Repeated(op=Elementwise(name="widening", kind="cast", bytes=moved, launches_count=float(len(items))))]


def _product(name: str, m: float, n: float, k: float, shape: LayerShape) -> Gemm:
    wide = shape.stream_precision
    return Gemm(
        name=name,
        m=m,
        n=n,
        k=k,
        math_precision=wide,
        weight_precision=wide,
        activation_precision=wide,
        output_precision=wide,
    )


def _traffic(name: str, elements: float, launches: float, shape: LayerShape) -> Elementwise:
    return Elementwise(name=name, kind="residual", bytes=elements * shape.stream_bytes, launches_count=launches)
