"""Operations: what a layer asks of one device, with shapes but without times.

`workload` makes them from a model and a plan, `device` and `network` say how long each takes. Shapes are those of
one device after the plan's sharding. Counts may be fractional where they are means over layers or tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ridgeline.specs import RankGroup, bytes_per_element

ElementwiseKind = Literal[
    "norm",
    "residual",
    "activation",
    "rope",
    "softmax",
    "dropout",
    "cast",
    "embedding",
    "loss",
    "optimizer",
    "accumulate",
    "scan",
    "kv-write",
    "batch-norm",
    "pool",
    "stream",
    "transpose",
    "transpose-wide",
    "other",
]
ConvolutionDirection = Literal["forward", "input-gradient", "weight-gradient"]
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "token_exchange", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch_count` products C[m, n] = A[m, k] B[k, n]: 2 m n k FLOP each.

    `math_precision` picks the matrix rate; `weight_precision` is the storage of B (may be narrower: weight-only
    quantisation), `activation_precision` that of A; C is written in `output_precision`.
    """

    name: str
    m: float
    n: float
    k: float
    batch_count: float = 1.0
    math_precision: str = "bf16"
    weight_precision: str = "bf16"
    activation_precision: str = "bf16"
    output_precision: str = "bf16"

    @property
    def flop(self) -> float:
        """Floating-point operations (a multiply-add is two)."""
        return 2.0 * self.batch_count * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        """Compulsory traffic: both operands once, the result once."""
        return self.batch_count * (
            self.m * self.k * bytes_per_element(self.activation_precision)
            + self.k * self.n * bytes_per_element(self.weight_precision)
            + self.m * self.n * bytes_per_element(self.output_precision)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm:
    """A mixture's expert GEMM: `rows_count` token-expert pairs over `experts_count` local experts of (k, n).

    `touched_count` experts have at least one row (their weights are read); `imbalance_frac` is how far the
    fullest expert is above the mean.
    """

    name: str
    rows_count: float
    experts_count: float
    touched_count: float
    n: float
    k: float
    imbalance_frac: float = 0.0
    math_precision: str = "bf16"
    weight_precision: str = "bf16"
    activation_precision: str = "bf16"
    output_precision: str = "bf16"

    @property
    def flop(self) -> float:
        """Floating-point operations."""
        return 2.0 * self.rows_count * self.n * self.k

    @property
    def bytes(self) -> float:
        """Compulsory traffic: touched weights once, rows in and out."""
        return (
            self.rows_count * self.k * bytes_per_element(self.activation_precision)
            + self.touched_count * self.k * self.n * bytes_per_element(self.weight_precision)
            + self.rows_count * self.n * bytes_per_element(self.output_precision)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPrefill:
    """Scores of many queries at once: `batch_count` sequences of `query_tokens` queries on `key_tokens` keys.

    Queries are the last `query_tokens` of the keys when `causal`. `window_tokens` and `selected_tokens` bound the
    keys a query reads. `backward` makes it the gradient kernel. `head` counts are those of one device. Not `fused`:
    the scores are written to memory between the products whatever kernels there are.
    """

    name: str
    batch_count: float
    query_tokens: float
    key_tokens: float
    heads_count: float
    kv_heads_count: float
    key_dim_count: int
    value_dim_count: int
    causal: bool = True
    window_tokens: int | None = None
    selected_tokens: int | None = None
    backward: bool = False
    precision: str = "bf16"
    fused: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionDecode:
    """Scores of one new token a sequence: reads `batch_count` caches of `context_tokens` tokens.

    `cached_per_token_count` elements of `kv_precision` are read per token and device; `kv_heads_count` is 1 for
    latent attention, whose `key_dim_count` is then the latent width plus rope part. `repeated_frac` of what is read was
    read by a neighbour at the same time (beams that share a prompt) and comes from the last-level cache.
    """

    name: str
    batch_count: float
    context_tokens: float
    heads_count: float
    kv_heads_count: float
    key_dim_count: int
    value_dim_count: int
    cached_per_token_count: float
    repeated_frac: float = 0.0
    kv_precision: str = "bf16"
    precision: str = "bf16"

    @property
    def bytes(self) -> float:
        """Cache bytes read."""
        return (
            self.batch_count * self.context_tokens * self.cached_per_token_count * bytes_per_element(self.kv_precision)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolve:
    """A convolution of `batch_count` images, or one of its gradients.

    `inputs_count` channels at `in_spatial` positions become `outputs_count` at `out_spatial`, in `groups_count` equal
    groups. Directions: "forward" makes the output, "input-gradient" the gradient of the input (also what a transposed
    convolution does forward, seen from the convolution that it transposes), "weight-gradient" that of the filter.
    `math_precision` picks the matrix rate; tensors are kept in `precision`, what is made in `output_precision`.
    """

    name: str
    direction: ConvolutionDirection = "forward"
    batch_count: float
    inputs_count: int
    outputs_count: int
    in_spatial: tuple[int, ...]
    out_spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    groups_count: int = 1
    math_precision: str = "bf16"
    precision: str = "bf16"
    output_precision: str = "bf16"

    @property
    def taps_count(self) -> int:
        """Positions of the filter."""
        return math.prod(self.kernel)

    @property
    def depthwise(self) -> bool:
        """Whether every channel has its own filter."""
        return self.groups_count == self.inputs_count and self.groups_count > 1

    @property
    def weights_count(self) -> float:
        """Elements of the filter."""
        return self.inputs_count * self.outputs_count / self.groups_count * self.taps_count

    @property
    def read_frac(self) -> float:
        """Share of the input's positions that any window touches (a 1x1 filter with stride 2 skips most)."""
        return math.prod(min(1.0, k / s) for k, s in zip(self.kernel, self.stride, strict=True))

    @property
    def input_count(self) -> float:
        """Elements of the input."""
        return self.batch_count * self.inputs_count * math.prod(self.in_spatial)

    @property
    def output_count(self) -> float:
        """Elements of the output."""
        return self.batch_count * self.outputs_count * math.prod(self.out_spatial)

    @property
    def flop(self) -> float:
        """Floating-point operations, the same in every direction (a multiply-add is two)."""
        return 2.0 * self.batch_count * self.weights_count * math.prod(self.out_spatial)

    @property
    def bytes(self) -> float:
        """Compulsory traffic: two tensors read, the third written."""
        wide, out = bytes_per_element(self.precision), bytes_per_element(self.output_precision)
        x, y, w = self.input_count * self.read_frac, self.output_count, self.weights_count
        if self.direction == "forward":
            return (x + w) * wide + y * out
        if self.direction == "input-gradient":
            return (y + w) * wide + self.input_count * out
        return (x + y) * wide + w * out


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Work that is bound by memory: `bytes` moved in all, over `launches_count` kernels.

    `chain_s`: passes inside that wait for each other (counts, prefix sums) and take so long whatever is moved.
    """

    name: str
    kind: ElementwiseKind
    bytes: float
    launches_count: float = 1.0
    flop: float = 0.0
    chain_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Ranks exchange `message_bytes`.

    The size is the nccl-tests one: all_reduce: the buffer of each rank; all_gather: the gathered result;
    reduce_scatter: the whole input of a rank; all_to_all and token_exchange: the whole send
    buffer of a rank; send: the message.
    """

    name: str
    kind: CollectiveKind
    message_bytes: float
    group: RankGroup


ComputeOp = Gemm | GroupedGemm | AttentionPrefill | AttentionDecode | Convolve | Elementwise
Op = ComputeOp | Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """An operation that runs `count` times."""

    op: Op
    count: float = 1.0


def renamed(op: Op, name: str) -> Op:
    """The same operation under another name."""
    return replace(op, name=name)
