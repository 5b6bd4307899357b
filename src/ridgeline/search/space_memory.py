"""Memory of all choices for one set of degrees at once: terms of the scalar path, combined by broadcasting.

Arrays have the axes of `Options`; an axis on which a quantity does not depend has length one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgeline.search.space import (
    ACTIVATIONS,
    AXES_COUNT,
    OPTIMIZER,
    RECOMPUTE,
    SEQUENCE,
    SHARDING,
    WEIGHTS,
    Options,
    Space,
)
from ridgeline.specs import TrainingPlan
from ridgeline.training.host import RESIDENT_LAYERS, host_memory_bytes
from ridgeline.training.memory import StateTerms, activation_terms, state_terms
from ridgeline.workload.memory import in_flight_frac
from ridgeline.workload.stages import Stage, stages_of

Floats = npt.NDArray[np.float64]


def along(options: Options, axes: tuple[int, ...], value: Callable[..., float]) -> Floats:
    """`value(i, j, ...)` for each combination of indices of `axes`, as an array over the options."""
    shape = [1] * AXES_COUNT
    for axis in axes:
        shape[axis] = options.shape[axis]
    sizes = [options.shape[axis] for axis in axes]
    found = np.empty(sizes)
    for indices in np.ndindex(*sizes):
        found[indices] = value(*indices)
    return found.reshape(shape)


def flags(values: tuple[bool, ...], axis: int) -> npt.NDArray[np.bool_]:
    """The values of an axis of yes and no, along that axis."""
    shape = [1] * AXES_COUNT
    shape[axis] = len(values)
    return np.array(values).reshape(shape)


def contents(stage: Stage) -> tuple[Any, ...]:
    """What decides the work and the memory of a stage, but for its place in the pipeline."""
    held = tuple((id(share.layer), share.count, share.stored_count) for share in stage.shares)
    return held, stage.embedding, stage.head


@dataclass(frozen=True, slots=True)
class MemoryGrid:
    """Bytes on the device and in the host for each choice; on the fullest stage of each."""

    device_bytes: Floats
    host_bytes: Floats


@dataclass
class MemoryArrays:
    """Memory of all choices of a space, degrees by degrees; terms that return are remembered."""

    space: Space
    _states: dict[tuple[Any, ...], StateTerms] = field(default_factory=dict)
    _kept: dict[tuple[Any, ...], tuple[Floats, ...]] = field(default_factory=dict)

    def grid(self, degrees: TrainingPlan, options: Options) -> MemoryGrid:
        """Memory of all `options` at `degrees`."""
        device = host = np.zeros((1,) * AXES_COUNT)
        for stage in stages_of(self.space.model, degrees):
            if stage.like == stage.index:  # later ones hold the same with fewer micro-batches in flight
                here, there = self._stage(stage, degrees, options)
                device, host = np.maximum(device, here), np.maximum(host, there)
        return MemoryGrid(device, host)

    def host_limit_bytes(self) -> float:
        """What a device may keep in its host; without limit where that is not known."""
        limit = host_memory_bytes(self.space.system)
        return np.inf if limit is None else limit

    def _stage(self, stage: Stage, degrees: TrainingPlan, options: Options) -> tuple[Floats, Floats]:
        """Bytes on the device and in the host of one stage."""
        software = self.space.software
        states, moved = self._state_bytes(stage, degrees, options)
        kept, away = self._activation_bytes(stage, degrees, options)
        buckets = software.exchange_buffer_bytes if degrees.devices_count > 1 else 0.0
        whole = (states + kept) * (1.0 + software.fragmentation_frac) + buckets + software.context_bytes
        return whole, moved + away

    def _state_bytes(self, stage: Stage, degrees: TrainingPlan, options: Options) -> tuple[Floats, Floats]:
        def terms(index: int) -> StateTerms:
            sharding = options.sharding[index]
            key = (contents(stage), degrees.tensor_count, degrees.expert_count, self._ranks(degrees), sharding)
            found = self._states.get(key)
            if found is None:
                plan = options.plan(degrees, 0, 0, 0, index)
                found = state_terms(self.space.model, stage, replace(plan, offload_weights=True), self.space.software)
                self._states[key] = found
            return found

        each = (SHARDING,)
        weights = along(options, each, lambda z: terms(z).weights + terms(z).copies)
        other = along(options, each, lambda z: terms(z).gradients + terms(z).gathered)
        optimizer = along(options, each, lambda z: terms(z).master + terms(z).moments)
        resident = along(options, each, lambda z: terms(z).resident_frac)
        weights_away = flags(options.offload_weights, WEIGHTS)
        optimizer_away = flags(options.offload_optimizer, OPTIMIZER)
        here = np.where(weights_away, weights * resident, weights) + other + np.where(optimizer_away, 0.0, optimizer)
        there = np.where(weights_away, weights * (1.0 - resident), 0.0) + np.where(optimizer_away, optimizer, 0.0)
        return here, there

    def _activation_bytes(self, stage: Stage, degrees: TrainingPlan, options: Options) -> tuple[Floats, Floats]:
        alive = in_flight_frac(stage.index, degrees)
        streams = alive if stage.embedding else 0.0
        kept, largest, rest, stream = self._activation_terms(stage, degrees, options)
        kept = alive * kept
        largest = RESIDENT_LAYERS * largest
        rest = rest + streams * stream
        held = np.where(flags(options.offload_activations, ACTIVATIONS), np.minimum(kept, largest), kept)
        return held + rest, kept - held

    def _activation_terms(self, stage: Stage, degrees: TrainingPlan, options: Options) -> tuple[Floats, ...]:
        """Activations of one micro-batch: all kept, those of the largest layer, what is there beside them, a stream."""
        cut = (degrees.tensor_count, degrees.context_count, degrees.expert_count, degrees.micro_batch_count)
        key = (contents(stage), cut, options.shape)
        found = self._kept.get(key)
        if found is None:
            terms = {
                (s, r): activation_terms(self.space.model, stage, options.plan(degrees, s, 0, r), self.space.software)
                for s, r in np.ndindex(options.shape[SEQUENCE], options.shape[RECOMPUTE])
            }
            both = (SEQUENCE, RECOMPUTE)
            found = self._kept[key] = (
                along(options, both, lambda s, r: terms[s, r].kept),
                along(options, both, lambda s, r: terms[s, r].largest),
                along(options, both, lambda s, r: terms[s, r].beside(self._has_head(stage))),
                along(options, both, lambda s, r: terms[s, r].stream),
            )
        return found

    def _has_head(self, stage: Stage) -> bool:
        return stage.head and self.space.model.head is not None

    @staticmethod
    def _ranks(degrees: TrainingPlan) -> int:
        return degrees.data_count * degrees.context_count
