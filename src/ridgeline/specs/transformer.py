"""A neural network as stacks of layers: matrices, mixers and what lies between them.

One vocabulary covers dense, grouped-query, latent-attention, sliding-window, mixture-of-experts, state-space and
linear-attention layers, encoders, encoder-decoders and the towers of multimodal models: a layer is a list of
`Linear` matrices (all the weights that make GEMMs) and a list of mixers (what has no weights: attention scores,
recurrences). Counts and operations follow from these alone, so that parameters, memory and time cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ridgeline.core import FrozenMap
from ridgeline.specs.precision import bytes_per_element

Role = Literal["attention", "mixer", "mlp", "expert", "shared-expert", "router", "head", "embedding", "other"]
Split = Literal["column", "row", "replicated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One weight matrix: each token that uses it costs 2 * inputs * outputs FLOP.

    `split` says how tensor parallelism cuts it. `head_count` bounds a column split (grouped-query K and V cannot
    be cut finer than their heads; beyond that they are replicated). `experts_count` copies are stored and
    `active_count` of them are used by each token (experts of a mixture); `rows_per_token` differs from 1 where
    the matrix is applied to fewer or more rows than tokens (cross-attention keys, pooler: 1 a sequence is 0).
    `precision` overrides the precision of its role in a quantised checkpoint. `from_encoder`: it is applied to the
    encoder's tokens, once a sequence (keys and values of cross-attention); `rows_per_token` is then encoder tokens
    over tokens of its own stack at full length.
    """

    name: str
    role: Role
    inputs_count: int
    outputs_count: int
    bias: bool = False
    split: Split = "column"
    head_count: int | None = None
    experts_count: int = 1
    active_count: float = 1.0
    rows_per_token: float = 1.0
    precision: str = ""
    from_encoder: bool = False

    @property
    def matrix_count(self) -> int:
        """Elements of one copy, without bias."""
        return self.inputs_count * self.outputs_count

    @property
    def parameters_count(self) -> int:
        """Stored parameters: all copies, bias included."""
        return self.experts_count * (self.matrix_count + (self.outputs_count if self.bias else 0))

    @property
    def active_parameters_count(self) -> int:
        """Parameters that one token passes through."""
        return round(self.parameters_count * self.active_count / self.experts_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxAttention:
    """Attention scores of one layer: `heads` queries against `kv_heads` keys and values.

    `cached_per_token_count` elements are kept for each token in serving (2 * kv_heads * head_dim for grouped
    queries, the latent width plus the rope part for MLA; 0 in encoders and for shared caches).
    `window_tokens` None: full attention; otherwise each token sees that many last tokens, itself included.
    `selected_tokens`: sparse attention reads only so many keys a query (indexer costs are `Linear`s and
    `indexer_per_key_flop`). `latent`: decode runs in the compressed space, as one key head of `latent_dim`.
    `stride_tokens`: one key is kept for so many tokens (compressed attention; `selected_tokens` and the cached
    elements are then counted in such keys). `indexer_cached_per_key_bytes`: what a sparse-attention indexer keeps
    beside each key, in its own format whatever the cache's precision. `rows_per_token` differs from 1 where the
    layer works on fewer rows than the stack has tokens (later stages of a pyramid). Disentangled attention (DeBERTa)
    adds to the scores `relative_products_count` products with a table of `relative_positions_count` positions, which
    are looked up for every pair: kernels that fuse attention do not know it.
    """

    heads_count: int
    kv_heads_count: int
    key_dim_count: int
    value_dim_count: int
    cached_per_token_count: int
    causal: bool = True
    window_tokens: int | None = None
    selected_tokens: int | None = None
    indexer_per_key_flop: float = 0.0
    latent_dim_count: int | None = None
    cross: bool = False
    stride_tokens: int = 1
    indexer_cached_per_key_bytes: float = 0.0
    rows_per_token: float = 1.0
    relative_products_count: int = 0
    relative_positions_count: int = 0

    def cached_bytes_per_token(self, kv_precision: str) -> float:
        """Bytes that one token adds to the cache while it grows: elements in `kv_precision` and the indexer's own."""
        elements = self.cached_per_token_count * bytes_per_element(kv_precision)
        return (elements + self.indexer_cached_per_key_bytes) / self.stride_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A state-space or linear-attention scan: constant state, work linear in tokens.

    `state_per_sequence_count` elements are kept for each sequence in serving at `state_precision` (the recurrent
    state), and `tail_per_sequence_count` at `tail_precision` (the last inputs of the short convolution).
    `per_token_flop` is the scan and the convolution without the projections.
    """

    kind: str
    state_per_sequence_count: int
    per_token_flop: float
    state_precision: str = "fp32"
    elementwise_per_token_count: float = 0.0
    tail_per_sequence_count: int = 0
    tail_precision: str = "bf16"

    @property
    def state_per_sequence_bytes(self) -> float:
        """Bytes kept for each sequence: state and convolution tail."""
        state = self.state_per_sequence_count * bytes_per_element(self.state_precision)
        return state + self.tail_per_sequence_count * bytes_per_element(self.tail_precision)


Mixer = SoftmaxAttention | Recurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One block: its matrices, its mixers, and widths of the work between them.

    `other_parameters_count`: norms, convolutions, gates, sinks and whatever makes no GEMM. `norms_count` norms of
    the hidden width run per token; `activation_count` elements go through the MLP non-linearity per token (of
    one expert times active experts for mixtures); `gated`: the MLP multiplies two branches; `rope`: rotary
    position embedding is applied. `stream_frac`: elements that a norm or residual works on for each token, over the
    stack's width (stages of vision models that shrink the image have fewer).
    """

    linears: tuple[Linear, ...]
    mixers: tuple[Mixer, ...] = ()
    other_parameters_count: int = 0
    norms_count: int = 2
    activation_count: int = 0
    gated: bool = True
    rope: bool = True
    stream_frac: float = 1.0

    @property
    def parameters_count(self) -> int:
        """Stored parameters."""
        return sum(item.parameters_count for item in self.linears) + self.other_parameters_count

    @property
    def active_parameters_count(self) -> int:
        """Parameters that one token passes through."""
        return sum(item.active_parameters_count for item in self.linears) + self.other_parameters_count

    @property
    def experts_count(self) -> int:
        """Routed experts of the layer (0 where it is dense)."""
        return max((item.experts_count for item in self.linears if item.role == "expert"), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    """`repeat_count` times the same layer, in order; `shared`: all of them use one set of weights (ALBERT)."""

    layer: Layer
    repeat_count: int = 1
    shared: bool = False

    @property
    def stored_count(self) -> int:
        """Copies of the weights."""
        return 1 if self.shared else self.repeat_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A column of layers of one width: the decoder, an encoder, or a vision or audio tower.

    `other_parameters_count`: position tables, patch or frame embedding without a GEMM, final norm, projector
    norms. `linears` are matrices outside the layers (patch embedding, projector).
    """

    role: Literal["decoder", "encoder", "vision", "audio"]
    hidden_count: int
    runs: tuple[LayerRun, ...]
    linears: tuple[Linear, ...] = ()
    other_parameters_count: int = 0

    @property
    def layers_count(self) -> int:
        """Number of layers."""
        return sum(run.repeat_count for run in self.runs)

    @property
    def parameters_count(self) -> int:
        """Stored parameters of the stack."""
        inner = sum(run.stored_count * run.layer.parameters_count for run in self.runs)
        return inner + sum(item.parameters_count for item in self.linears) + self.other_parameters_count

    @property
    def active_parameters_count(self) -> int:
        """Parameters that one token passes through."""
        inner = sum(run.stored_count * run.layer.active_parameters_count for run in self.runs)
        return inner + sum(item.active_parameters_count for item in self.linears) + self.other_parameters_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A model: a main stack (the decoder, or the encoder of an encoder-only model) and what hangs on it.

    `embedding_parameters_count`: token (and segment) tables, counted once when tied. `head`: the matrix from
    hidden to vocabulary or classes (its weights are counted only when `tied_embeddings` is false).
    `other_parameters_count`: pooler and heads without GEMM per token. `mtp_parameters_count` (multi-token
    prediction layers) is apart from every other count; `ahead` holds the layers of one such module, and the matrix
    that joins its two inputs, where their shape is known. `precisions` maps a `Role` to the stored precision of a
    quantised checkpoint; "default" is that of everything else; empty for the precision of the plan.
    `encoder_tokens`: fixed input length of the encoder or tower where the architecture has one (Whisper 1500,
    ViT 197); None where it follows the input.
    """

    id: str
    family: str
    name: str = ""
    main: Stack
    others: tuple[Stack, ...] = ()
    hidden_count: int
    vocab_count: int
    embedding_parameters_count: int
    head: Linear | None = None
    tied_embeddings: bool = False
    other_parameters_count: int = 0
    mtp_parameters_count: int = 0
    ahead: Stack | None = None
    max_context_tokens: int | None = None
    encoder_tokens: int | None = None
    precisions: FrozenMap[str, str] = field(default_factory=FrozenMap)
    source: str = ""
    date: str = ""
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    @property
    def layers_count(self) -> int:
        """Layers of the main stack."""
        return self.main.layers_count

    @property
    def parameters_count(self) -> int:
        """All stored parameters, tied embeddings once, without multi-token-prediction layers."""
        stacks = self.main.parameters_count + sum(stack.parameters_count for stack in self.others)
        head = 0 if self.head is None or self.tied_embeddings else self.head.parameters_count
        return stacks + self.embedding_parameters_count + head + self.other_parameters_count

    @property
    def active_parameters_count(self) -> int:
        """As `parameters_count`, with only the experts that one token passes through."""
        stacks = self.main.active_parameters_count + sum(s.active_parameters_count for s in self.others)
        head = 0 if self.head is None or self.tied_embeddings else self.head.parameters_count
        return stacks + self.embedding_parameters_count + head + self.other_parameters_count

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The main stack and the others."""
        return (self.main, *self.others)
