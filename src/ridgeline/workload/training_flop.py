"""Operations that a training step needs by definition, whatever the software does."""

from __future__ import annotations

from ridgeline.core import model as formula
from ridgeline.specs import Layer, SoftmaxAttention, TrainingPlan, Transformer
from ridgeline.workload.flop import linear_flop, scores_flop
from ridgeline.workload.remember import remembered
from ridgeline.workload.stages import cross_tokens, stack_tokens


@formula(id="model-flop", sources=("chowdhery-2022-palm", "kaplan-2020"))
def step_flop(model: Transformer, plan: TrainingPlan) -> float:
    """Model FLOP of one step: three times the forward pass of every sequence (6 N a token and attention).

    Matrices count 2 x inputs x outputs for each token that uses them, the head included and table look-ups not;
    scores count the pairs that the mask allows (packed documents see themselves alone). Recompute and padding count
    nothing; frozen matrices have no weight gradient.
    Source: Chowdhery et al. 2022, appendix B, with half of the square for causal attention.
    """
    matrices, scores = sequence_flop(model, plan.sequence_tokens)
    if 0 < plan.document_tokens < plan.sequence_tokens:
        scores = plan.sequence_tokens / plan.document_tokens * sequence_flop(model, round(plan.document_tokens))[1]
    passes = 2.0 + plan.trainable_frac
    return plan.real_frac * plan.global_batch_count * (passes * matrices + (1.0 + 2.0) * scores)


@remembered()
def sequence_flop(model: Transformer, sequence_tokens: int) -> tuple[float, float]:
    """Forward operations of one sequence of all stacks: (matrices, scores and scans)."""
    cross = cross_tokens(model, sequence_tokens)
    matrices = scores = 0.0
    for stack in model.stacks:
        tokens = stack_tokens(model, stack, sequence_tokens)
        for run in stack.runs:
            one_matrices, one_scores = layer_flop(run.layer, tokens, cross)
            matrices += run.repeat_count * one_matrices
            scores += run.repeat_count * one_scores
        matrices += sum(linear_flop(item) for item in stack.linears) * tokens
    if model.head is not None:
        once = 2.0 * model.head.matrix_count if model.head.rows_per_token == 0 else 0.0
        matrices += linear_flop(model.head) * sequence_tokens + once
    return matrices, scores


def layer_flop(layer: Layer, tokens: float, cross: float) -> tuple[float, float]:
    """Forward operations of one layer on one sequence: (matrices, scores and scans)."""
    matrices = scores = 0.0
    for linear in layer.linears:
        matrices += 2.0 * linear.matrix_count * cross if linear.from_encoder else linear_flop(linear) * tokens
    for mixer in layer.mixers:
        if isinstance(mixer, SoftmaxAttention):
            scores += scores_flop(mixer, tokens, cross, causal_half=True)
        else:
            scores += tokens * mixer.per_token_flop
    return matrices, scores
