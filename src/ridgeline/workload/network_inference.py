"""What running a layered network asks of one device: convolutions, products and the traffic that is left between them.

Engines that fuse fold batch normalisation into weights and do activation and residual addition while a convolution
writes its result; concatenations are written in place. Engines that do not run one kernel an operation.
"""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.specs import bytes_per_element
from ridgeline.specs.network import (
    Activate,
    Combine,
    Convolution,
    Dense,
    Network,
    Node,
    Normalise,
    Pool,
    Rearrange,
    Scores,
)
from ridgeline.workload.network_graph import fused_tails
from ridgeline.workload.network_training import convolve, matrix, scores
from ridgeline.workload.ops import Elementwise, Op, Repeated
from ridgeline.workload.remember import remembered

# Reads and writes of a normalisation that is not folded into weights.
_NORM_PASSES = {
    "batch": 2.0,
    "frozen": 2.0,
    "group": 3.0,  # src: tensorrt-docs
    "instance": 3.0,  # src: tensorrt-docs
    "layer": 2.0,
}  # src: nvidia-dl-memory-limited


@remembered(Network, limit=1024)  # src: tensorrt-docs
def network_inference_ops(network: Network, batch: float, precision: str, fused: bool) -> tuple[Repeated, ...]:
    """Operations of one batch, in order. `precision` is that of weights, activations and matrix units."""
    tails = fused_tails(network, False) if fused else frozenset[int]()
    found: list[Repeated] = []
    for index, node in network.active(training=False):
        if isinstance(node.operator, Rearrange) and node.operator.reads_count == 0:
            continue
        for op in _node_ops(node, network, batch, (precision, fused, index in tails)):
            found.append(Repeated(op=op))
    return tuple(found)


def _node_ops(node: Node, network: Network, batch: float, how: tuple[str, bool, bool]) -> Iterator[Op]:
    precision, fused, tail = how
    operator = node.operator
    if isinstance(operator, Convolution):
        yield convolve(node, network, "forward", batch, precision)
    elif isinstance(operator, Dense):
        yield matrix(node, "forward", batch, precision)
    elif isinstance(operator, Scores):
        wide = precision if bytes_per_element(precision) >= bytes_per_element("bf16") else "fp16"
        yield scores(node, network, batch, wide, backward=False)
    else:
        passes = _passes(node, network, fused, tail)
        if passes > 0:
            moved = passes * node.shape.elements_count * batch * node.copies_count * bytes_per_element(precision)
            kind = "pool" if isinstance(operator, Pool) else "stream"
            launches = 0.0 if tail else 1.0
            yield Elementwise(name=node.name, kind=kind, bytes=moved, launches_count=launches)  # type: ignore[arg-type]
    if isinstance(operator, Convolution) and operator.bias and not fused:
        moved = 2.0 * node.shape.elements_count * batch * node.copies_count * bytes_per_element(precision)
        yield Elementwise(name="bias", kind="stream", bytes=moved)


def _passes(node: Node, network: Network, fused: bool, tail: bool) -> float:
    """How often the elements that a node makes pass through memory on its account."""
    operator = node.operator
    if isinstance(operator, Combine):
        if operator.kind == "add":
            return 1.0 if tail else 1.0 + len(node.inputs)
        return 0.0 if operator.kind == "concat" and fused else 2.0
    if tail:
        return 0.0
    if isinstance(operator, Normalise):
        return _NORM_PASSES.get(operator.kind, 0.0)
    if isinstance(operator, Activate):
        return 2.0
    if isinstance(operator, Pool):
        return 1.0 + network.input_shape(node).elements_count / node.shape.elements_count
    return 1.0 + operator.reads_count if isinstance(operator, Rearrange) else 0.0
