"""What goes into a training estimate and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ridgeline.core import Breakdown, Interval, Note
from ridgeline.specs import Calibration, SoftwareProfile, System, TrainingPlan, Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A model, a layout, a machine with the laws of its kernels, and the software that runs it."""

    model: Transformer
    plan: TrainingPlan
    system: System
    calibration: Calibration
    software: SoftwareProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEstimate:
    """One step of a training job: how long, made of what, in how much memory, how sure.

    `time` adds up to `step_s.best`; `memory` is that of the fullest pipeline stage. `model_flop_per_s_per_device`
    counts what the model needs (three times the forward pass, half of the attention square where it is causal,
    nothing for recompute); `mfu_frac` is that over the dense peak of the plan's precision. `bubble_frac` is the
    share of the step that the pipeline waits. `uses` are ids of facts, `models` of formulas.
    """

    plan: TrainingPlan
    step_s: Interval
    time: Breakdown
    memory: Breakdown
    memory_available_bytes: float
    fits: bool
    tokens_per_s: float
    model_flop_per_s_per_device: float
    mfu_frac: float
    bubble_frac: float
    notes: tuple[Note, ...]
    uses: tuple[str, ...]
    models: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`, page and report."""
        return {
            "layout": self.plan.label(),
            "devices": self.plan.devices_count,
            "step_s": self.step_s.to_dict(),
            "tokens_per_s": self.tokens_per_s,
            "model_flop_per_s_per_device": self.model_flop_per_s_per_device,
            "mfu_frac": self.mfu_frac,
            "bubble_frac": self.bubble_frac,
            "fits": self.fits,
            "memory_available_bytes": self.memory_available_bytes,
            "time": self.time.to_dict(),
            "memory": self.memory.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
            "uses": list(self.uses),
            "models": list(self.models),
        }
