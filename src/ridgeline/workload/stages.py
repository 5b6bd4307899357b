"""How a pipeline deals the layers of a model to its stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ridgeline.specs import Layer, LayerRun, Stack, TrainingPlan, Transformer
from ridgeline.workload.remember import remembered

_MODULE_LAYERS, _HEAD_LAYERS = 2, 1  # src: megatron-bridge-recipes (layouts of DeepSeek-V3: 61 layers in 16 of 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShare:
    """`count` times the same layer of one stack on one stage, with `stored_count` copies of its weights.

    `hidden` is the width of its stream.
    """

    layer: Layer
    hidden: int
    count: float
    stored_count: float
    stack: Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one pipeline stage holds. Stacks beside the main one run on the first stage.

    `like` is the index of the first stage that holds the same.
    """

    index: int
    like: int
    shares: tuple[LayerShare, ...]
    embedding: bool
    head: bool

    @property
    def layers_count(self) -> float:
        """Layers of all stacks."""
        return sum(share.count for share in self.shares)


def divides(layers_count: int, chunks_count: int) -> bool:
    """Whether layers spread evenly over `chunks_count` virtual stages, plainly or with embedding and head as one each.

    An odd number of layers divides over no even number of stages either way. Such models (61 layers of DeepSeek-V3)
    run with stages of two sizes that differ by a layer, so that counts as even enough.

    >>> divides(96, 32), divides(126, 32), divides(126, 16), divides(90, 16), divides(61, 16)
    (True, True, True, False, True)
    """
    if layers_count % 2 and chunks_count % 2 == 0:
        return chunks_count <= layers_count
    return layers_count % chunks_count == 0 or (layers_count + 2) % chunks_count == 0


def counts(layers_count: int, chunks_count: int) -> list[int]:
    """Layers of each virtual stage. Where only layers plus embedding and head divide, the two ends hold one less.

    What divides neither way is dealt as evenly as it goes, the surplus to the first.

    >>> counts(8, 4), counts(6, 4), counts(7, 4)
    ([2, 2, 2, 2], [1, 2, 2, 1], [2, 2, 2, 1])
    """
    if layers_count % chunks_count and (layers_count + 2) % chunks_count == 0:
        each = (layers_count + 2) // chunks_count
        dealt = [each] * chunks_count
        dealt[0] -= 1
        dealt[-1] -= 1
        return dealt
    base, extra = divmod(layers_count, chunks_count)
    return [base + (1 if index < extra else 0) for index in range(chunks_count)]


def dealt_counts(layers_count: int, chunks_count: int, first: int | None, last: int | None) -> list[int]:
    """As `counts`, where the first or last virtual stage has as many layers as somebody says (None: as it comes).

    >>> dealt_counts(61, 16, None, 1), dealt_counts(8, 4, None, None)
    ([4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1], [2, 2, 2, 2])
    """
    if first is None and last is None:
        return counts(layers_count, chunks_count)
    head = [] if first is None else [first]
    tail = [] if last is None else [last]
    between = chunks_count - len(head) - len(tail)
    left = layers_count - sum(head) - sum(tail)
    base, extra = divmod(max(0, left), max(1, between))
    return [*head, *(base + (1 if index < extra else 0) for index in range(between)), *tail]


@remembered()
def stages(model: Transformer, pipeline_count: int, interleave_count: int = 1, *deal: Any) -> tuple[Stage, ...]:
    """The stages of a pipeline: contiguous layers, or, interleaved, every `pipeline_count`-th of the virtual ones.

    The first stage has the embedding (and other stacks), the last has the head. `deal`: layers of the first and of the
    last virtual stage (None: even), whether chunks are dealt out and back (the first device then has both ends), and
    how many tokens are predicted ahead: their modules stand before the head.
    """
    first_count, last_count, folded, ahead = deal or (None, None, False, 0)
    chunks = pipeline_count * interleave_count
    dealt = dealt_counts(model.main.layers_count, chunks, first_count, last_count)
    starts = [sum(dealt[:index]) for index in range(chunks)]
    found: list[Stage] = []
    first: dict[tuple[object, ...], int] = {}
    for index in range(pipeline_count):
        held: dict[LayerRun, int] = {}
        for turn in range(interleave_count):
            chunk = chunks - 1 - index if folded and turn == 1 else turn * pipeline_count + index
            for run, count in _slice(model.main, starts[chunk], dealt[chunk]):
                held[run] = held.get(run, 0) + count
        shares = [_share(run, count, model.main) for run, count in held.items()]
        if index == 0:
            shares += [_share(run, run.repeat_count, stack) for stack in model.others for run in stack.runs]
        ends = index == 0, index == (0 if folded else pipeline_count - 1)
        if ends[1] and ahead and model.ahead:
            shares += [_share(run, run.repeat_count * ahead, model.ahead, run.repeat_count) for run in model.ahead.runs]
        like = first.setdefault((tuple((id(x.layer), x.count, x.stored_count) for x in shares), ends), index)
        found.append(Stage(index=index, like=like, shares=tuple(shares), embedding=ends[0], head=ends[1]))
    return tuple(found)


def stages_of(model: Transformer, plan: TrainingPlan) -> tuple[Stage, ...]:
    """The stages of `plan`."""
    folded = plan.schedule == "zb-v" and plan.pipeline_count > 1
    ahead = plan.ahead_count if model.ahead else 0
    last_count = plan.last_layers_count
    if ahead and last_count is None and plan.first_layers_count is None:
        last_count = _before_modules(model.main.layers_count, plan.pipeline_count * plan.interleave_count, ahead)
    deal = (plan.first_layers_count, last_count, folded, ahead)
    return stages(model, plan.pipeline_count, plan.interleave_count, *(deal if any(deal) else ()))


def _before_modules(layers_count: int, chunks_count: int, ahead_count: int) -> int | None:
    """Layers of the last virtual stage where modules of two layers' work and the head's one are counted as layers.

    >>> _before_modules(61, 16, 1), _before_modules(61, 8, 1), _before_modules(61, 32, 1)
    (1, 5, None)
    """
    surplus = _MODULE_LAYERS * ahead_count + _HEAD_LAYERS
    each, rest = divmod(layers_count + surplus, chunks_count)
    return each - surplus if chunks_count > 1 and not rest and each >= surplus else None


def stack_tokens(model: Transformer, stack: Stack, sequence_tokens: int) -> float:
    """Tokens of one sequence in a stack: the main stack's sequence, or a tower's fixed length where it has one."""
    if stack is model.main and stack.role == "decoder":
        return float(sequence_tokens)
    if stack is model.main:
        return float(model.encoder_tokens or sequence_tokens)
    return float(model.encoder_tokens or sequence_tokens)


def cross_tokens(model: Transformer, sequence_tokens: int) -> float:
    """Tokens that cross-attention of the main stack looks at."""
    return float(model.encoder_tokens or sequence_tokens) if model.others else 0.0


def _share(run: LayerRun, count: int, stack: Stack, kept_count: int | None = None) -> LayerShare:
    stored = 1.0 if run.shared else float(count if kept_count is None else kept_count)
    hidden = round(stack.hidden_count * run.layer.stream_frac)
    return LayerShare(layer=run.layer, hidden=hidden, count=float(count), stored_count=stored, stack=stack)


def _slice(stack: Stack, start: int, count: int) -> Iterator[tuple[LayerRun, int]]:
    """Layers `start` up to `start + count` of a stack, by run."""
    at = 0
    for run in stack.runs:
        taken = min(at + run.repeat_count, start + count) - max(at, start)
        if taken > 0:
            yield run, taken
        at += run.repeat_count
