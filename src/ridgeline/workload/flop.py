"""Floating-point operations of a model for one token, and the conventions by which papers count them.

A multiply-add is two operations. `forward_flop_per_token` counts what the architecture does. The other functions are
the conventions behind published utilisation figures: they differ by 10 to 30 % for the same step, so a figure means
nothing without its convention. All give forward and backward together, without recomputation.
"""

from __future__ import annotations

from typing import Literal

from ridgeline.core import model as formula
from ridgeline.errors import UnknownName
from ridgeline.specs import Layer, Linear, SoftmaxAttention, Stack, Transformer

Convention = Literal["six-n", "six-n-attention", "six-n-causal-attention", "megatron", "full-attention", "causal"]
CONVENTIONS: tuple[Convention, ...] = (
    "six-n",
    "six-n-attention",
    "six-n-causal-attention",
    "megatron",
    "full-attention",
    "causal",
)
# Forward and backward of a matrix: the product itself, the gradient of its input and that of its weights.
PASSES = 3.0  # src: kaplan-2020


@formula(id="forward-flop-per-token", sources=("chowdhery-2022-palm", "rl-derivation"))
def forward_flop_per_token(model: Transformer, sequence_tokens: float, *, causal_half: bool = True) -> float:
    """Mean operations of one token of the main stack in one forward pass over `sequence_tokens` [FLOP].

    Matrices: 2 * inputs * outputs for each use (active experts only, the head included, table look-ups not). Scores:
    2 * heads * (key width + value width) for each key that a token looks at; `causal_half` counts the keys up to the
    token itself, otherwise the whole sequence (the full square, as several papers count). Windows, chosen keys and
    compressed keys are respected. Encoder-decoders include the encoder's work, at its fixed length or at
    `sequence_tokens`, shared among the decoder's tokens; towers for images and sound are left out.

    >>> from ridgeline.specs import LayerRun
    >>> up = Linear(name="up", role="mlp", inputs_count=4, outputs_count=8)
    >>> stack = Stack(role="decoder", hidden_count=4, runs=(LayerRun(layer=Layer(linears=(up,)), repeat_count=2),))
    >>> model = Transformer(id="m", family="llama", main=stack, hidden_count=4, vocab_count=1,
    ...                     embedding_parameters_count=0)
    >>> forward_flop_per_token(model, 16)
    128.0
    """
    encoders = [stack for stack in model.others if _feeds_cross_attention(model, stack)]
    encoder_tokens = float(model.encoder_tokens or sequence_tokens) if encoders else 0.0
    own = stack_flop(model.main, sequence_tokens, encoder_tokens=encoder_tokens, causal_half=causal_half)
    for stack in encoders:
        own += stack_flop(stack, encoder_tokens, causal_half=causal_half)
    head = 0.0 if model.head is None else linear_flop(model.head)
    return own / sequence_tokens + head


def stack_flop(stack: Stack, tokens: float, *, encoder_tokens: float = 0.0, causal_half: bool = True) -> float:
    """Operations of one stack on one sequence of `tokens` [FLOP]; cross-attention looks at `encoder_tokens`."""
    whole = sum(linear_flop(linear) * tokens for linear in stack.linears)
    for run in stack.runs:
        whole += run.repeat_count * layer_flop(run.layer, tokens, encoder_tokens, causal_half=causal_half)
    return whole


def layer_flop(layer: Layer, tokens: float, encoder_tokens: float, *, causal_half: bool) -> float:
    """Operations of one layer on one sequence of `tokens` [FLOP]."""
    whole = 0.0
    for linear in layer.linears:
        if linear.from_encoder:
            whole += 2 * linear.matrix_count * linear.active_count * encoder_tokens
        else:
            whole += linear_flop(linear) * tokens
    for mixer in layer.mixers:
        if isinstance(mixer, SoftmaxAttention):
            whole += scores_flop(mixer, tokens, encoder_tokens, causal_half=causal_half)
        else:
            whole += mixer.per_token_flop * tokens
    return whole


def linear_flop(linear: Linear) -> float:
    """Operations of one matrix for one token [FLOP]."""
    return 2 * linear.matrix_count * linear.active_count * linear.rows_per_token


def scores_flop(mixer: SoftmaxAttention, tokens: float, encoder_tokens: float, *, causal_half: bool) -> float:
    """Operations of the scores of one layer on one sequence, the indexer's included [FLOP]."""
    rows = tokens * mixer.rows_per_token
    each = 2 * mixer.heads_count * (mixer.key_dim_count + mixer.value_dim_count)
    if mixer.cross:
        return rows * encoder_tokens * each
    available = rows / mixer.stride_tokens
    half = causal_half and mixer.causal
    limits = [float(x) for x in (mixer.window_tokens, mixer.selected_tokens) if x is not None]
    return rows * (
        mean_keys(available, min(limits, default=available), half=half) * each
        + mean_keys(available, available, half=half) * mixer.indexer_per_key_flop
    )


