"""Adapters in training: small trained pairs beside frozen matrices (LoRA), and frozen matrices in few bits (QLoRA).

A pair of rank r beside a matrix of k inputs and n outputs adds x A B to x W, with A of (k, r) and B of (r, n). Matrices
that run as one product have a pair each. Experts that are spread have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ridgeline.specs import Transformer
from ridgeline.workload.ops import Elementwise, Gemm, Op, Repeated
from ridgeline.workload.training_shapes import LayerShape, Projection
from ridgeline.workload.training_streams import rows_of

# Accesses to the outputs of a pair that are kernels of their own: scaled (read, write) and added (two reads, a write).
_OUTPUT_ACCESSES = 5.0  # src: peft-lora-layer
# Their gradients: scaled (read, write).
_OUTPUT_GRADIENT_ACCESSES = 2.0  # src: peft-lora-layer
# The gradient of the input of a pair is added to that of the frozen matrix: two reads, a write.
_INPUT_GRADIENT_ACCESSES = 3.0  # src: chain-rule-accesses


def adapted(items: Iterable[Projection]) -> list[Projection]:
    """Matrices of a layer that have a pair: all but experts and routers."""
    return [item for item in items if item.role not in ("expert", "router")]


def adapter_parameters_count(model: Transformer, rank: int) -> float:
    """Parameters of pairs of `rank` beside every matrix of the layers of `model`: r (inputs + outputs) each."""
    return sum(
        rank * run.repeat_count * linear.experts_count * (linear.inputs_count + linear.outputs_count)
        for stack in model.stacks
        for run in stack.runs
        for linear in run.layer.linears
        if linear.role not in ("expert", "router")
    )


def adapters_forward(items: Sequence[Projection], shape: LayerShape) -> list[Repeated]:
    """What pairs add to a forward pass: two thin products each, and their result scaled and added."""
    if not shape.adapter_rank:
        return []
    found: list[Op] = []
    for item in adapted(items):
        rows, pairs = rows_of(item, shape), item.name.count("+") + 1.0
        rank = float(shape.adapter_rank)
        found += [
            _product("adapter down", rows, pairs * rank, item.inputs_count, shape),
            _product("adapter up", rows, item.outputs_count, rank, shape),
            _traffic("adapter sum", rows * item.outputs_count * _OUTPUT_ACCESSES, 2 * pairs, shape),
        ]
    return [Repeated(op=op) for op in found]


def adapters_backward(items: Sequence[Projection], shape: LayerShape) -> list[Repeated]:
    """Gradients of both matrices of each pair, and of its input."""
    if not shape.adapter_rank:
        return []
    found: list[Op] = []
    for item in adapted(items):
        rows, pairs = rows_of(item, shape), item.name.count("+") + 1.0
        rank = float(shape.adapter_rank)
        moved = rows * (item.outputs_count * _OUTPUT_GRADIENT_ACCESSES + item.inputs_count * _INPUT_GRADIENT_ACCESSES)
        found += [
            _product("adapter up input gradient", rows, pairs * rank, item.outputs_count / pairs, shape),
            _product("adapter up weight gradient", rank, item.outputs_count, rows, shape),
            _product("adapter down input gradient", rows, item.inputs_count, pairs * rank, shape),
            _product("adapter down weight gradient", item.inputs_count, pairs * rank, rows, shape),
            _traffic("adapter sum backward", moved, 2 * pairs, shape),
        ]
    return [Repeated(op=op) for op in found]


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
