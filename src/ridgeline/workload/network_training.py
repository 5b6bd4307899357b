"""What training a layered network asks of one device: convolutions, products and traffic, forward and backward.

Passes over an activation, per node (frameworks that run one kernel an operation / those that fuse a normalisation with
the addition and the activation that follow it):
batch normalisation 3 forward (two reads, one write), 5 backward (activation and gradient read twice, one write);
activation 2 and 3 / none; addition 3 and none / one read and one write; a gate 2 and 6 / 2 and 3; concatenation 2
and 2; a gradient that comes from two consumers 3 / 1 more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ridgeline.specs import SoftwareProfile, bytes_per_element
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
from ridgeline.workload.network_graph import consumers, fused_tails, gradient_flow
from ridgeline.workload.ops import AttentionPrefill, ConvolutionDirection, Convolve, Elementwise, Gemm, Op, Repeated

_INDEX_BYTES = 8.0  # src: pytorch-docs
_NORM_READS = {
    "batch": (3.0, 5.0),  # src: pytorch-docs
    "group": (3.0, 5.0),  # src: pytorch-docs
    "instance": (3.0, 5.0),  # src: pytorch-docs
    "layer": (2.0, 4.0),  # src: pytorch-docs
}  # src: nvidia-dl-memory-limited
_FROZEN = (2.0, 2.0)
_GATE_EAGER, _GATE_FUSED = 6.0, 3.0  # src: pytorch-docs


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOps:
    """Operations of one step on one device; forward and backward in order of the nodes."""

    forward: tuple[Repeated, ...]
    backward: tuple[Repeated, ...]


@dataclass(frozen=True, slots=True)
class _Walk:
    """One network with a batch, a precision and the habits of a framework."""

    network: Network
    batch: float
    precision: str
    fused: bool
    transposing: bool

    @property
    def width(self) -> float:
        """Bytes of an element."""
        return bytes_per_element(self.precision)

    def moved(self, node: Node, elements: float, passes: float) -> float:
        """Bytes of `passes` over `elements` of each image."""
        return passes * elements * self.batch * node.copies_count * self.width


def network_training_ops(network: Network, batch: float, precision: str, software: SoftwareProfile) -> NetworkOps:
    """Operations of a forward and a backward pass over `batch` images.

    `software.network_fusion`: whether normalisation, addition and activation are one kernel.
    """
    fused = software.network_fusion != "none"
    walk = _Walk(network, batch, precision, fused, transposes(precision, software))
    tails = fused_tails(network, True) if walk.fused else frozenset()
    forward: list[Repeated] = []
    backward: list[Repeated] = []
    readers = consumers(network, True)
    flow = gradient_flow(network)
    for index, node in network.active(training=True):
        if isinstance(node.operator, Rearrange) and node.operator.reads_count == 0:
            continue
        ahead = tuple(_forward(node, walk, index in tails))
        forward.extend(Repeated(op=op) for op in ahead)
        if flow[index]:
            backward.extend(Repeated(op=op) for op in _backward(node, walk, index in tails, flow))
            extra = len(readers[index]) - 1
            if extra > 0:
                passes = extra * (1.0 if walk.fused else 3.0)  # src: pytorch-docs
                backward.append(
                    Repeated(op=_stream("gradient sum", walk.moved(node, node.shape.elements_count, passes)))
                )
    return NetworkOps(forward=tuple(forward), backward=tuple(reversed(backward)))


def transposes(precision: str, software: SoftwareProfile) -> bool:
    """Whether every convolution transposes what it reads and makes: activations are not laid out channels last, as
    matrix units read them. Vector units (fp32) read either layout."""
    if bytes_per_element(precision) <= bytes_per_element("bf16"):
        return not software.channels_last
    return precision == "tf32" and not software.channels_last_wide


def _stream(name: str, moved: float, launches: float = 1.0, kind: str = "stream") -> Elementwise:
    return Elementwise(name=name, kind=kind, bytes=moved, launches_count=launches)  # type: ignore[arg-type]


def _forward(node: Node, walk: _Walk, tail: bool) -> Iterator[Op]:
    operator, out = node.operator, node.shape.elements_count
    if isinstance(operator, Convolution):
        yield convolve(node, walk.network, "forward", walk.batch, walk.precision)
        yield from _transposes(node, walk)
        if operator.bias and not walk.fused:
            yield _stream("bias", walk.moved(node, out, 2.0))
    elif isinstance(operator, Dense):
        yield matrix(node, "forward", walk.batch, walk.precision)
    elif isinstance(operator, Scores):
        yield scores(node, walk.network, walk.batch, walk.precision, backward=False)
    elif isinstance(operator, Normalise):
        if operator.kind != "weight":
            passes = _NORM_READS.get(operator.kind, _FROZEN)[0]
            kind = "batch-norm" if operator.kind != "frozen" else "stream"
            yield _stream("normalise", walk.moved(node, out, passes), 1.0 if walk.fused else 2.0, kind)
    elif isinstance(operator, Activate):
        if not tail:
            yield _stream("activate", walk.moved(node, out, 2.0))
    elif isinstance(operator, Pool):
        index_bytes = _INDEX_BYTES * out if operator.kind == "max" and not walk.fused else 0.0
        moved = walk.moved(node, _inputs(node, walk.network) + out, 1.0) + walk.batch * index_bytes
        yield _stream("pool", moved, 1.0, "pool")
    elif isinstance(operator, Combine):
        yield _combined(node, walk, tail)
    else:
        yield _stream(operator.kind, walk.moved(node, out, 1.0 + operator.reads_count))


def _combined(node: Node, walk: _Walk, tail: bool) -> Elementwise:
    """Forward pass of an addition, a gate or a concatenation."""
    kind, out = node.operator.kind, node.shape.elements_count  # type: ignore[union-attr]
    passes = 2.0
    if kind == "add":
        passes = 1.0 if tail else 1.0 + len(node.inputs)
    return _stream(kind, walk.moved(node, out, passes), 0.0 if tail else 1.0)


def _backward(node: Node, walk: _Walk, tail: bool, flow: tuple[bool, ...]) -> Iterator[Op]:
    operator, out = node.operator, node.shape.elements_count
    into = any(index >= 0 and flow[index] for index in node.inputs)
    if isinstance(operator, (Convolution, Dense)):
        yield from _weighted_backward(node, walk, into)
    elif isinstance(operator, Scores):
        yield scores(node, walk.network, walk.batch, walk.precision, backward=True)
    elif isinstance(operator, Normalise):
        if operator.kind != "weight":
            passes = _NORM_READS.get(operator.kind, _FROZEN)[1]
            kind = "batch-norm" if operator.kind != "frozen" else "stream"
            yield _stream("normalise gradient", walk.moved(node, out, passes), 1.0 if walk.fused else 2.0, kind)
    elif isinstance(operator, Activate):
        if not tail:
            yield _stream("activate gradient", walk.moved(node, out, 3.0))  # src: pytorch-docs
    elif isinstance(operator, Pool):
        index_bytes = _INDEX_BYTES * out if operator.kind == "max" and not walk.fused else 0.0
        moved = walk.moved(node, _inputs(node, walk.network) + out, 1.0) + walk.batch * index_bytes
        yield _stream("pool gradient", moved, 1.0, "pool")
    elif isinstance(operator, Combine):
        if operator.kind == "multiply":
            passes = _GATE_FUSED if walk.fused else _GATE_EAGER
            yield _stream(
                "gate gradient",
                walk.moved(node, out, passes),
                1.0 if walk.fused else 3.0,  # src: pytorch-docs
            )  # src: pytorch-docs
        elif operator.kind == "concat":
            yield _stream("concat gradient", walk.moved(node, out, 2.0), float(len(node.inputs)))
        elif tail:
            yield _stream("add gradient", walk.moved(node, out, 1.0), 0.0)
    elif isinstance(operator, Rearrange):
        yield _stream(f"{operator.kind} gradient", walk.moved(node, out, 1.0 + operator.reads_count))


def _weighted_backward(node: Node, walk: _Walk, into: bool) -> Iterator[Op]:
    """Gradients of input and weights of a convolution or matrix."""
    operator = node.operator
    if isinstance(operator, Convolution):
        if into:
            yield convolve(node, walk.network, "input-gradient", walk.batch, walk.precision)
            yield from _transposes(node, walk)
        if node.trained:
            yield convolve(node, walk.network, "weight-gradient", walk.batch, walk.precision)
            yield from _transposes(node, walk)
    else:
        if into:
            yield matrix(node, "input-gradient", walk.batch, walk.precision)
        if node.trained:
            yield matrix(node, "weight-gradient", walk.batch, walk.precision)
    if node.trained and operator.bias:  # type: ignore[union-attr]
        yield _stream("bias gradient", walk.moved(node, node.shape.elements_count, 1.0))


def _transposes(node: Node, walk: _Walk) -> Iterator[Op]:
    """Copies between channels-first activations and what matrix units read, both ways."""
    if walk.transposing and not node.operator.depthwise:  # type: ignore[union-attr]
        elements = _inputs(node, walk.network) + node.shape.elements_count
        yield _stream(
            "transpose",
            walk.moved(node, elements, 2.0),
            2.0,
            "transpose" if walk.width < bytes_per_element("fp32") else "transpose-wide",
        )


def _inputs(node: Node, network: Network) -> float:
    return float(network.input_shape(node).elements_count)


def convolve(
    node: Node, network: Network, direction: ConvolutionDirection, batch: float, precision: str, out: str = ""
) -> Convolve:
    """The convolution of `node` in one direction; a transposed one is the input gradient of its mirror image.

    `out`: precision of what it makes, where it is another one.
    """
    operator = node.operator
    if not isinstance(operator, Convolution):
        raise TypeError(f"{node.name} is no convolution")
    before, after = network.input_shape(node), node.shape
    if operator.transposed:
        before, after = after, before
        mirrored: dict[str, ConvolutionDirection] = {"forward": "input-gradient", "input-gradient": "forward"}
        direction = mirrored.get(direction, direction)
    return Convolve(
        name=direction,
        direction=direction,
        batch_count=batch * node.copies_count,
        inputs_count=before.channels_count,
        outputs_count=after.channels_count,
        in_spatial=before.spatial,
        out_spatial=after.spatial,
        kernel=operator.kernel,
        stride=operator.stride,
        groups_count=operator.groups_count,
        math_precision=precision,
        precision=precision,
        output_precision=out or precision,
    )


def matrix(node: Node, direction: ConvolutionDirection, batch: float, precision: str, out: str = "") -> Gemm:
    """The product of a fully connected node in one direction."""
    operator = node.operator
    if not isinstance(operator, Dense):
        raise TypeError(f"{node.name} is no matrix")
    rows = batch * node.copies_count * node.shape.positions_count
    inputs, outputs = float(operator.inputs_count), float(operator.outputs_count)
    m, n, k = {
        "forward": (rows, outputs, inputs),
        "input-gradient": (rows, inputs, outputs),
        "weight-gradient": (inputs, outputs, rows),
    }[direction]
    return Gemm(
        name=direction,
        m=m,
        n=n,
        k=k,
        math_precision=precision,
        weight_precision=precision,
        activation_precision=precision,
        output_precision=out or precision,
    )


def scores(node: Node, network: Network, batch: float, precision: str, *, backward: bool) -> AttentionPrefill:
    """The attention of `node` over all its positions."""
    operator = node.operator
    if not isinstance(operator, Scores):
        raise TypeError(f"{node.name} is no attention")
    queries = float(node.shape.positions_count)
    return AttentionPrefill(
        name="attention",
        batch_count=batch * node.copies_count,
        query_tokens=queries,
        key_tokens=float(operator.keys_count or network.input_shape(node).positions_count),
        heads_count=float(operator.heads_count),
        kv_heads_count=float(operator.heads_count),
        key_dim_count=operator.key_dim_count,
        value_dim_count=operator.value_dim_count,
        causal=False,
        backward=backward,
        precision=precision,
    )
