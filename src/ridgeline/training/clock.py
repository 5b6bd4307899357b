"""Times of operations on one machine, remembered by shape, and their sums by kind of work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ridgeline.core import Breakdown, leaf
from ridgeline.device import KernelContext, kernels_count, op_time
from ridgeline.device.settled import settled as settled
from ridgeline.network import collective_time
from ridgeline.specs import Calibration, SoftwareProfile, System
from ridgeline.workload.expert_launches import EXCHANGE_LAUNCHES, expert_launches_count
from ridgeline.workload.ops import (
    AttentionDecode,
    AttentionPrefill,
    Collective,
    Convolve,
    Gemm,
    GroupedGemm,
    Op,
    Repeated,
)


@dataclass(frozen=True, slots=True)
class Timed:
    """Time of one operation, the log sigma of its law, its kind of work, and what it leans on."""

    time_s: float
    sigma: float
    work: str
    kernels_count: float
    model: str
    uses: tuple[str, ...]
    level: str


@dataclass(frozen=True, slots=True)
class Work:
    """Time of all operations of one kind: `doubt_s` is the sum of time times sigma (errors of one law add up)."""

    name: str
    time_s: float
    doubt_s: float
    kernels_count: float
    model: str
    uses: tuple[str, ...]

    def scaled(self, factor: float) -> Work:
        """`factor` times the same work."""
        kernels = self.kernels_count * factor
        return Work(self.name, self.time_s * factor, self.doubt_s * factor, kernels, self.model, self.uses)

    def leaf(self) -> Breakdown:
        """As a leaf of a tree of times."""
        return leaf(self.name, self.time_s, "s", model=self.model, uses=self.uses)


Works = dict[str, Work]


class Clock:
    """Times of operations on one machine under one software."""

    def __init__(self, system: System, calibration: Calibration, software: SoftwareProfile) -> None:
        self.system = system
        self.software = software
        self.calibration = settled(calibration)
        inner = system.levels[0].size_count if system.levels else 1
        self.domain_count = inner or system.devices_per_node_count
        measured = system.chip.kind == "gpu"  # both figures were measured on GPUs alone
        self.slowdown_frac = software.overlap_slowdown_frac if measured else 0.0
        self.spread_sigma_frac = software.spread_sigma_frac if measured else 0.0
        self.levels: set[str] = set()
        self._context = KernelContext(attention=attention_family(calibration, software), fused=software.fused_kernels)
        self._known: dict[Op, Timed] = {}
        self.layers: dict[tuple[Any, ...], Any] = {}
        self.stages: dict[tuple[Any, ...], Any] = {}

    def time(self, op: Op) -> Timed:
        """Time of one operation."""
        found = self._known.get(op)
        if found is None:
            found = self._known[op] = self._time(op, kind_of_work(op))
            self.levels.add(found.level)
        return found

    def _time(self, op: Op, work: str) -> Timed:
        if isinstance(op, Collective):
            result = collective_time(op.kind, op.message_bytes, op.group, self.system, self.calibration)
            calls = EXCHANGE_LAUNCHES if op.kind == "token_exchange" else 1.0
            return Timed(result.time_s, result.sigma, work, calls, result.model, result.uses, "")
        done = op_time(op, self.system.chip, self.calibration, self._context)
        if isinstance(op, Convolve) and op.depthwise and self.software.depthwise_frac < 1:
            done = replace(done, time_s=done.time_s / self.software.depthwise_frac)
        kernels = kernels_count(op, self._context)
        if isinstance(op, GroupedGemm) and self.software.expert_launches:
            kernels = op.experts_count * expert_launches_count(op.activation_precision)
        return Timed(done.time_s, done.sigma, work, kernels, done.model, done.uses, done.level)

    def works(self, ops: Iterable[Repeated], times: float = 1.0) -> Works:
        """Sums by kind of work of `times` the operations `ops`."""
        found: Works = {}
        for item in ops:
            timed = self.time(item.op)
            count = item.count * times
            add(
                found,
                Work(
                    timed.work,
                    count * timed.time_s,
                    count * timed.time_s * timed.sigma,
                    count * timed.kernels_count,
                    timed.model,
                    timed.uses,
                ),
            )
        return found


def add(found: Works, work: Work) -> None:
    """Add one sum to others of the same kind."""
    if work.time_s == 0 and work.kernels_count == 0:
        return
    last = found.get(work.name)
    if last is None:
        found[work.name] = work
        return
    uses = last.uses if last.uses == work.uses else tuple(dict.fromkeys((*last.uses, *work.uses)))
    found[work.name] = Work(
        work.name,
        last.time_s + work.time_s,
        last.doubt_s + work.doubt_s,
        last.kernels_count + work.kernels_count,
        last.model or work.model,
        uses,
    )


def merged(groups: Sequence[Works]) -> Works:
    """Several sums as one."""
    found: Works = {}
    for group in groups:
        for work in group.values():
            add(found, work)
    return found


def total_s(works: Works, *names: str) -> float:
    """Time of the kinds `names` (all where none is named)."""
    return sum(work.time_s for name, work in works.items() if not names or name in names)


def kind_of_work(op: Op) -> str:
    """The line of the waterfall that an operation belongs to."""
    if isinstance(op, Collective):
        for prefix, work in _EXCHANGES.items():
            if op.name.startswith(prefix):
                return work
        return "other exchange"
    if isinstance(op, Convolve):
        return "convolutions"
    if isinstance(op, Gemm):
        return "matrix products"
    if isinstance(op, GroupedGemm):
        return "expert products"
    if isinstance(op, (AttentionPrefill, AttentionDecode)):
        return "attention"
    return "element-wise"


# Collectives by the beginning of their name: which may hide behind which work depends on it.
_EXCHANGES: dict[str, str] = {
    "tensor scatter": "tensor exchange late",
    "tensor reduce": "tensor exchange late",
    "tensor gather again": "tensor exchange late",
    "tensor": "tensor exchange",
    "context": "context exchange",
    "expert": "expert exchange",
    "sharding": "sharding exchange",
    "gradient": "gradient exchange",
    "weight": "weight exchange",
    "pipeline": "pipeline exchange",
}


def attention_family(calibration: Calibration, software: SoftwareProfile) -> str:
    """The attention kernels to ask the device for: the software's where the chip has a law for them, else its own."""
    if software.attention in ("unfused", "best"):
        return ""
    return software.attention if f"attention-prefill.{software.attention}" in calibration.laws else ""


@lru_cache(maxsize=64)
def clock_for(system: System, calibration: Calibration, software: SoftwareProfile) -> Clock:
    """The clock of a machine under a software; one that was asked for before comes back with what it remembers."""
    return Clock(system, calibration, software)