@formula(id="mean-attended-keys", sources=("rl-derivation",))
def mean_keys(available_count: float, limit_count: float, *, half: bool) -> float:
    """Mean keys that a query looks at, of `available_count`, at most `limit_count` each.

    `half`: the i-th query sees i keys, so the mean is (n + 1) / 2 without a limit and w - w (w - 1) / (2 n) with a
    limit of w < n; otherwise every query sees all that the limit allows.

    >>> mean_keys(4, 4, half=True), mean_keys(4, 2, half=True), mean_keys(4, 2, half=False)
    (2.5, 1.75, 2)
    """
    bound = min(limit_count, available_count)
    if not half or available_count <= 0:
        return bound
    return bound - bound * (bound - 1) / (2 * available_count)


@formula(id="six-n", sources=("kaplan-2020",))
def six_n_flop_per_token(parameters_count: float) -> float:
    """6 N: two operations a parameter forward and four backward [FLOP]; N is the active count of a mixture.

    >>> six_n_flop_per_token(37e9)
    222000000000.0
    """
    return 2 * PASSES * parameters_count


@formula(id="six-n-attention", sources=("chowdhery-2022-palm", "mosaic-llm-foundry-benchmarks"))
def six_n_attention_flop_per_token(
    parameters_count: float, layers_count: float, width_count: float, sequence_tokens: float
) -> float:
    """6 N + 12 L h s: full attention over the whole square (PaLM appendix B; MosaicML, nanoGPT) [FLOP].

    `width_count` is all query heads side by side (h where heads times their width is the hidden width).

    >>> six_n_attention_flop_per_token(123.65e6, 12, 768, 1024) / 1e8    # GPT-2 small as nanoGPT counts it
    8.551...
    """
    scores = 2 * PASSES * 2 * layers_count * width_count * sequence_tokens
    return six_n_flop_per_token(parameters_count) + scores


@formula(id="six-n-causal-attention", sources=("dao-2023-flashattention2",))
def six_n_causal_flop_per_token(
    parameters_count: float, layers_count: float, width_count: float, sequence_tokens: float
) -> float:
    """6 N + 6 L h s: half of the square, as causal kernels do it [FLOP]."""
    scores = PASSES * 2 * layers_count * width_count * sequence_tokens
    return six_n_flop_per_token(parameters_count) + scores


@formula(id="megatron-flop", sources=("megatron-2021",))
def megatron_flop_per_token(
    layers_count: float, hidden_count: float, vocab_count: float, sequence_tokens: float, layer_passes: float = PASSES
) -> float:
    """Megatron's count for a GPT whose MLP is four times its width [FLOP].

    `layer_passes` forward equivalents of the layers (3; 4 with full recomputation, which gives the paper's
    96 B s L h^2 (1 + s / 6h + V / 16Lh) for B sequences of s tokens): passes * 24 L h^2 (1 + s / 6h) + 6 h V.

    >>> h, L, V, s = 12288, 96, 51200, 2048
    >>> paper = 96 * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    >>> abs(megatron_flop_per_token(L, h, V, s, layer_passes=4) / paper - 1) < 1e-12
    True
    """
    layer = 24 * hidden_count**2 * (1 + sequence_tokens / (6 * hidden_count))  # src: megatron-2021
    return layer_passes * layers_count * layer + 2 * PASSES * hidden_count * vocab_count


def model_flop_per_token(model: Transformer, sequence_tokens: float, convention: str) -> float:
    """Operations of forward and backward for one token, by a convention's name [FLOP].

    "six-n", "six-n-attention", "six-n-causal-attention" (N active parameters), "megatron" (for GPTs), and
    "full-attention" and "causal": three times `forward_flop_per_token` with the whole square and with half of it.
    """
    if convention not in CONVENTIONS:
        raise UnknownName("convention", convention, CONVENTIONS)
    if convention in ("full-attention", "causal"):
        return PASSES * forward_flop_per_token(model, sequence_tokens, causal_half=convention == "causal")
    if convention == "six-n":
        return six_n_flop_per_token(model.active_parameters_count)
    if convention == "megatron":
        return megatron_flop_per_token(model.layers_count, model.hidden_count, model.vocab_count, sequence_tokens)
    count = six_n_attention_flop_per_token if convention == "six-n-attention" else six_n_causal_flop_per_token
    width = attention_width_count(model)
    return count(model.active_parameters_count, 1.0, width, sequence_tokens)


def attention_width_count(model: Transformer) -> float:
    """Mean of key and value width of all query heads, summed over the layers: L h of the conventions."""
    return sum(
        run.repeat_count * mixer.heads_count * (mixer.key_dim_count + mixer.value_dim_count) / 2
        for run in model.main.runs
        for mixer in run.layer.mixers
        if isinstance(mixer, SoftmaxAttention) and not mixer.cross
    )


def _feeds_cross_attention(model: Transformer, stack: Stack) -> bool:
    if stack.role not in ("encoder", "audio"):
        return False
    return any(
        isinstance(mixer, SoftmaxAttention) and mixer.cross for run in model.main.runs for mixer in run.layer.mixers
    )
