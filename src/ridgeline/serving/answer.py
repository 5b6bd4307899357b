"""The answer to a serving question: headline figures with intervals, trees, limits kept or broken, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ridgeline.core import Breakdown, Interval, Note
from ridgeline.serving.step import OpShare
from ridgeline.specs import Load, ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEstimate:
    """What a serving system does under its load. Totals are over all replicas; latencies are of one request.

    `mode`: "static batch", "closed loop", "open loop", "maximum load" or "encoder". `feasible` is false where the load
    or a latency limit cannot be met; `reasons` say which and what binds; the figures then describe the nearest the
    system can do. `ttft`: arrival to first token (queueing included, network and tokenizer not); `tpot`: mean time
    between the following tokens; `e2e`: arrival to last token. p95 figures are of the approximations that
    `queueing` states. `output_tokens_per_s`, `requests_per_s`, `total_tokens_per_s` (input and output).
    `running_count`: mean requests in service in the system; `max_running_count`: most that fit, bound by `binding`.
    `cache_tokens_count`: tokens that all pools hold in sequences of this length. `cache_used_frac`: share of the pools
    in use. `utilisation_frac`: load over capacity (1 at maximum load).
    `time`: one output token (one request for encoders) of one replica; `step`: the mean engine step; `memory`: one
    device. `median_gap_s`: median time between tokens; steps that read prompts lengthen the mean.
    `device_busy_frac`, `flop_per_s_per_device`, `memory_bytes_per_s_per_device`: activity, for power.
    """

    mode: str
    plan: ServingPlan
    load: Load
    feasible: bool
    reasons: tuple[str, ...]
    ttft_s: Interval
    ttft_p95_s: float
    tpot_s: Interval
    tpot_p95_s: float
    e2e_s: Interval
    e2e_p95_s: float
    output_tokens_per_s: Interval
    total_tokens_per_s: Interval
    requests_per_s: Interval
    running_count: float
    max_running_count: float
    binding: str
    cache_tokens_count: float
    cache_used_frac: float
    utilisation_frac: float
    time: Breakdown
    step: Breakdown
    memory: Breakdown
    memory_available_bytes: float
    fits: bool
    device_busy_frac: float
    flop_per_s_per_device: float
    memory_bytes_per_s_per_device: float
    median_gap_s: float = 0.0
    ops: tuple[OpShare, ...] = ()
    notes: tuple[Note, ...] = ()
    uses: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def devices_count(self) -> int:
        """Devices of all replicas."""
        return self.plan.devices_count

    @property
    def output_tokens_per_s_per_device(self) -> Interval:
        """Output rate of one device."""
        return self.output_tokens_per_s.scaled(1.0 / self.devices_count)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        headline: dict[str, Any] = {
            name: getattr(self, name).to_dict()
            for name in ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s")
        }
        plain = {
            name: getattr(self, name)
            for name in (
                "mode",
                "feasible",
                "ttft_p95_s",
                "tpot_p95_s",
                "e2e_p95_s",
                "running_count",
                "max_running_count",
                "binding",
                "cache_tokens_count",
                "cache_used_frac",
                "utilisation_frac",
                "memory_available_bytes",
                "fits",
                "device_busy_frac",
                "flop_per_s_per_device",
                "memory_bytes_per_s_per_device",
            )
        }
        return {
            "schema_version": 1,
            "layout": self.plan.label(),
            "devices": self.devices_count,
            **plain,
            **headline,
            "reasons": list(self.reasons),
            "time": self.time.to_dict(),
            "step": self.step.to_dict(),
            "memory": self.memory.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
            "uses": list(self.uses),
            "models": list(self.models),
        }
