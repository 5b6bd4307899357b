"""What one wants to know of a model before any machine comes in: counts, bytes, shapes, operations."""

from __future__ import annotations

from typing import Any

from ridgeline.specs import Layer, Recurrence, SoftmaxAttention, Transformer
from ridgeline.workload.cache import cross_bytes, kv_bytes, kv_bytes_per_token, state_bytes_per_sequence
from ridgeline.workload.flop import forward_flop_per_token
from ridgeline.workload.parameters import weight_bytes, weight_bytes_by_precision

_PLAIN = "bf16"


def model_summary(model: Transformer, context_tokens: int, kv_precision: str) -> dict[str, Any]:
    """The figures of `ridgeline show MODEL` as plain data.

    `kv_bytes_per_token` is marginal at `context_tokens` in `kv_precision`. Weights are in the checkpoint's own
    formats where it is quantised, otherwise in bf16, with what they would be in other formats beside.
    """
    return {
        "id": model.id,
        "name": model.name,
        "family": model.family,
        "source": model.source,
        "date": model.date,
        "parameters_count": model.parameters_count,
        "active_parameters_count": model.active_parameters_count,
        "mtp_parameters_count": model.mtp_parameters_count,
        "embedding_parameters_count": model.embedding_parameters_count,
        "tied_embeddings": model.tied_embeddings,
        "layers_count": model.layers_count,
        "hidden_count": model.hidden_count,
        "vocab_count": model.vocab_count,
        "max_context_tokens": model.max_context_tokens,
        **_attention_shape(model),
        **_mixture_shape(model),
        "other_stacks": [
            {"role": stack.role, "layers_count": stack.layers_count, "parameters_count": stack.parameters_count}
            for stack in model.others
        ],
        "precisions": dict(model.precisions),
        "weight_bytes": weight_bytes(model, _PLAIN),
        "weight_bytes_by_format": weight_bytes_by_precision(model, _PLAIN),
        "context_tokens": context_tokens,
        "kv_precision": kv_precision,
        "kv_bytes_per_token": kv_bytes_per_token(model, context_tokens, kv_precision),
        "kv_bytes": kv_bytes(model, context_tokens, kv_precision),
        "cross_kv_bytes": cross_bytes(model, float(model.encoder_tokens or context_tokens), kv_precision),
        "state_bytes_per_sequence": state_bytes_per_sequence(model),
        "forward_flop_per_token": forward_flop_per_token(model, _flop_tokens(model, context_tokens)),
    }


def _flop_tokens(model: Transformer, context_tokens: int) -> float:
    """Length at which operations are counted: the context, or an image model's fixed number of tokens."""
    fixed = model.main.role != "decoder" and model.encoder_tokens is not None and not model.others
    return float(model.encoder_tokens) if fixed and model.encoder_tokens else float(context_tokens)


def _layers(model: Transformer) -> list[tuple[Layer, int]]:
    return [(run.layer, run.repeat_count) for run in model.main.runs]


def _attention_shape(model: Transformer) -> dict[str, Any]:
    """Heads of the widest attention, and how many layers of the main stack are of which kind."""
    attentions = [
        (mixer, count)
        for layer, count in _layers(model)
        for mixer in layer.mixers
        if isinstance(mixer, SoftmaxAttention) and not mixer.cross
    ]
    recurrent = sum(
        count for layer, count in _layers(model) if any(isinstance(mixer, Recurrence) for mixer in layer.mixers)
    )
    shape: dict[str, Any] = {"recurrent_layers_count": recurrent}
    if not attentions:
        return {"heads_count": 0, "kv_heads_count": 0, **shape}
    widest = max(attentions, key=lambda pair: (pair[0].window_tokens is None, pair[0].heads_count))[0]
    windows = sorted({mixer.window_tokens for mixer, _ in attentions if mixer.window_tokens is not None})
    return {
        "heads_count": widest.heads_count,
        "kv_heads_count": widest.kv_heads_count,
        "head_dim_count": widest.key_dim_count,
        "value_dim_count": widest.value_dim_count,
        "latent_dim_count": widest.latent_dim_count,
        "selected_tokens": widest.selected_tokens,
        "windows_tokens": windows,
        "windowed_layers_count": sum(count for mixer, count in attentions if mixer.window_tokens is not None),
        **shape,
    }


def _mixture_shape(model: Transformer) -> dict[str, Any]:
    sparse = [(layer, count) for layer, count in _layers(model) if layer.experts_count]
    if not sparse:
        return {"experts_count": 0, "active_experts_count": 0, "expert_layers_count": 0}
    layer = sparse[-1][0]
    active = max(item.active_count for item in layer.linears if item.role == "expert")
    return {
        "experts_count": layer.experts_count,
        "active_experts_count": active,
        "expert_layers_count": sum(count for _, count in sparse),
    }
