"""Every layout of a space: memory before time, the best, the front, and what was rejected for which reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ridgeline.core import FrozenMap
from ridgeline.errors import MissingFact
from ridgeline.network import sliced
from ridgeline.search.layouts import bubble_ratio
from ridgeline.search.pareto import front, front_of_sizes
from ridgeline.search.result import add_counts
from ridgeline.search.space import Ints, Options, Space
from ridgeline.search.space_memory import MemoryArrays
from ridgeline.search.space_time import TimeArrays
from ridgeline.search.training import REASONS
from ridgeline.specs import Calibration, TrainingPlan
from ridgeline.training.clock import clock_for

MEMORY, HOST_MEMORY, MISSING = "memory", "host memory", "missing fact"
# Times that differ by less are the same: then the layout that needs less memory is the better one.
_SAME_FRAC = 1e-9  # src: rl-numerics

SpaceProgress = Callable[[int, int, float], None]
"""Layouts done, layouts in all, best step so far [s] (infinite before there is one)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout with the time of its step and the memory of its fullest device."""

    plan: TrainingPlan
    step_s: float
    memory_bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "layout": self.plan.label(),
            "devices": self.plan.devices_count,
            "sequence_parallel": self.plan.sequence_parallel,
            "recompute_layers_frac": self.plan.recompute_layers_frac if self.plan.recompute != "none" else 0.0,
            "offload_optimizer": self.plan.offload_optimizer,
            "step_s": self.step_s,
            "memory_bytes": self.memory_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceResult:
    """What became of all layouts of a space.

    `strategies_count` are in the space, `searched_count` were reached (fewer after an interrupt), `allowed_count` keep
    every rule, `feasible_count` also fit. `rejected`: the others by the rule that they break (`training.REASONS`),
    "memory", "host memory" or "missing fact". `shapes`: the best layout of each combination of degrees, virtual
    stages and micro-batch, fastest first. `front`: layouts that no other beats in time, memory and devices at once.
    """

    strategies_count: int
    searched_count: int
    allowed_count: int
    feasible_count: int
    rejected: FrozenMap[str, int]
    shapes: tuple[Layout, ...]
    front: tuple[Layout, ...]
    missing: str = ""

    @property
    def complete(self) -> bool:
        """Whether the whole space was searched."""
        return self.searched_count == self.strategies_count

    @property
    def best(self) -> Layout | None:
        """The fastest layout that fits."""
        return self.shapes[0] if self.shapes else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "strategies_count": self.strategies_count,
            "searched_count": self.searched_count,
            "allowed_count": self.allowed_count,
            "feasible_count": self.feasible_count,
            "complete": self.complete,
            "rejected": dict(self.rejected),
            "best": None if self.best is None else self.best.to_dict(),
            "front": [layout.to_dict() for layout in self.front],
        }


class _Chunk(NamedTuple):
    """Degrees, their options, and the figures of those that fit (flat indices into the options)."""

    degrees: TrainingPlan
    options: Options
    indices: npt.NDArray[np.int64]
    step_s: npt.NDArray[np.float64]
    memory_bytes: npt.NDArray[np.float64]

    def layout(self, position: int) -> Layout:
        """One of them as a layout."""
        place = np.unravel_index(int(self.indices[position]), self.options.shape)
        plan = self.options.plan(self.degrees, *(int(index) for index in place))
        return Layout(plan, float(self.step_s[position]), float(self.memory_bytes[position]))

    def best(self) -> Layout:
        """The fastest; of equally fast ones that with the least memory, then the plainest."""
        near = np.flatnonzero(self.step_s <= self.step_s.min() * (1.0 + _SAME_FRAC))
        return self.layout(int(near[np.argmin(self.memory_bytes[near])]))

    def front(self) -> list[Layout]:
        """Those that no other of them beats in time and memory."""
        return [self.layout(int(position)) for position in front(self.step_s, self.memory_bytes)]


@dataclass
class _Tally:
    """What has been found so far."""

    searched_count: int = 0
    allowed_count: int = 0
    feasible_count: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    shapes: list[Layout] = field(default_factory=list)
    front: list[Layout] = field(default_factory=list)
    best_s: float = np.inf
    missing: str = ""
    broken: dict[tuple[int, ...], tuple[Ints, tuple[str, ...]]] = field(default_factory=dict)

    def choices(self, space: Space, degrees: TrainingPlan) -> tuple[Ints, tuple[str, ...]]:
        """`space.broken_choices`, which virtual stages and micro-batches do not change."""
        spread = degrees.data_count, degrees.context_count, degrees.expert_count
        key = (degrees.tensor_count, degrees.pipeline_count, *spread)
        found = self.broken.get(key)
        if found is None:
            found = self.broken[key] = space.broken_choices(degrees)
        return found

    def reject(self, code: str, count: int) -> None:
        """Count layouts that fell for one reason."""
        if count:
            self.rejected[code] = self.rejected.get(code, 0) + count


def search_space(space: Space, calibration: Calibration, progress: SpaceProgress | None = None) -> SpaceResult:
    """All layouts of `space`: those that keep the rules are asked for memory, those that fit for time.

    Degrees are worked through in order of their pipeline's waiting, so that an interrupt (Ctrl-C) leaves good layouts:
    it ends the search, and the answer says how far it came. Each set of degrees is one chunk of some ten thousand
    layouts, evaluated as arrays (`space_memory`, `space_time`); nothing is kept of a chunk but its best layout and
    its front.
    """
    memory = MemoryArrays(space)
    counts = space.devices_counts
    system = sliced(space.system, counts[0]) if len(counts) == 1 else space.system  # one slice, or each group its own
    time = TimeArrays(space, clock_for(system, calibration, space.software))
    degrees = sorted(space.degrees(), key=lambda plan: (plan.devices_count, _waiting(plan)))
    total = sum(space.axes.options(shape).count for shape in degrees)
    tally = _Tally()
    try:
        for shape in degrees:
            _search_degrees(space, shape, memory, time, tally)
            if progress is not None:
                progress(tally.searched_count, total, tally.best_s)
    except KeyboardInterrupt:
        if not tally.shapes:
            raise
    return _result(total, tally)


def _waiting(plan: TrainingPlan) -> float:
    """Share that a pipeline waits; without a whole micro-batch, for ever."""
    return bubble_ratio(plan) if plan.micro_batches_count else np.inf


def _search_degrees(space: Space, degrees: TrainingPlan, memory: MemoryArrays, time: TimeArrays, tally: _Tally) -> None:
    """Add all choices for one set of degrees to the tally: whole or, on an interrupt, not at all."""
    options = space.axes.options(degrees)
    counts: dict[str, int] = {}
    chunk = None
    allowed = 0
    broken = space.broken(degrees)
    if broken:
        counts[broken] = options.count
    else:
        codes, names = tally.choices(space, degrees)
        spread = np.broadcast_to(codes, options.shape)
        for number, name in enumerate(names[1:], start=1):
            counts[name] = int((spread == number).sum())
        allowed = options.count - sum(counts.values())
        grid = memory.grid(degrees, options)
        fits_device = grid.device_bytes <= space.system.chip.memory_bytes()
        fits_host = grid.host_bytes <= memory.host_limit_bytes()
        keeps = codes == 0
        fits = np.broadcast_to(keeps & fits_device & fits_host, options.shape)
        counts[MEMORY] = int(np.broadcast_to(keeps & ~fits_device, options.shape).sum())
        counts[HOST_MEMORY] = int(np.broadcast_to(keeps & fits_device & ~fits_host, options.shape).sum())
        if fits.any():
            try:
                chunk = _timed(degrees, options, fits, grid.device_bytes, time)
            except MissingFact as error:
                counts[MISSING] = int(fits.sum())
                tally.missing = str(error)
    _add(tally, options.count, allowed, counts, chunk)


def _timed(
    degrees: TrainingPlan,
    options: Options,
    fits: npt.NDArray[np.bool_],
    device_bytes: npt.NDArray[np.float64],
    time: TimeArrays,
) -> _Chunk:
    step_s = np.broadcast_to(time.step_s(degrees, options, fits), options.shape)
    size = np.broadcast_to(device_bytes, options.shape)
    return _Chunk(degrees, options, np.flatnonzero(fits), step_s[fits], size[fits])


def _add(tally: _Tally, count: int, allowed: int, counts: dict[str, int], chunk: _Chunk | None) -> None:
    tally.searched_count += count
    tally.allowed_count += allowed
    for code, number in counts.items():
        tally.reject(code, number)
    if chunk is not None:
        tally.feasible_count += chunk.indices.size
        best = chunk.best()
        tally.shapes.append(best)
        tally.best_s = min(tally.best_s, best.step_s)
        tally.front = _front([*tally.front, *chunk.front()])


def _front(layouts: Iterable[Layout]) -> list[Layout]:
    """Those that no other beats in time, memory and devices, fastest first."""
    items = list(layouts)
    step_s = np.array([item.step_s for item in items])
    size = np.array([item.memory_bytes for item in items])
    devices = np.array([item.plan.devices_count for item in items], dtype=np.int64)
    kept = [items[int(index)] for index in front_of_sizes(step_s, size, devices)]
    return sorted(kept, key=lambda item: (item.step_s, item.memory_bytes))


def _result(total: int, tally: _Tally) -> SpaceResult:
    return SpaceResult(
        strategies_count=total,
        searched_count=tally.searched_count,
        allowed_count=tally.allowed_count,
        feasible_count=tally.feasible_count,
        rejected=add_counts([{REASONS.get(code, code): count} for code, count in tally.rejected.items()]),
        shapes=tuple(sorted(tally.shapes, key=lambda item: (item.step_s, item.memory_bytes))),
        front=tuple(tally.front),
        missing=tally.missing,
    )
