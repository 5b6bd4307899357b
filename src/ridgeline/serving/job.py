"""What a serving estimate is made of: model, plan, machine, engine and load in one record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ridgeline.specs import Calibration, EngineProfile, Load, ServingPlan, System, Transformer


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
        return max(1.0, self.load.input_tokens)

    @property
    def max_batch_count(self) -> float:
        """Sequences that the scheduler lets run at once: the plan's limit, else the engine's (inf: none)."""
        limit = self.plan.max_batch_count
        if limit is None:
            limit = self.engine.batch_limits(self.system.chip)[0]
        return float("inf") if limit is None else float(limit)

    @property
    def max_batch_tokens(self) -> float:
        """Tokens that the scheduler puts in one step: the plan's limit, else the engine's (inf: none)."""
        limit = self.plan.max_batch_tokens
        if limit is None:
            limit = self.engine.batch_limits(self.system.chip)[1]
        return float("inf") if limit is None else float(limit)

    def with_load(self, **changes: object) -> ServingJob:
        """The same job under another load."""
        return replace(self, load=replace(self.load, **changes))  # type: ignore[arg-type]

    def with_plan(self, **changes: object) -> ServingJob:
        """The same job with another layout."""
        return replace(self, plan=replace(self.plan, **changes))  # type: ignore[arg-type]
