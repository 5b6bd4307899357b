"""One step of a serving engine as a record, and what the builders of its operations share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ridgeline.specs import EngineProfile, ServingPlan, Transformer, bytes_per_element
from ridgeline.workload.ops import Elementwise, ElementwiseKind, Gemm, Op
from ridgeline.workload.placement import wide_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step of an engine processes, in all groups of a replica together.

    `decode_count` sequences of mean context `context_tokens` make one token each. `prompt_count` prompts bring
    `prompt_tokens` new tokens each, on top of `cached_tokens` that are in the cache already; `finishing_count` of
    them end in this step and need the head. Fractions are means over steps. `encoder_tokens`: length of what the
    encoder or tower reads for each prompt (0: none); decoders with cross-attention read as many in each layer.
    `fullest_prompt_count`: prompts of the fullest data-parallel attention group, for which all others wait in every
    layer (0: they fall evenly). `repeated_frac`: share of the cached tokens of a sequence that others of the step read
    as well (the prompt that the beams of a request share).
    """

    decode_count: float = 0.0
    context_tokens: float = 0.0
    prompt_count: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    finishing_count: float = 0.0
    encoder_tokens: float = 0.0
    fullest_prompt_count: float = 0.0
    repeated_frac: float = 0.0

    @property
    def tokens(self) -> float:
        """Tokens that go through the matrices."""
        return self.decode_count + self.prompt_count * self.prompt_tokens

    def divided(self, by: float) -> Step:
        """The share of the step that one of `by` micro-batches processes."""
        return replace(
            self,
            decode_count=self.decode_count / by,
            prompt_count=self.prompt_count / by,
            finishing_count=self.finishing_count / by,
            fullest_prompt_count=self.fullest_prompt_count / by,
        )

    def of_group(self, groups_count: float) -> Step:
        """What the fullest of so many data-parallel attention groups processes."""
        share = self.divided(groups_count)
        if self.fullest_prompt_count <= 0 or groups_count <= 1:
            return share
        return replace(share, prompt_count=self.fullest_prompt_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the builders of operations share: the model, its plan, its engine and the step."""

    model: Transformer
    plan: ServingPlan
    engine: EngineProfile
    whole: Step
    group: Step

    @property
    def wide_bytes(self) -> float:
        """Bytes of one element of a hidden state."""
        return bytes_per_element(self.engine.hidden_precision or wide_precision(self.plan))


def small_kernel(
    name: str, kind: ElementwiseKind, moved: float, launches: float, setting: Setting, flop: float = 0.0
) -> Elementwise:
    """A memory-bound kernel of a layer: `moved` bytes in as many launches as the engine's fusion leaves."""
    engine = setting.engine
    count = launches * engine.launches_frac
    return Elementwise(name=name, kind=kind, bytes=moved * engine.traffic_frac, launches_count=count, flop=flop)


def quantise_ops(elements: float, precision: str, setting: Setting) -> Iterator[tuple[Op, float]]:
    """The kernel that narrows `elements` of activations to `precision` before a product, where the engine has one."""
    narrow = bytes_per_element(precision)
    if narrow < setting.wide_bytes and not setting.engine.fused_quantisation:
        yield small_kernel("quantise", "cast", elements * (setting.wide_bytes + narrow), 1.0, setting), 1.0


def expand_ops(product: Gemm, setting: Setting) -> Iterator[tuple[Op, float]]:
    """`product` as the engine runs it: narrow weights may be written out in the wide format before it."""
    stored, wide = bytes_per_element(product.weight_precision), bytes_per_element(product.math_precision)
    rows = setting.engine.expand_rows_count
    if rows <= 0 or product.m <= rows or stored >= wide:
        yield product, 1.0
        return
    moved = product.n * product.k * (stored + wide)
    yield Elementwise(name="expand weights", kind="cast", bytes=moved, launches_count=1.0), 1.0
    yield replace(product, weight_precision=product.math_precision), 1.0
