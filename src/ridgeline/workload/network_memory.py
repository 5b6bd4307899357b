"""Memory that training or running a layered network takes on one device."""

from __future__ import annotations

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
from ridgeline.workload.network_graph import consumers, fused_tails, gradient_flow, source_of

_MASTER_BYTES = 4.0  # src: ieee-754
_RECTIFIERS = ("relu", "relu6", "leaky-relu")


def parameter_bytes(network: Network, precision: str) -> tuple[float, float]:
    """Weights and gradients of mixed-precision training [bytes]: fp32 masters, and copies in a 16-bit `precision`."""
    count = float(network.parameters_count)
    copy = bytes_per_element(precision) if bytes_per_element(precision) < _MASTER_BYTES else 0.0
    return count * (_MASTER_BYTES + copy), network.trained_parameters_count * _MASTER_BYTES


def kept_activations_count(network: Network, fused: bool) -> float:
    """Elements of one image that the backward pass needs: inputs of what has weights, of normalisations and gates.

    A rectifier works in place, so that what it read is gone and its output is kept once; what a fused kernel passes
    on inside is never written.
    """
    readers = consumers(network, True)
    flow = gradient_flow(network)
    tails = fused_tails(network, True) if fused else frozenset()
    kept = 0.0
    for index, node in network.active(training=True):
        if isinstance(node.operator, Rearrange) and node.operator.reads_count == 0:
            continue
        behind = [reader for reader in readers[index] if flow[reader]]
        if any(reader in tails for reader in behind) and len(behind) == 1:
            continue  # stays inside a fused kernel
        if any(_needs_input(network.nodes[reader]) for reader in behind) or (behind and _keeps_output(node)):
            kept += node.copies_count * node.shape.elements_count
    return kept


def _needs_input(node: Node) -> bool:
    operator = node.operator
    if isinstance(operator, (Convolution, Dense)):
        return node.trained
    if isinstance(operator, Normalise):
        return operator.kind not in ("weight", "frozen")
    if isinstance(operator, Combine):
        return operator.kind == "multiply"
    if isinstance(operator, Pool):
        return operator.kind == "max"
    if isinstance(operator, Activate):
        return operator.kind not in _RECTIFIERS
    return isinstance(operator, Scores)


def _keeps_output(node: Node) -> bool:
    return isinstance(node.operator, Activate) and node.operator.kind in _RECTIFIERS


def largest_working_set_count(network: Network) -> float:
    """Most elements of one image that are alive at once at inference: what later nodes still read, and what is made."""
    last: dict[int, int] = {}
    for index, node in network.active(training=False):
        for each in node.inputs:
            last[source_of(network, each)] = index
    alive: dict[int, float] = {-1: float(network.image.elements_count)}
    most = alive[-1]
    for index, node in network.active(training=False):
        if isinstance(node.operator, Rearrange) and node.operator.reads_count == 0:
            continue
        alive[index] = node.copies_count * node.shape.elements_count
        most = max(most, sum(alive.values()))
        for gone in [each for each in alive if last.get(each, -1) <= index and each != index]:
            del alive[gone]
    return most
