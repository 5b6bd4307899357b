"""Writes the formats of a quantised checkpoint into a model: one for each role, and exceptions on single matrices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ridgeline.core import FrozenMap
from ridgeline.intake.quantization import Scheme
from ridgeline.intake.shell import Shell
from ridgeline.specs import Layer, LayerRun, Linear, Stack


def with_precisions(shell: Shell, scheme: Scheme) -> tuple[Shell, FrozenMap[str, str]]:
    """The shell with exceptions marked, and the format of each role ("default": of everything else)."""
    roles = _roles(shell, scheme)
    layers = tuple(_marked_layer(layer, scheme, roles, index) for index, layer in enumerate(shell.layers))
    head = None if shell.head is None else _marked(shell.head, scheme.stored(shell.head, None), roles, scheme.wide)
    marked = replace(
        shell,
        layers=layers,
        linears=tuple(_marked(item, scheme.wide, roles, scheme.wide) for item in shell.linears),
        others=tuple(_wide_stack(stack, roles, scheme.wide) for stack in shell.others),
        head=head,
    )
    narrow = {role: stored for role, stored in roles.items() if stored != scheme.wide}
    return marked, FrozenMap({"default": scheme.wide, **narrow})


def _roles(shell: Shell, scheme: Scheme) -> dict[str, str]:
    """The format that most parameters of each role have."""
    counts: dict[str, Counter[str]] = {}
    for index, layer in enumerate(shell.layers):
        for item in layer.linears:
            counts.setdefault(item.role, Counter())[scheme.stored(item, index)] += item.parameters_count
    head = shell.head_linear()
    if head is not None:
        counts.setdefault("head", Counter())[scheme.stored(head, None)] += head.parameters_count
    return {role: found.most_common(1)[0][0] for role, found in counts.items()}


def _marked(item: Linear, stored: str, roles: dict[str, str], wide: str) -> Linear:
    """The matrix, with its own format where it is not that of its role."""
    return item if roles.get(item.role, wide) == stored else replace(item, precision=stored)


def _marked_layer(layer: Layer, scheme: Scheme, roles: dict[str, str], index: int) -> Layer:
    linears = tuple(_marked(item, scheme.stored(item, index), roles, scheme.wide) for item in layer.linears)
    return layer if linears == layer.linears else replace(layer, linears=linears)


def _wide_stack(stack: Stack, roles: dict[str, str], wide: str) -> Stack:
    """A tower, which stays in the wide format."""

    def widened(items: tuple[Linear, ...]) -> tuple[Linear, ...]:
        return tuple(_marked(item, wide, roles, wide) for item in items)

    runs = tuple(
        LayerRun(
            layer=replace(run.layer, linears=widened(run.layer.linears)),
            repeat_count=run.repeat_count,
            shared=run.shared,
        )
        for run in stack.runs
    )
    return replace(stack, runs=runs, linears=widened(stack.linears))
