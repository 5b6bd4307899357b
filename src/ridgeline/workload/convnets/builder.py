"""Writing a network down layer by layer: every call adds a node and returns its index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ridgeline.errors import BadModelFile
from ridgeline.specs.network import (
    Activate,
    Combine,
    CombineKind,
    Convolution,
    Dense,
    Network,
    Node,
    Normalise,
    NormKind,
    Operator,
    Pool,
    PoolKind,
    Rearrange,
    Scores,
    Shape,
    Spatial,
)

Sizes = int | Sequence[int]


def divisible(value: float, divisor: int = 8) -> int:  # src: sandler-2018
    """`value` as the nearest multiple of `divisor`, never more than 10 % less: widths of mobile networks.

    >>> divisible(32 * 1.4), divisible(11)
    (48, 16)
    """
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded  # src: sandler-2018


@dataclass(slots=True)
class Net:
    """A network in the making.

    `norm`, `activation`: what follows a convolution of `block` unless told otherwise; `epsilon`-like details that cost
    nothing are left out. `copies` and `trained` hold for the nodes that are added while they are set.
    """

    image: Shape
    norm: NormKind | None = "batch"
    activation: str = "relu"
    copies: float = 1.0
    trained: bool = True
    same: bool = False
    nodes: list[Node] = field(default_factory=list)
    auxiliary: set[int] = field(default_factory=set)
    scope: str = ""

    @property
    def axes(self) -> int:
        """Spatial axes."""
        return len(self.image.spatial)

    def shape(self, index: int) -> Shape:
        """What node `index` makes (-1: the image)."""
        return self.image if index < 0 else self.nodes[index].shape

    def channels(self, index: int) -> int:
        """Channels of node `index`."""
        return self.shape(index).channels_count

    def add(self, name: str, operator: Operator, inputs: Iterable[int], shape: Shape, shares: int | None = None) -> int:
        """Add a node; returns its index."""
        label = f"{self.scope}{name}"
        node = Node(
            name=label,
            operator=operator,
            inputs=tuple(inputs),
            shape=shape,
            copies_count=self.copies,
            shares=shares,
            trained=self.trained,
        )
        self.nodes.append(node)
        return len(self.nodes) - 1

    def wide(self, size: Sizes) -> Spatial:
        """A size for every axis."""
        return (size,) * self.axes if isinstance(size, int) else tuple(size)

    def conv(
        self,
        x: int,
        outputs: int,
        kernel: Sizes = 1,
        stride: Sizes = 1,
        *,
        groups: int = 1,
        bias: bool = False,
        padding: Sizes | None = None,
        dilation: int = 1,
    ) -> int:
        """A convolution alone. Padding: half of the kernel unless given; with `same` as TensorFlow pads."""
        before = self.shape(x)
        if before.channels_count % groups or outputs % groups:
            raise BadModelFile(f"{self.scope}: {before.channels_count} to {outputs} channels in {groups} groups")
        kernels, strides = self.wide(kernel), self.wide(stride)
        if padding is None and self.same:
            spatial = tuple(math.ceil(size / s) for size, s in zip(before.spatial, strides, strict=True))
        else:
            pads = self.wide(padding) if padding is not None else tuple(dilation * (k - 1) // 2 for k in kernels)
            spatial = tuple(
                (size + 2 * p - dilation * (k - 1) - 1) // s + 1
                for size, k, s, p in zip(before.spatial, kernels, strides, pads, strict=True)
            )
        operator = Convolution(
            inputs_count=before.channels_count,
            outputs_count=outputs,
            kernel=kernels,
            stride=strides,
            groups_count=groups,
            bias=bias,
            dilation=dilation,
        )
        return self.add("conv", operator, (x,), Shape(channels_count=outputs, spatial=spatial))

    def up(self, x: int, outputs: int, kernel: Sizes = 2, stride: Sizes = 2, *, bias: bool = True) -> int:
        """A transposed convolution that multiplies sizes by its stride."""
        before = self.shape(x)
        strides = self.wide(stride)
        operator = Convolution(
            inputs_count=before.channels_count,
            outputs_count=outputs,
            kernel=self.wide(kernel),
            stride=strides,
            bias=bias,
            transposed=True,
        )
        spatial = tuple(size * s for size, s in zip(before.spatial, strides, strict=True))
        return self.add("up", operator, (x,), Shape(channels_count=outputs, spatial=spatial))

    def shared(self, x: int, like: int) -> int:
        """The convolution, matrix or normalisation `like` once more on another input, with the same weights."""
        model, before = self.nodes[like], self.shape(x)
        operator = model.operator
        if isinstance(operator, Convolution):
            spatial = tuple(math.ceil(size / s) for size, s in zip(before.spatial, operator.stride, strict=True))
            shape = Shape(channels_count=operator.outputs_count, spatial=spatial)
        else:
            shape = Shape(channels_count=model.shape.channels_count, spatial=before.spatial)
        return self.add("shared", operator, (x,), shape, shares=like if model.shares is None else model.shares)

    def normalise(self, x: int, kind: NormKind | None = None) -> int:
        """A normalisation of `kind`, else of the network's (nothing where it has none)."""
        chosen = kind or self.norm
        if chosen is None:
            return x
        return self.add("norm", Normalise(kind=chosen, channels_count=self.channels(x)), (x,), self.shape(x))

    def act(self, x: int, kind: str | None = None) -> int:
        """An activation of `kind`, else of the network's."""
        return self.add("act", Activate(kind=kind or self.activation), (x,), self.shape(x))

    def block(self, x: int, outputs: int, kernel: Sizes = 1, stride: Sizes = 1, **options: object) -> int:
        """Convolution, normalisation and activation (`act`: another one, "" for none)."""
        kind = options.pop("act", None)
        x = self.normalise(self.conv(x, outputs, kernel, stride, **options))  # type: ignore[arg-type]
        return x if kind == "" else self.act(x, str(kind) if kind else None)

    def pool(
        self, x: int, kind: PoolKind, kernel: Sizes = 2, stride: Sizes = 2, padding: Sizes = 0, ceil: bool = False
    ) -> int:
        """A pooling window."""
        before = self.shape(x)
        kernels, strides, pads = self.wide(kernel), self.wide(stride), self.wide(padding)
        rounded = math.ceil if ceil else math.floor
        if self.same:
            spatial = tuple(math.ceil(size / s) for size, s in zip(before.spatial, strides, strict=True))
        else:
            spatial = tuple(
                rounded((size + 2 * p - k) / s) + 1
                for size, k, s, p in zip(before.spatial, kernels, strides, pads, strict=True)
            )
        return self.add(
            "pool",
            Pool(kind=kind, kernel=kernels, stride=strides),
            (x,),
            Shape(channels_count=before.channels_count, spatial=spatial),
        )

    def global_pool(self, x: int) -> int:
        """The mean of every channel."""
        return self.add("global-pool", Pool(kind="global"), (x,), Shape(channels_count=self.channels(x)))

    def flatten(self, x: int) -> int:
        """All elements as a vector; moves nothing, so it costs nothing but a view of the last node."""
        return self.add(
            "flatten", Rearrange(kind="view", reads_count=0.0), (x,), Shape(channels_count=self.shape(x).elements_count)
        )

    def dense(self, x: int, outputs: int, *, bias: bool = True) -> int:
        """A fully connected layer at every position."""
        before = self.shape(x)
        operator = Dense(inputs_count=before.channels_count, outputs_count=outputs, bias=bias)
        return self.add("dense", operator, (x,), Shape(channels_count=outputs, spatial=before.spatial))

    def combine(self, kind: CombineKind, *inputs: int) -> int:
        """Addition, gate (the first input has the shape) or concatenation."""
        first = self.shape(inputs[0])
        if kind == "concat":
            first = Shape(channels_count=sum(self.channels(x) for x in inputs), spatial=first.spatial)
        elif kind == "add" and any(self.shape(x) != first for x in inputs):
            raise BadModelFile(f"{self.scope}: addition of {[self.shape(x) for x in inputs]}")
        return self.add(kind, Combine(kind=kind), inputs, first)

    def sum(self, *inputs: int) -> int:
        """Residual addition."""
        return self.combine("add", *inputs)

    def concat(self, *inputs: int) -> int:
        """Concatenation of channels."""
        return self.combine("concat", *inputs)

    def resize(self, x: int, scale: int = 2, reads: float = 1.0) -> int:
        """Up-sampling by a whole factor: nearest (one read an output) or bilinear (four)."""
        before = self.shape(x)
        spatial = tuple(size * scale for size in before.spatial)
        return self.add(
            "resize",
            Rearrange(kind="resize", reads_count=reads),
            (x,),
            Shape(channels_count=before.channels_count, spatial=spatial),
        )

    def rearrange(self, x: int, channels: int, spatial: Sizes, kind: str = "copy", reads: float = 1.0) -> int:
        """A copy into another shape."""
        shape = Shape(channels_count=channels, spatial=(spatial,) if isinstance(spatial, int) else tuple(spatial))
        return self.add(kind, Rearrange(kind=kind, reads_count=reads), (x,), shape)

    def squeeze_excite(self, x: int, squeezed: int, act: str = "relu", gate: str = "sigmoid") -> int:
        """Squeeze-and-excitation: global mean, two 1x1 layers, a gate on the channels (Hu 2018)."""
        s = self.global_pool(x)
        s = self.act(self.dense(s, squeezed), act)
        s = self.act(self.dense(s, self.channels(x)), gate)
        return self.combine("multiply", x, s)

    def attention(self, query: int, key: int, value: int, heads: int) -> int:
        """Scores of queries on keys and the mixing of values; projections are layers of their own."""
        operator = Scores(
            heads_count=heads,
            key_dim_count=self.channels(key) // heads,
            value_dim_count=self.channels(value) // heads,
            keys_count=self.shape(key).positions_count,
        )
        shape = Shape(channels_count=self.channels(value), spatial=self.shape(query).spatial)
        return self.add("attention", operator, (query, key, value), shape)

    def classifier(self, x: int, classes: int, *, bias: bool = True) -> int:
        """Global mean and a fully connected layer."""
        return self.dense(self.global_pool(x), classes, bias=bias)

    def side(self, first: int) -> None:
        """Mark the nodes from `first` on as running in training alone."""
        self.auxiliary.update(range(first, len(self.nodes)))

    def done(self, id: str, source: str, sample: str = "image") -> Network:
        """The finished network."""
        return Network(
            id=id,
            image=self.image,
            nodes=tuple(self.nodes),
            source=source,
            sample=sample,
            train_only=frozenset(self.auxiliary),
        )


def start(image: Sizes, channels: int = 3, **options: object) -> Net:  # src: rgb-images
    """A new network on square images (or on sizes given one by one) with `channels` channels."""
    spatial = (image, image) if isinstance(image, int) else tuple(image)
    return Net(image=Shape(channels_count=channels, spatial=spatial), **options)  # type: ignore[arg-type]
