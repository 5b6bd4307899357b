"""From layers to a `Transformer`: stacks, embedding, head, stored precisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ridgeline.intake.blocks import linear, runs_of
from ridgeline.specs import Layer, Linear, Stack

StackRole = Literal["decoder", "encoder", "vision", "audio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """What a family's code hands over: layers in order and what stands around them.

    `other_count`: parameters of the main stack outside its layers (final norm, position table). `linears`: matrices
    of the main stack outside its layers. `head`: a classifier in place of the matrix to the vocabulary (`tied` and
    `head_bias` are then not looked at); `headless`: no head at all. `model_other_count`: poolers and the like.
    `ahead`: layers of one module of multi-token prediction, as DeepSeek-V3 has them. `embedding_count` where the
    tables are not vocabulary times hidden. `shared`: all layers use one set of weights.
    """

    layers: tuple[Layer, ...]
    hidden_count: int
    vocab_count: int
    tied: bool = False
    head_bias: bool = False
    other_count: int = 0
    linears: tuple[Linear, ...] = ()
    role: StackRole = "decoder"
    others: tuple[Stack, ...] = ()
    head: Linear | None = None
    headless: bool = False
    embedding_count: int | None = None
    model_other_count: int = 0
    mtp_count: int = 0
    ahead: tuple[Layer, ...] = ()
    context_tokens: int | None = None
    encoder_tokens: int | None = None
    shared: bool = False

    def main_stack(self) -> Stack:
        """The main stack."""
        main = stack(
            self.role,
            self.hidden_count,
            self.layers,
            linears=self.linears,
            other_count=self.other_count + self.tied_head_bias_count,
        )
        return replace(main, runs=tuple(replace(run, shared=True) for run in main.runs)) if self.shared else main

    def ahead_stack(self) -> Stack | None:
        """One module of multi-token prediction: its layers behind the matrix that joins state and next token."""
        if not self.ahead:
            return None
        joint = linear("joint", "other", 2 * self.hidden_count, self.hidden_count)
        return stack("decoder", self.hidden_count, self.ahead, linears=(joint,), other_count=3 * self.hidden_count)

    @property
    def tied_head_bias_count(self) -> int:
        """Bias of a head whose weights are the embedding's, which would otherwise not be counted."""
        return self.vocab_count if self.tied and self.head_bias and self.head is None and not self.headless else 0

    def head_linear(self) -> Linear | None:
        """The matrix from hidden to vocabulary or classes."""
        if self.headless:
            return None
        if self.head is not None:
            return self.head
        return linear("head", "head", self.hidden_count, self.vocab_count, bias=self.head_bias)


def stack(
    role: StackRole,
    hidden_count: int,
    layers: tuple[Layer, ...] | list[Layer],
    *,
    linears: tuple[Linear, ...] = (),
    other_count: int = 0,
) -> Stack:
    """A `Stack` of layers given one by one."""
    return Stack(
        role=role,
        hidden_count=hidden_count,
        runs=runs_of(layers),
        linears=linears,
        other_parameters_count=other_count,
    )
