"""Bytes of a model's weights, whole model, in the formats that a plan or a quantised checkpoint stores them."""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.core import model as formula
from ridgeline.specs import Linear, Stack, Transformer, bytes_per_element


@formula(id="weight-bytes", sources=("rl-derivation",))
def weight_bytes(model: Transformer, precision: str) -> float:
    """Bytes of all weights [byte].

    `precision` is the plan's format. A quantised checkpoint's formats by role go before it, and a matrix's own
    before those; its "default" holds for norms and whatever has no role of its own. Biases are stored in the format
    of what has no role.

    Equation: sum over matrices of elements * stored width + everything else * default width. Tied embeddings count
    once; multi-token-prediction layers are left out, as in `parameters_count`.

    >>> from ridgeline.specs import Layer, LayerRun, Stack
    >>> up = Linear(name="up", role="mlp", inputs_count=4, outputs_count=8)
    >>> stack = Stack(role="decoder", hidden_count=4, runs=(LayerRun(layer=Layer(linears=(up,))),))
    >>> model = Transformer(id="m", family="llama", main=stack, hidden_count=4, vocab_count=10,
    ...                     embedding_parameters_count=40)
    >>> weight_bytes(model, "bf16"), weight_bytes(model, "fp8")
    (144.0, 72.0)
    """
    return sum(count * bytes_per_element(stored) for stored, count in stored_counts(model, precision))


def weight_bytes_by_precision(model: Transformer, precision: str) -> dict[str, float]:
    """The bytes of `weight_bytes` by stored format, largest first."""
    found: dict[str, float] = {}
    for stored, count in stored_counts(model, precision):
        found[stored] = found.get(stored, 0.0) + count * bytes_per_element(stored)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def role_precision(model: Transformer, role: str, precision: str) -> str:
    """Stored format of a role: the checkpoint's where it is quantised, else the plan's."""
    if not model.precisions:
        return precision
    return model.precisions.get(role, model.precisions.get("default", precision))


def stored_counts(model: Transformer, precision: str) -> Iterator[tuple[str, float]]:
    """Every part of the model as (stored format, elements)."""
    default = role_precision(model, "default", precision)
    yield role_precision(model, "embedding", precision), float(model.embedding_parameters_count)
    yield default, float(model.other_parameters_count)
    if model.head is not None and not model.tied_embeddings:
        yield from _linear(model, model.head, precision, 1.0)
    for stack in model.stacks:
        yield from _stack(model, stack, precision, default)


def _stack(model: Transformer, stack: Stack, precision: str, default: str) -> Iterator[tuple[str, float]]:
    yield default, float(stack.other_parameters_count)
    for linear in stack.linears:
        yield from _linear(model, linear, precision, 1.0)
    for run in stack.runs:
        yield default, float(run.stored_count * run.layer.other_parameters_count)
        for linear in run.layer.linears:
            yield from _linear(model, linear, precision, float(run.stored_count))


def _linear(model: Transformer, linear: Linear, precision: str, copies: float) -> Iterator[tuple[str, float]]:
    stored = linear.precision or role_precision(model, linear.role, precision)
    yield stored, copies * linear.experts_count * linear.matrix_count
    if linear.bias:
        yield role_precision(model, "default", precision), copies * linear.experts_count * linear.outputs_count
