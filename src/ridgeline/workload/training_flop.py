"""Operations that a training step needs by definition, whatever the software does."""

from __future__ import annotations

from ridgeline.core import model as formula
from ridgeline.specs import Layer, SoftmaxAttention, TrainingPlan, Transformer
from ridgeline.workload.stages import cross_tokens, stack_tokens


@formula(id="model-flop", sources=("chowdhery-2022-palm", "kaplan-2020"))
def step_flop(model: Transformer, plan: TrainingPlan) -> float:
    """Model FLOP of one step: three times the forward pass of every sequence (6 N a token and attention).

    Matrices count 2 x inputs x outputs for each token that uses them, the head included and table look-ups not;
    scores count the pairs that the mask allows. Recompute counts nothing; frozen matrices have no weight gradient.
    Source: Chowdhery et al. 2022, appendix B, with half of the square for causal attention.
    """
    matrices = scores = 0.0
    for stack in model.stacks:
        tokens = stack_tokens(model, stack, plan.sequence_tokens)
        for run in stack.runs:
            one_matrices, one_scores = layer_flop(run.layer, tokens, cross_tokens(model, plan.sequence_tokens))
            matrices += run.repeat_count * one_matrices
            scores += run.repeat_count * one_scores
        matrices += sum(2.0 * item.matrix_count * item.rows_per_token * tokens for item in stack.linears)
    if model.head is not None:
        matrices += 2.0 * model.head.matrix_count * (model.head.rows_per_token * plan.sequence_tokens or 1.0)
    passes = 2.0 + plan.trainable_frac
    return plan.global_batch_count * (passes * matrices + (1.0 + 2.0) * scores)


def layer_flop(layer: Layer, tokens: float, cross: float) -> tuple[float, float]:
    """Forward operations of one layer on one sequence: (matrices, scores and scans)."""
    matrices = sum(2.0 * x.matrix_count * x.active_count * x.rows_per_token * tokens for x in layer.linears)
    scores = 0.0
    for mixer in layer.mixers:
        if isinstance(mixer, SoftmaxAttention):
            pairs = tokens * seen_keys(mixer, tokens, cross)
            scores += 2.0 * mixer.heads_count * pairs * (mixer.key_dim_count + mixer.value_dim_count)
            scores += tokens * tokens / 2 * mixer.indexer_per_key_flop
        else:
            scores += tokens * mixer.per_token_flop
    return matrices, scores


def seen_keys(mixer: SoftmaxAttention, tokens: float, cross: float) -> float:
    """Mean keys that a query of a sequence of `tokens` sees.

    >>> m = SoftmaxAttention(heads_count=1, kv_heads_count=1, key_dim_count=1, value_dim_count=1,
    ...                      cached_per_token_count=2, window_tokens=2)
    >>> seen_keys(m, 4.0, 0.0)     # 1, 2, 2, 2
    1.75
    """
    if mixer.cross:
        return cross
    bound = min(float(x) for x in (mixer.window_tokens, mixer.selected_tokens, tokens) if x is not None)
    if not mixer.causal:
        return bound
    return bound - bound * (bound - 1.0) / (2 * tokens)
