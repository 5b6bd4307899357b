"""The space of all layouts of a model on so many devices: axes, degrees that multiply, and which rules they break."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgeline.core import FrozenMap
from ridgeline.specs import SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.specs.plan import DataOverlapChoice, Recompute, Sharding, TensorOverlapChoice
from ridgeline.training import check_plan
from ridgeline.workload.stages import divides

Ints = npt.NDArray[np.int64]

# Forms of sequence parallelism: every rank has the whole stream (all-reduce); streams in shards that are gathered for
# the products and gathered again for the weight gradients; the same with the gathered inputs kept.
SEQUENCE_FORMS: tuple[tuple[bool, bool], ...] = ((False, False), (True, False), (True, True))
_SHARES = (0.25, 0.5, 0.75, 1.0)  # src: ridgeline-layouts
RECOMPUTES: tuple[tuple[Recompute, float], ...] = (
    ("none", 1.0),
    *(("selective", share) for share in _SHARES),
    *(("full", share) for share in _SHARES),
)
# Places of the axes of `Options`, in order.
SEQUENCE, OVERLAP, RECOMPUTE, SHARDING, DATA, WEIGHTS, ACTIVATIONS, OPTIMIZER = range(8)  # src: rl-numerics
AXES_COUNT = 8  # src: rl-numerics
_RULED = (SEQUENCE, OVERLAP, SHARDING, DATA)
_MOVED = (WEIGHTS, ACTIVATIONS, OPTIMIZER)
_BOTH = (False, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What is tried beside the degrees; the plainest value of each axis first.

    `sequence`: (sequence parallel, gathered inputs kept). `recompute`: what is computed again and in which share of
    the layers. `offload_*`: whether that lies in the memory of the host. Degrees: all tensor, pipeline and data
    degrees that multiply to the devices for each of `contexts` and `experts`; all counts of virtual stages that
    divide the layers; all micro-batches that divide what is left of the batch, or those of `micro_batches`.
    """

    sequence: tuple[tuple[bool, bool], ...] = SEQUENCE_FORMS
    tensor_overlap: tuple[TensorOverlapChoice, ...] = ("none", "backward", "pipelined", "ring")
    recompute: tuple[tuple[Recompute, float], ...] = RECOMPUTES
    sharding: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")
    data_overlap: tuple[DataOverlapChoice, ...] = ("none", "gradients", "both")
    offload_weights: tuple[bool, ...] = _BOTH
    offload_activations: tuple[bool, ...] = _BOTH
    offload_optimizer: tuple[bool, ...] = _BOTH
    contexts: tuple[int, ...] = (1,)
    experts: tuple[int, ...] = (1,)
    micro_batches: tuple[int, ...] = ()

    def pinned(self, pins: Mapping[str, float | str | bool]) -> Axes:
        """The axes with the choices among `pins` (fields of a plan) decided; names of degrees are left to the space."""
        found = self
        if "sequence_parallel" in pins:
            forms = tuple(form for form in self.sequence if form[0] == pins["sequence_parallel"])
            found = replace(found, sequence=forms)
        if "recompute" in pins:
            kept = tuple(item for item in self.recompute if item[0] == pins["recompute"])
            found = replace(found, recompute=kept)
        for name in ("sharding", "offload_optimizer"):
            if name in pins:
                found = replace(found, **{name: (pins[name],)})  # type: ignore[arg-type]
        for name, axis in (("context_count", "contexts"), ("expert_count", "experts")):
            if name in pins:
                found = replace(found, **{axis: (int(pins[name]),)})  # type: ignore[arg-type]
        return found

    def options(self, shape: TrainingPlan) -> Options:
        """The axes that have a meaning for the degrees of `shape`: one device has nothing to cut, overlap or shard."""
        cut = shape.tensor_count > 1
        spread = shape.data_count * shape.context_count > 1
        return Options(
            sequence=self.sequence if cut else ((False, False),),
            tensor_overlap=self.tensor_overlap if cut else ("none",),
            recompute=self.recompute,
            sharding=self.sharding if spread else ("none",),
            data_overlap=self.data_overlap if spread else ("none",),
            offload_weights=self.offload_weights,
            offload_activations=self.offload_activations,
            offload_optimizer=self.offload_optimizer,
        )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The choices for one set of degrees: their product is one chunk of the search, in the order of the fields."""

    sequence: tuple[tuple[bool, bool], ...]
    tensor_overlap: tuple[TensorOverlapChoice, ...]
    recompute: tuple[tuple[Recompute, float], ...]
    sharding: tuple[Sharding, ...]
    data_overlap: tuple[DataOverlapChoice, ...]
    offload_weights: tuple[bool, ...]
    offload_activations: tuple[bool, ...]
    offload_optimizer: tuple[bool, ...]

    @cached_property
    def axes(self) -> tuple[tuple[Any, ...], ...]:
        """Values by axis."""
        return (
            self.sequence,
            self.tensor_overlap,
            self.recompute,
            self.sharding,
            self.data_overlap,
            self.offload_weights,
            self.offload_activations,
            self.offload_optimizer,
        )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def count(self) -> int:
        """Choices in all."""
        return math.prod(self.shape)

    def without_cuts(self) -> Options:
        """The same with the plainest sequence form, overlaps and sharding alone, which no rule forbids."""
        return replace(
            self,
            sequence=((False, False),),
            tensor_overlap=("none",),
            sharding=("none",),
            data_overlap=("none",),
        )

    def plan(self, degrees: TrainingPlan, *indices: int) -> TrainingPlan:
        """`degrees` with the choice at `indices` (missing ones: the first)."""
        filled = (*indices, *(0 for _ in self.axes[len(indices) :]))
        chosen = [axis[index] for axis, index in zip(self.axes, filled, strict=True)]
        (parallel, kept), overlap, (recompute, share), sharding, data, weights, activations, optimizer = chosen
        return replace(
            degrees,
            sequence_parallel=parallel,
            keep_gathered=kept,
            tensor_overlap=overlap,
            recompute=recompute,
            recompute_layers_frac=share,
            sharding=sharding,
            data_overlap=data,
            offload_weights=weights,
            offload_activations=activations,
            offload_optimizer=optimizer,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All layouts of `model` on each of `devices_counts` devices of `system` under `software`.

    `base` has batch, sequence, precision and every field of a plan that is not searched; `pins` are degrees, virtual
    stages or a micro-batch that are decided.
    """

    model: Transformer
    system: System
    software: SoftwareProfile
    devices_counts: tuple[int, ...]
    base: TrainingPlan
    axes: Axes = field(default_factory=Axes)
    pins: FrozenMap[str, int] = field(default_factory=FrozenMap)

    def degrees(self) -> Iterator[TrainingPlan]:
        """Each combination of degrees, virtual stages and micro-batch, with plain choices, rules not asked yet.

        Pipelines that do not divide the layers and data degrees that do not divide the batch are listed once each, so
        that they can be counted.
        """
        for devices in self.devices_counts:
            for context, expert in product(self.axes.contexts, self.axes.experts):
                if devices % context == 0:
                    for tensor, pipeline, data in factorisations(devices // context):
                        yield from self._batched(tensor, pipeline, data, context, expert)

    def _batched(self, tensor: int, pipeline: int, data: int, context: int, expert: int) -> Iterator[TrainingPlan]:
        for virtual, micro in product(self._virtual(pipeline), self._micro_batches(data)):
            shape = replace(
                self.base,
                tensor_count=tensor,
                pipeline_count=pipeline,
                data_count=data,
                context_count=context,
                expert_count=expert,
                interleave_count=virtual,
                micro_batch_count=micro,
                sequence_parallel=False,
                sharding="none",
            )
            if all(getattr(shape, name) == value for name, value in self.pins.items()):
                yield shape

    def _virtual(self, pipeline: int) -> list[int]:
        layers = self.model.layers_count
        if pipeline == 1 or pipeline > layers:
            return [1]
        return [v for v in range(1, layers // pipeline + 1) if divides(layers, pipeline * v)] or [1]

    def _micro_batches(self, data: int) -> list[int]:
        batch = self.base.global_batch_count
        if batch % data:
            return [1]
        each = batch // data
        fitting = [size for size in divisors(each) if not self.axes.micro_batches or size in self.axes.micro_batches]
        return fitting or [1]

    def count(self) -> int:
        """Layouts of the whole space, those that break a rule among them."""
        return sum(self.axes.options(shape).count for shape in self.degrees())

    def broken(self, degrees: TrainingPlan) -> str:
        """Code of the first rule that degrees, virtual stages and micro-batch break by themselves; "" for none."""
        problems = check_plan(self.model, self.system, degrees)
        return problems[0].code if problems else ""

    def broken_choices(self, degrees: TrainingPlan) -> tuple[Ints, tuple[str, ...]]:
        """Which choices break a rule on allowed degrees: an array over the options (0: none), and the codes by number.

        Rules about choices look at sequence form, overlaps and sharding together, and at what is offloaded.
        """
        options = self.axes.options(degrees)
        codes: list[str] = [""]
        found = self._codes(options, degrees, _RULED, codes)
        moved = self._codes(options.without_cuts(), degrees, _MOVED, codes)
        return np.where(found > 0, found, moved), tuple(codes)

    def _codes(self, options: Options, degrees: TrainingPlan, axes: tuple[int, ...], codes: list[str]) -> Ints:
        """Number of the first broken rule for all choices of `axes`, the other axes at their first value."""
        shape = [size if axis in axes else 1 for axis, size in enumerate(options.shape)]
        found = np.zeros(shape, dtype=np.int64)
        for place in np.ndindex(*shape):
            problems = check_plan(self.model, self.system, options.plan(degrees, *place))
            code = problems[0].code if problems else ""
            if code not in codes:
                codes.append(code)
            found[place] = codes.index(code)
        return found


def divisors(count: int) -> list[int]:
    """Divisors in order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [size for size in range(1, count + 1) if count % size == 0]


def factorisations(count: int) -> Iterator[tuple[int, int, int]]:
    """All (t, p, d) with t p d = `count`.

    >>> len(list(factorisations(4096)))
    91
    """
    for tensor in divisors(count):
        for pipeline in divisors(count // tensor):
            yield tensor, pipeline, count // tensor // pipeline
