"""What sizing answers: ways to serve a load, what they take and cost, and what stood in the way of the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ridgeline.core import Breakdown, FrozenMap, Interval, Note
from ridgeline.power import Activity
from ridgeline.search.serving import Hour
from ridgeline.search.sizing_front import BreakEven, FrontPoint
from ridgeline.specs import ServingPlan, System


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Engines of one kind. `role`: "both", "prefill" or "decode".

    `plan.replica_count` engines; `running_count` requests in service on each; `batch_limit_count` and
    `batch_tokens_count` are the scheduler's limits to start it with (of one scheduler). `step` is the mean engine step
    [s], `memory` one device [B]; `activity` what its devices are busy with.
    """

    role: str
    plan: ServingPlan
    running_count: float
    batch_limit_count: int
    batch_tokens_count: int
    step: Breakdown
    memory: Breakdown
    memory_available_bytes: float
    activity: Activity

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "role": self.role,
            "engines": self.plan.replica_count,
            "devices": self.plan.devices_count,
            "layout": self.plan.label(),
            "plan": asdict(self.plan),
            "running": self.running_count,
            "batch_limit": self.batch_limit_count,
            "batch_tokens": self.batch_tokens_count,
            "busy_frac": self.activity.busy_frac,
            "step": self.step.to_dict(),
            "memory": self.memory.to_dict(),
            "memory_available_bytes": self.memory_available_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Times of a request [s]: means with their ranges, and the 95th percentiles that limits are held against."""

    ttft_s: Interval
    ttft_p95_s: float
    tpot_s: Interval
    tpot_p95_s: float
    e2e_p95_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "ttft_s": self.ttft_s.to_dict(),
            "ttft_p95_s": self.ttft_p95_s,
            "tpot_s": self.tpot_s.to_dict(),
            "tpot_p95_s": self.tpot_p95_s,
            "e2e_p95_s": self.e2e_p95_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What a simulation of `share_frac` of the system says: 95th percentiles [s], requests a second (of all of it), and
    the figures that break their limit ("ttft_s", "tpot_s", "e2e_s"). `load_frac`: of the load of the option."""

    requests_count: int
    share_frac: float
    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float
    requests_per_s: float
    broken: tuple[str, ...]
    load_frac: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "requests_count": self.requests_count,
            "load_frac": self.load_frac,
            "share_frac": self.share_frac,
            "ttft_p95_s": self.ttft_p95_s,
            "tpot_p95_s": self.tpot_p95_s,
            "e2e_p95_s": self.e2e_p95_s,
            "requests_per_s": self.requests_per_s,
            "broken": list(self.broken),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One way to serve the load within its limits.

    `mode`: "aggregated" or "disaggregated". `devices_count` devices work, in `nodes_count` nodes. `requests_per_s` and
    `output_tokens_per_s` over all of them: the load, or as much as the limits allow where none is given. `binding`:
    what keeps it from more. `transfer_s`, `transfer_bytes`: one request's cache between pools (0 aggregated).
    """

    mode: str
    system: System
    engine: str
    devices_count: int
    nodes_count: int
    pools: tuple[Pool, ...]
    latencies: Latencies
    requests_per_s: Interval
    output_tokens_per_s: Interval
    utilisation_frac: float
    binding: str
    hour: Hour
    transfer_s: float = 0.0
    transfer_bytes: float = 0.0
    uses: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    simulated: Simulated | None = None

    @property
    def layout(self) -> str:
        """The layout in a few letters."""
        if len(self.pools) == 1:
            return self.pools[0].plan.label()
        return " + ".join(f"{pool.role} {pool.plan.label()}" for pool in self.pools)

    @property
    def device_tokens_per_s(self) -> float:
        """Output tokens a second of one device."""
        return self.output_tokens_per_s.best / self.devices_count

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        hour, headline = self.hour, self.hour.cost.headline_usd
        return {
            "mode": self.mode,
            "system": self.system.id,
            "chip": self.system.chip.id,
            "engine": self.engine,
            "devices": self.devices_count,
            "nodes": self.nodes_count,
            "layout": self.layout,
            **self.latencies.to_dict(),
            "requests_per_s": self.requests_per_s.to_dict(),
            "output_tokens_per_s": self.output_tokens_per_s.to_dict(),
            "output_tokens_per_s_per_device": self.device_tokens_per_s,
            "utilisation_frac": self.utilisation_frac,
            "binding": self.binding,
            "usd_per_hour": None if headline is None else headline.to_dict(),
            "usd_per_mtoken": None if hour.usd_per_mtoken is None else hour.usd_per_mtoken.to_dict(),
            "j_per_token": None if hour.j_per_token is None else hour.j_per_token.to_dict(),
            "meter_w": None if hour.facility is None else hour.facility.meter_w.to_dict(),
            "transfer_s": self.transfer_s,
            "transfer_bytes": self.transfer_bytes,
            "simulated": None if self.simulated is None else self.simulated.to_dict(),
            "pools": [pool.to_dict() for pool in self.pools],
            "notes": [note.to_dict() for note in (*self.notes, *hour.notes)],
            "uses": list(self.uses),
            "models": list(self.models),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWay:
    """A machine on which nothing keeps the limits: the sentence that says what binds, and counts by reason."""

    system_id: str
    devices_count: int
    reason: str
    rejected: FrozenMap[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Ways to serve, best first (the best of each mode and machine), and what the search went through.

    `tried_count` combinations of engines, batches and ratios of pools were weighed by their curves; `finalists_count`
    of them were worked out in full. `unsearched`: machines that an interrupt left out.
    """

    options: tuple[Sized, ...]
    none: tuple[NoWay, ...]
    rejected: FrozenMap[str, int]
    tried_count: int
    finalists_count: int
    front: tuple[FrontPoint, ...]
    break_evens: tuple[BreakEven, ...]
    unsearched: tuple[str, ...] = ()

    def best(self, mode: str) -> Sized | None:
        """The best way of one mode."""
        return next((option for option in self.options if option.mode == mode), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "options": [option.to_dict() for option in self.options],
            "none": [
                {
                    "system": item.system_id,
                    "devices": item.devices_count,
                    "reason": item.reason,
                    "rejected": dict(item.rejected),
                }
                for item in self.none
            ],
            "rejected": dict(self.rejected),
            "tried": self.tried_count,
            "finalists": self.finalists_count,
            "front": [point.to_dict() for point in self.front],
            "break_even": [item.to_dict() for item in self.break_evens],
            "unsearched": list(self.unsearched),
        }
