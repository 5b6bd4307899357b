"""What running a layered network asks of one device: convolutions, products and the traffic that is left between them.

Engines that fuse fold batch normalisation into weights and do activation and residual addition while a convolution
writes its result; concatenations are written in place. Engines that do not run one kernel an operation. Matrix units
work on images with channels last; a library that is handed the other layout turns input and output around. Automatic
mixed precision narrows every weight again at every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


# Names of operations that a library or a precision adds, which are no layers of the network.
LAYOUT, NARROW = "channels last and back", "narrow weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How an engine runs a network: `precision` of weights, activations and matrix units; whether it fuses; whether
    images lie channels last; the format that weights are narrowed from at every call ("": stored as used).

    >>> Execution(precision="fp16", fused=True).turns_images
    False
    """

    precision: str
    fused: bool
    channels_last: bool = True
    stored_precision: str = ""

    @property
    def turns_images(self) -> bool:
        """Whether convolutions on matrix units turn their input and output around (fp32 runs on vector units)."""
        return not self.channels_last and self.precision != "fp32"


@remembered(Network, limit=1024)  # src: tensorrt-docs
def network_inference_ops(network: Network, batch: float, how: Execution) -> tuple[Repeated, ...]:
    """Operations of one batch, in order."""
    tails = fused_tails(network, False) if how.fused else frozenset[int]()
    found: list[Repeated] = []
    for index, node in network.active(training=False):
        if isinstance(node.operator, Rearrange) and node.operator.reads_count == 0:
            continue
        for op in (*_added_ops(node, network, batch, how), *_node_ops(node, network, batch, how, index in tails)):
            found.append(Repeated(op=op))
    return tuple(found)


def _added_ops(node: Node, network: Network, batch: float, how: Execution) -> Iterator[Op]:
    """What is done around the convolution or matrix of a node: narrowing its weights, turning images around."""
    operator = node.operator
    if not isinstance(operator, (Convolution, Dense)):
        return
    width = bytes_per_element(how.precision)
    if how.stored_precision:
        moved = operator.weights_count * (bytes_per_element(how.stored_precision) + width)
        yield Elementwise(name=NARROW, kind="stream", bytes=moved)
    if how.turns_images and isinstance(operator, Convolution) and not operator.depthwise:
        elements = network.input_shape(node).elements_count + node.shape.elements_count
        moved = 2.0 * elements * batch * node.copies_count * width  # each is read and written
        yield Elementwise(name=LAYOUT, kind="stream", bytes=moved, launches_count=2.0)


def _node_ops(node: Node, network: Network, batch: float, how: Execution, tail: bool) -> Iterator[Op]:
    precision, fused = how.precision, how.fused
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
            kind = "pool" if isinstance(operator, Pool) else "batch-norm" if _is_batch_norm(operator) else "stream"
            launches = 0.0 if tail else 1.0
            yield Elementwise(name=node.name, kind=kind, bytes=moved, launches_count=launches)  # type: ignore[arg-type]
    if isinstance(operator, Convolution) and operator.bias and not fused:
        moved = 2.0 * node.shape.elements_count * batch * node.copies_count * bytes_per_element(precision)
        yield Elementwise(name="bias", kind="stream", bytes=moved)


def _is_batch_norm(operator: object) -> bool:
    return isinstance(operator, Normalise) and operator.kind == "batch"


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
