"""What a serving estimate is made of: model, plan, machine, engine and load in one record."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ridgeline.core import model as formula
from ridgeline.specs import Calibration, EngineProfile, Load, ServingPlan, System, Transformer


@formula(id="compiled-length", sources=("neuron-docs",))
def padded_tokens(tokens: float, bucket_tokens: float) -> float:
    """The compiled length that `tokens` run at: the smallest of bucket, 2 bucket, 4 bucket ... that holds them.

    `bucket_tokens` 0: shapes are free, the length is its own.

    >>> padded_tokens(300, 128), padded_tokens(100, 128), padded_tokens(300, 0)
    (512.0, 128, 300)
    """
    if bucket_tokens <= 0 or tokens <= bucket_tokens:
        return max(tokens, bucket_tokens)
    doublings = math.ceil(math.log2(tokens / bucket_tokens))
    return float(bucket_tokens * 2.0**doublings)


def mean_padded_tokens(low_tokens: float, high_tokens: float, bucket_tokens: float) -> float:
    """Mean compiled length of a sequence that grows evenly from `low_tokens` to `high_tokens`.

    >>> mean_padded_tokens(128, 512, 128)   # a third of the way at 256, two thirds at 512
    426.6666666666667
    """
    if high_tokens <= low_tokens:
        return padded_tokens(low_tokens, bucket_tokens)
    area, at = 0.0, low_tokens
    while at < high_tokens:
        length = padded_tokens(at, bucket_tokens)
        if length <= at:
            length *= 2
        end = min(float(length), high_tokens)
        area += (end - at) * length
        at = end
    return area / (high_tokens - low_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingJob:
    """One question to `estimate_serving`: this model, laid out so, on this machine, by this engine, under this load.

    `memory_bytes`: what the driver offers on one device; None takes the chip's figure.
    """

    model: Transformer
    plan: ServingPlan
    system: System
    calibration: Calibration
    engine: EngineProfile
    load: Load
    memory_bytes: float | None = None

    @property
    def generates(self) -> bool:
        """Whether the model makes tokens one after another (encoders do not)."""
        return self.model.main.role == "decoder" and self.load.output_tokens > 0

    @property
    def reads_by_encoder(self) -> bool:
        """Whether an encoder reads the input and the decoder starts from a token (T5, BART, Whisper)."""
        cross = any(getattr(mixer, "cross", False) for run in self.model.main.runs for mixer in run.layer.mixers)
        return cross and any(stack.role in ("encoder", "audio") for stack in self.model.others)

    @property
    def encoder_tokens(self) -> float:
        """Length of what the encoder or tower reads for one request (0: it has none, or none is asked for)."""
        if self.load.encoder_tokens is not None:
            return self.load.encoder_tokens
        fixed = float(self.model.encoder_tokens or 0.0)
        if self.reads_by_encoder:
            return fixed or self.load.input_tokens
        # A tower beside an encoder (text and image models) is part of each input; beside a decoder only on demand.
        return fixed if self.model.others and self.model.main.role == "encoder" else 0.0

    @property
    def prompt_tokens(self) -> float:
        """Tokens that a request brings to the main stack: its input (of fixed length in image encoders), or a start
        token where an encoder reads it."""
        if self.reads_by_encoder:
            return 1.0
        if self.model.main.role != "decoder" and not self.model.others and self.model.encoder_tokens:
            return float(self.model.encoder_tokens)
        return padded_tokens(max(1.0, self.load.input_tokens), self.engine.bucket_tokens)

    @property
    def context_tokens(self) -> float:
        """Mean cached tokens that a running sequence reads: half of its output is there (at the compiled length, where
        shapes are compiled)."""
        first = 1.0 if self.reads_by_encoder else max(1.0, self.load.input_tokens)
        if self.engine.bucket_tokens <= 0:
            return first + self.load.output_tokens / 2
        return mean_padded_tokens(first, first + self.load.output_tokens, self.engine.bucket_tokens)

    @property
    def schedulers_count(self) -> int:
        """Steps under way at once, each with the scheduler's limits to itself: pipeline stages x attention groups."""
        return self.plan.pipeline_count * self.plan.attention_data_count

    @property
    def max_batch_count(self) -> float:
        """Sequences that one scheduler lets run at once: the plan's limit, else the engine's (inf: none)."""
        limit = self.plan.max_batch_count
        if limit is None:
            limit = self.engine.batch_limits(self.system.chip)[0]
        return float("inf") if limit is None else float(limit)

    @property
    def max_batch_tokens(self) -> float:
        """Tokens that one scheduler puts in one step: the plan's limit, else the engine's (inf: none)."""
        limit = self.plan.max_batch_tokens
        if limit is None:
            limit = self.engine.batch_limits(self.system.chip)[1]
            if limit is not None and self.engine.budget_of_context:
                limit = max(limit, self.model.max_context_tokens or 0)
        return float("inf") if limit is None else float(limit)

    def with_load(self, **changes: object) -> ServingJob:
        """The same job under another load."""
        return replace(self, load=replace(self.load, **changes))  # type: ignore[arg-type]

    def with_plan(self, **changes: object) -> ServingJob:
        """The same job with another layout."""
        return replace(self, plan=replace(self.plan, **changes))  # type: ignore[arg-type]
