"""Workers of a serving system (one engine with its devices), what each yields at any number of requests in service,
and why some cannot be: the material that sizing puts together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ridgeline.core import FrozenMap
from ridgeline.errors import MissingFact, OutOfMemory
from ridgeline.search.serving import ServingRequest
from ridgeline.search.terms import Machine
from ridgeline.serving import Capacity, ServingJob, capacity, serving_layouts
from ridgeline.serving.estimate import require_room
from ridgeline.serving.limits import largest_count
from ridgeline.serving.operating import Point, running_point
from ridgeline.specs import Load, ServingPlan

Floats = npt.NDArray[np.float64]

WEIGHTS, POOL, MISSING, LAYOUT = "weights do not fit", "no room for one request", "missing fact", "no layout divides"
# Most requests in service of a worker that nothing else bounds (encoders).
_UNBOUNDED_COUNT = 1024.0  # src: ridgeline-layouts
# What binds a single request, by the part of its step that takes longest.
_CAUSES = {"host": "host time", "launches": "launches", "communication": "communication"}
_BOUNDS = {"memory": "memory bandwidth", "compute": "arithmetic", "latency": "kernel latency"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What sizing tries besides layouts and batches.

    Formats of the weights and of the cache ("": those of the request, else of the checkpoint), and whether prompts are
    read by the engines that decode ("aggregated"), by engines of their own ("disaggregated"), or either. `simulate`:
    whether the best of each mode is put to the event simulation.
    """

    precisions: tuple[str, ...] = ("",)
    kv_precisions: tuple[str, ...] = ("",)
    modes: tuple[str, ...] = ("aggregated", "disaggregated")
    simulate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One engine: its layout (of a single replica) on its devices, and what it has room for."""

    job: ServingJob
    room: Capacity

    @property
    def plan(self) -> ServingPlan:
        """The layout of one replica."""
        return self.job.plan

    @property
    def devices_count(self) -> int:
        """Devices of the worker."""
        return self.plan.devices_per_replica_count

    @property
    def most_count(self) -> float:
        """Most requests in service."""
        return self.room.running_count if math.isfinite(self.room.running_count) else _UNBOUNDED_COUNT


@dataclass(frozen=True, slots=True)
class Curve:
    """Figures of one worker at growing numbers of requests in service, up to the first that breaks a limit.

    Between two counts everything is taken to be linear: a step is a fixed time plus so much a request.
    """

    counts: Floats
    rate_per_s: Floats
    ttft_p95_s: Floats
    tpot_s: Floats
    e2e_s: Floats

    def largest(self, load: Load) -> float:
        """Most requests in service (whole) that keep the latency limits of `load`; 0 where not even one does."""
        found = float(self.counts[-1])
        pairs = ((load.ttft_p95_s, self.ttft_p95_s), (load.tpot_p95_s, self.tpot_s), (load.e2e_p95_s, self.e2e_s))
        for limit, figures in pairs:
            if limit is None:
                continue
            rising = np.maximum.accumulate(figures)
            if rising[0] > limit:
                return 0.0
            found = min(found, float(np.interp(limit, rising, self.counts)))
        return float(math.floor(found))

    def rate_at(self, count: float) -> float:
        """Requests a second with `count` in service."""
        return count / float(np.interp(count, self.counts, self.e2e_s))


@dataclass(slots=True)
class Rejected:
    """Engines that fell out, by reason, and of each kind the sentence of the one that came nearest.

    `nearest` is how far that one was beyond what is allowed (1: just enough), infinite where that has no measure.
    """

    counts: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    nearest: dict[str, float] = field(default_factory=dict)

    def add(self, code: str, text: str, over: float = math.inf) -> None:
        """One more."""
        self.counts[code] = self.counts.get(code, 0) + 1
        if code not in self.texts or over < self.nearest[code]:
            self.texts[code], self.nearest[code] = text, over


def workers(request: ServingRequest, machine: Machine, axes: Axes, rejected: Rejected) -> Iterator[Worker]:
    """Every worker that divides and fits; the others are counted in `rejected`."""
    if machine.engine is None:
        raise MissingFact(f"engine for {machine.system.id}")
    load = replace(request.load, rate_per_s=None, concurrency_count=None)
    for plan in _plans(request, machine, axes):
        job = ServingJob(
            model=request.model,
            plan=plan,
            system=machine.system,
            calibration=machine.calibration,
            engine=machine.engine,
            load=load,
        )
        try:
            room = capacity(job)
            require_room(job, room)
        except MissingFact as error:
            rejected.add(MISSING, str(error))
        except OutOfMemory as error:
            rejected.add(WEIGHTS if room.pool_bytes < 0 else POOL, str(error))
        else:
            yield Worker(job=job, room=room)


def _plans(request: ServingRequest, machine: Machine, axes: Axes) -> Iterator[ServingPlan]:
    """Layouts of one replica in every asked format, each once."""
    pins = FrozenMap({name: value for name, value in request.pins.items() if name != "replica_count"})
    seen: set[ServingPlan] = set()
    for weight in axes.precisions:
        for cache in axes.kv_precisions:
            found = serving_layouts(
                request.model,
                machine.system,
                machine.devices_count,
                weight_precision=weight or request.weight_precision,
                activation_precision=request.activation_precision,
                kv_precision=cache or request.kv_precision,
                pins=pins,
            )
            for plan in found:
                single = replace(plan, replica_count=1)
                if single not in seen:
                    seen.add(single)
                    yield single


def growing(most: float) -> list[float]:
    """Counts that double from one up to `most`, and `most`.

    >>> growing(11.0)
    [1.0, 2.0, 4.0, 8.0, 11.0]
    """
    found, count = [], 1.0
    most = max(1.0, float(math.floor(most)))
    while count < most:
        found.append(count)
        count *= 2.0
    return [*found, most]


def curve_of(worker: Worker) -> Curve:
    """Figures of `worker` by the number in service; stops after the first count that breaks a limit of its load."""
    load = worker.job.load
    found: list[Point] = []
    for count in growing(worker.most_count):
        point = running_point(worker.job, count)
        found.append(point)
        if _over(load, point):
            break
    return Curve(
        counts=np.array([point.running_count for point in found]),
        rate_per_s=np.array([point.requests_per_s for point in found]),
        ttft_p95_s=np.array([point.ttft_p95_s for point in found]),
        tpot_s=np.array([point.tpot_s for point in found]),
        e2e_s=np.array([point.e2e_s for point in found]),
    )


def _held(load: Load, point: Point) -> tuple[tuple[float | None, float], ...]:
    """Each limit with the figure that is held against it."""
    return (load.ttft_p95_s, point.ttft_p95_s), (load.tpot_p95_s, point.tpot_s), (load.e2e_p95_s, point.e2e_s)


def _over(load: Load, point: Point) -> bool:
    return any(limit is not None and value > limit for limit, value in _held(load, point))


def single_reason(worker: Worker) -> tuple[str, str, float]:
    """Why one request alone breaks a limit on `worker`: a code with the cause, the sentence, and how far it is beyond.

    The cause is what takes most of that step: the host, launches, communication, or kernels that wait for the memory
    or for the matrix units.
    """
    largest = largest_count(worker.job, 1.0, lambda count: running_point(worker.job, count))
    point = largest.point
    text = largest.reasons[0] if largest.reasons else "a limit at batch 1"
    name = text.split(" is above", 1)[0].rsplit(" ", 2)[0]
    load = worker.job.load
    over = max(value / limit for limit, value in _held(load, point) if limit is not None)
    return f"{name} at batch 1: {_cause(point, text)}", f"{worker.plan.label()}: {text}", over


def _cause(point: Point, text: str) -> str:
    times = [time for _, time in point.mix]
    worst = times[0] if text.startswith("time per output token") else max(times, key=lambda time: time.time_s)
    largest = max((part for part in worst.tree.parts if part.value > 0), key=lambda part: part.value).name
    if largest in _CAUSES:
        return _CAUSES[largest]
    spent: dict[str, float] = {}
    for op in worst.ops:
        spent[op.bound] = spent.get(op.bound, 0.0) + op.time_s
    bound = max(spent, key=spent.__getitem__) if spent else "other"
    return _BOUNDS.get(bound, bound)
