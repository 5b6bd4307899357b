"""Questions to the graph of a layered network: who reads what, what fuses with what, where gradients flow."""

from __future__ import annotations

from ridgeline.specs.network import Activate, Combine, Convolution, Dense, Network, Node, Normalise, Rearrange
from ridgeline.workload.remember import remembered


def source_of(network: Network, index: int) -> int:
    """The node that really wrote what node `index` hands on: views write nothing."""
    while index >= 0:
        operator = network.nodes[index].operator
        if not (isinstance(operator, Rearrange) and operator.reads_count == 0):
            break
        index = network.nodes[index].inputs[0]
    return index


@remembered(Network)
def consumers(network: Network, training: bool) -> tuple[tuple[int, ...], ...]:
    """For each node, the nodes that read what it writes."""
    found: list[list[int]] = [[] for _ in network.nodes]
    for index, node in network.active(training):
        if isinstance(node.operator, Rearrange) and node.operator.reads_count == 0:
            continue
        for each in node.inputs:
            origin = source_of(network, each)
            if origin >= 0:
                found[origin].append(index)
    return tuple(tuple(readers) for readers in found)


@remembered(Network)
def gradient_flow(network: Network) -> tuple[bool, ...]:
    """For each node, whether a gradient of its output is needed: it or something before it is trained."""
    found: list[bool] = []
    for node in network.nodes:
        learns = node.trained and node.operator.parameters_count > 0
        found.append(learns or any(index >= 0 and found[index] for index in node.inputs))
    return tuple(found)


@remembered(Network)
def fused_tails(network: Network, training: bool) -> frozenset[int]:
    """Activations and additions that the kernel before them does on the way.

    Training: behind a normalisation, directly or with an addition between. Inference: behind a convolution or
    matrix too, whose batch normalisation is folded into its weights and is a tail itself. A value with another reader
    has to be written, so nothing is fused onto it.
    """
    readers = consumers(network, training)
    found: set[int] = set()
    for index, node in network.active(training):
        if _fusible(node, training) and any(
            _carries(network, source_of(network, each), found, training) and len(readers[source_of(network, each)]) == 1
            for each in node.inputs
        ):
            found.add(index)
    return frozenset(found)


def _fusible(node: Node, training: bool) -> bool:
    operator = node.operator
    if isinstance(operator, Activate):
        return operator.kind != "softmax"
    if isinstance(operator, Combine):
        return operator.kind == "add" and len(node.inputs) == 2
    return isinstance(operator, Normalise) and not training and operator.kind in ("batch", "frozen")


def _carries(network: Network, index: int, tails: set[int], training: bool) -> bool:
    """Whether the kernel that writes node `index` can go on with element-wise work."""
    if index < 0:
        return False
    operator = network.nodes[index].operator
    if index in tails:
        return True
    if isinstance(operator, Normalise):
        return operator.kind != "weight"
    return not training and isinstance(operator, (Convolution, Dense))
