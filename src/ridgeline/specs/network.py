"""A layered network: convolutions and what stands between them, as nodes of a graph with shapes.

A `Network` holds one image's (or volume's, or latent's) way through the layers. Shapes are per image; batches come from
the plan. A node that runs several times for an image (the regions of a detector) says so in `copies_count`; one that
uses another's weights (a head on every level of a pyramid) names it in `shares`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

NormKind = Literal["batch", "group", "layer", "instance", "weight", "frozen"]
PoolKind = Literal["max", "average", "global"]
CombineKind = Literal["add", "multiply", "concat"]
Spatial = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Channels and spatial sizes of one activation of one image; no spatial sizes: a vector."""

    channels_count: int
    spatial: Spatial = ()

    @property
    def positions_count(self) -> int:
        """Spatial positions (1 for a vector)."""
        return math.prod(self.spatial)

    @property
    def elements_count(self) -> int:
        """Elements of one image.

        >>> Shape(channels_count=64, spatial=(112, 112)).elements_count
        802816
        """
        return self.channels_count * self.positions_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution over one, two or three spatial axes, or its transpose; `groups_count` equal groups of channels."""

    inputs_count: int
    outputs_count: int
    kernel: Spatial
    stride: Spatial
    groups_count: int = 1
    bias: bool = False
    transposed: bool = False
    dilation: int = 1

    @property
    def weights_count(self) -> int:
        """Elements of the filter."""
        return self.inputs_count * self.outputs_count // self.groups_count * math.prod(self.kernel)

    @property
    def parameters_count(self) -> int:
        """Filter and bias."""
        return self.weights_count + (self.outputs_count if self.bias else 0)

    @property
    def depthwise(self) -> bool:
        """Whether every channel has its own filter."""
        return self.groups_count == self.inputs_count and self.groups_count > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A fully connected layer, applied at every position of its input."""

    inputs_count: int
    outputs_count: int
    bias: bool = True

    @property
    def weights_count(self) -> int:
        """Elements of the matrix."""
        return self.inputs_count * self.outputs_count

    @property
    def parameters_count(self) -> int:
        """Matrix and bias."""
        return self.weights_count + (self.outputs_count if self.bias else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalise:
    """A normalisation. "batch": over the batch while training, folded away at inference; "frozen": a fixed scale and
    shift; "weight": of weights, not of activations (standardised convolutions). `scale_count`: scale and shift."""

    kind: NormKind
    channels_count: int
    scale_count: int = 2

    @property
    def parameters_count(self) -> int:
        """Scale and shift of each channel (none where frozen)."""
        return 0 if self.kind == "frozen" else self.scale_count * self.channels_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Activate:
    """An element-wise non-linearity ("relu", "silu", "gelu", "sigmoid", "softmax"...); PReLU has `slopes_count`."""

    kind: str
    slopes_count: int = 0

    @property
    def parameters_count(self) -> int:
        """Learned slopes."""
        return self.slopes_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pooling; "global" reduces every channel to one value."""

    kind: PoolKind
    kernel: Spatial = ()
    stride: Spatial = ()

    @property
    def parameters_count(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """Several inputs made one: residual addition, gate (a channel vector times a map), concatenation."""

    kind: CombineKind

    @property
    def parameters_count(self) -> int:
        """None."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rearrange:
    """A copy that changes shape or order (resize, crop, shuffle, region align): `reads_count` elements read an output
    element (4 for bilinear sampling); `parameters_count` learned values that it adds (position embeddings)."""

    kind: str
    reads_count: float = 1.0
    parameters_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Attention between positions: softmax(Q K^T) V over `keys_count` keys (0: those of its input)."""

    heads_count: int
    key_dim_count: int
    value_dim_count: int
    keys_count: int = 0

    @property
    def parameters_count(self) -> int:
        """None: projections are layers of their own."""
        return 0


Operator = Convolution | Dense | Normalise | Activate | Pool | Combine | Rearrange | Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One layer: what it does, the nodes that it reads, and what it makes of one image.

    `copies_count`: how often it runs for one image (regions of a detector). `shares`: the node whose weights it uses
    (None: its own). `trained`: whether its weights, and anything before it, get gradients.
    """

    name: str
    operator: Operator
    inputs: tuple[int, ...]
    shape: Shape
    copies_count: float = 1.0
    shares: int | None = None
    trained: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A layered network on one input size. `nodes` are in order of execution; an input index of -1 is the image.

    `train_only`: nodes that run in training alone (auxiliary heads). `source`: id of where the architecture was
    published. `sample` says what one item is ("image", "volume").
    """

    id: str
    image: Shape
    nodes: tuple[Node, ...]
    source: str = ""
    sample: str = "image"
    train_only: frozenset[int] = field(default_factory=frozenset)

    def input_shape(self, node: Node, which: int = 0) -> Shape:
        """Shape of what `node` reads."""
        index = node.inputs[which]
        return self.image if index < 0 else self.nodes[index].shape

    def active(self, training: bool) -> Iterator[tuple[int, Node]]:
        """Nodes that run, with their indices."""
        for index, node in enumerate(self.nodes):
            if training or index not in self.train_only:
                yield index, node

    @property
    def parameters_count(self) -> int:
        """Learned values (statistics of normalisation are none), shared weights once, auxiliary heads included."""
        return sum(node.operator.parameters_count for node in self.nodes if node.shares is None)

    @property
    def trained_parameters_count(self) -> int:
        """Learned values that get gradients."""
        return sum(node.operator.parameters_count for node in self.nodes if node.shares is None and node.trained)

    def forward_flop(self, training: bool = False) -> float:
        """Operations of the products and convolutions of one image, a multiply-add as two."""
        return sum(self.node_flop(node) for _, node in self.active(training))

    def node_flop(self, node: Node) -> float:
        """Operations of one node for one image: 2 x multiply-adds of convolutions, matrices and attention."""
        operator, out = node.operator, node.shape
        if isinstance(operator, Convolution):
            positions = self.input_shape(node).positions_count if operator.transposed else out.positions_count
            return 2.0 * node.copies_count * operator.weights_count * positions
        if isinstance(operator, Dense):
            return 2.0 * node.copies_count * operator.weights_count * out.positions_count
        if isinstance(operator, Scores):
            keys = operator.keys_count or self.input_shape(node).positions_count
            wide = operator.heads_count * (operator.key_dim_count + operator.value_dim_count)
            return 2.0 * node.copies_count * out.positions_count * keys * wide
        return 0.0

    def activations_count(self, training: bool = False) -> float:
        """Elements that all nodes write for one image."""
        return sum(node.copies_count * node.shape.elements_count for _, node in self.active(training))
