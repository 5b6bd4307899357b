"""Time of a step for all choices of one set of degrees at once.

Layers, ends, exchanges and transfers are timed once each by the scalar path of `training`; what differs between the
choices is combined by broadcasting, with the same formulas of overlap. Arrays have the axes of `Options`; an axis on
which a quantity does not depend has length one. A test asserts that the step equals `training.estimate_step`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ridgeline.search.space import (
    ACTIVATIONS,
    AXES_COUNT,
    DATA,
    OPTIMIZER,
    OVERLAP,
    RECOMPUTE,
    SEQUENCE,
    SHARDING,
    WEIGHTS,
    Options,
    Space,
)
from ridgeline.search.space_memory import Floats, along, contents, flags
from ridgeline.specs import TrainingPlan
from ridgeline.training.clock import Clock, total_s
from ridgeline.training.host import layer_transfers_s
from ridgeline.training.per_step import buckets_count, data_overlaps, reductions_count, step_parts
from ridgeline.training.phases import Phases, ends_phases, layer_phases, sharding_exchanges
from ridgeline.training.schedule import bucketed_exposed_s, layerwise_exposed_s
from ridgeline.training.step import hides_sends, send_works, steady_crossings_count
from ridgeline.workload.memory import local_parameters
from ridgeline.workload.stages import LayerShare, Stage, cross_tokens, stack_tokens, stages_of
from ridgeline.workload.training_shapes import LayerShape, layer_shape

Wanted = npt.NDArray[np.bool_]


class _Passes(NamedTuple):
    """Forward and backward time of one micro-batch, recomputation in the latter."""

    forward_s: Floats
    backward_s: Floats


class _Job(NamedTuple):
    """Degrees, their options, and which (sequence form, overlap, recompute) and shardings what fits asks for."""

    degrees: TrainingPlan
    options: Options
    wanted: Wanted
    shardings: tuple[bool, ...]


class _OnceParts(NamedTuple):
    """What one stage does once a step: all exchanges, gradients and weights among them, and what follows them.

    `reductions_count`: backward passes behind which gradients are summed.
    """

    exchanges_s: Floats
    gradient_s: Floats
    weight_s: Floats
    reductions_count: Floats
    after_s: Floats


@dataclass
class TimeArrays:
    """Times of all choices of a space, degrees by degrees; what returns is remembered."""

    space: Space
    clock: Clock
    _layers: dict[tuple[Any, ...], _Passes] = field(default_factory=dict)
    _ends: dict[tuple[Any, ...], _Passes] = field(default_factory=dict)
    _moved: dict[tuple[Any, ...], Floats] = field(default_factory=dict)
    _once: dict[tuple[Any, ...], tuple[float, float, float]] = field(default_factory=dict)

    def step_s(self, degrees: TrainingPlan, options: Options, fits: Wanted) -> Floats:
        """Time of one step of each choice; not a number where no choice that `fits` needs it."""
        spread = np.broadcast_to(fits, options.shape)
        others = (SHARDING, DATA, WEIGHTS, ACTIVATIONS, OPTIMIZER)
        shardings = np.asarray(np.moveaxis(spread, SHARDING, 0).reshape(options.shape[SHARDING], -1).any(axis=1))
        job = _Job(degrees, options, np.asarray(spread.any(axis=others)), tuple(bool(asked) for asked in shardings))
        stages = stages_of(self.space.model, degrees)
        passes = {stage.index: self._passes(stage, job) for stage in stages if stage.like == stage.index}
        slowest_s = slowest_forward_s = np.zeros((1,) * AXES_COUNT)
        together_s: Floats | float = 0.0
        for index, one in passes.items():
            both_s = one.forward_s + one.backward_s
            slower = both_s > slowest_s
            slowest_forward_s = np.where(slower, one.forward_s, slowest_forward_s)
            slowest_s = np.where(slower, both_s, slowest_s)
            together_s = together_s + sum(stage.like == index for stage in stages) * both_s
        bubble_s = (together_s - slowest_s) / degrees.interleave_count
        sends_s = self._sends(job, slowest_forward_s)
        last_s = self._last(stages, passes, job)
        return degrees.micro_batches_count * slowest_s + bubble_s + sends_s + last_s

    def _passes(self, stage: Stage, job: _Job) -> _Passes:
        """One micro-batch on one stage."""
        forward_s, backward_s = self._end_times(stage, job)
        for share in stage.shares:
            one = self._layer_times(share, job)
            count = share.count
            forward_s = forward_s + count * one.forward_s
            backward_s = backward_s + count * one.backward_s
            for add_forward_s, add_backward_s in (self._gathers(share, one, job), self._transfers(share, one, job)):
                forward_s = forward_s + add_forward_s
                backward_s = backward_s + add_backward_s
        return _Passes(forward_s, backward_s)

    def _shape(self, share: LayerShare, plan: TrainingPlan) -> LayerShape:
        tokens = stack_tokens(self.space.model, share.stack, plan.sequence_tokens)
        return layer_shape(plan, tokens, cross_tokens(self.space.model, plan.sequence_tokens), self.clock.domain_count)

    def _layer_times(self, share: LayerShare, job: _Job) -> _Passes:
        """One layer: forward; recomputation (in proportion to its share of the layers) and backward."""
        key = (id(share.layer), id(share.stack), self._cut(job), job.wanted.tobytes())
        found = self._layers.get(key)
        if found is None:
            found = self._layers[key] = self._time_layer(share, job)
        return found

    def _time_layer(self, share: LayerShare, job: _Job) -> _Passes:
        """Each wanted combination of one layer by the scalar path; a share of recompute is that much of the whole."""

        def phases(s: int, t: int, r: int) -> Phases | None:
            if not job.wanted[s, t, r]:
                return None
            plan = replace(job.options.plan(job.degrees, s, t, r), recompute_layers_frac=1.0)
            return layer_phases(share.layer, share.hidden, self._shape(share, plan), plan, self.clock)

        def forward_s(s: int, t: int, r: int) -> float:
            one = phases(s, t, r)
            return np.nan if one is None else one.forward_s

        def backward_s(s: int, t: int, r: int) -> float:
            one = phases(s, t, r)
            if one is None:
                return np.nan
            return total_s(one.backward) + job.options.recompute[r][1] * total_s(one.recompute)

        axes = (SEQUENCE, OVERLAP, RECOMPUTE)
        return _Passes(along(job.options, axes, forward_s), along(job.options, axes, backward_s))

    @staticmethod
    def _cut(job: _Job) -> tuple[Any, ...]:
        """What decides the work of a layer beside the choices."""
        plan = job.degrees
        degrees = (plan.tensor_count, plan.context_count, plan.expert_count, plan.devices_count)
        return (*degrees, plan.micro_batch_count, job.options.shape)

    def _end_times(self, stage: Stage, job: _Job) -> _Passes:
        """Embedding and head."""
        if not (stage.embedding or stage.head):
            nothing = np.zeros((1,) * AXES_COUNT)
            return _Passes(nothing, nothing)
        wanted = job.wanted.any(axis=RECOMPUTE)
        key = (stage.embedding, stage.head, self._cut(job), wanted.tobytes())
        found = self._ends.get(key)
        if found is None:
            ends = {
                (s, t): ends_phases(self.space.model, stage, job.options.plan(job.degrees, s, t), self.clock)
                for s, t in np.argwhere(wanted).tolist()
            }
            times = {
                place: (sum(e.forward_s for e in one), sum(e.backward_s for e in one)) for place, one in ends.items()
            }
            unknown = (np.nan, np.nan)
            axes = (SEQUENCE, OVERLAP)
            found = self._ends[key] = _Passes(
                along(job.options, axes, lambda s, t: times.get((s, t), unknown)[0]),
                along(job.options, axes, lambda s, t: times.get((s, t), unknown)[1]),
            )
        return found

    def _gathers(self, share: LayerShare, one: _Passes, job: _Job) -> tuple[Floats | float, Floats | float]:
        """What gathers and scatters of full sharding add to the passes of the layers of a share."""
        sharded = flags(tuple(value == "zero3" for value in job.options.sharding), SHARDING)
        if not sharded.any() or job.degrees.pipeline_count > 1:
            return 0.0, 0.0
        plan = replace(job.degrees, sharding="zero3")
        shape = self._shape(share, plan)
        gather, scatter = sharding_exchanges(share.layer, shape, plan, self.clock)
        gather_s, scatter_s = total_s(self.clock.works(gather)), total_s(self.clock.works(scatter))
        software, count = self.clock.software, share.count
        ahead = software.prefetch_layers_count
        forward_s = layerwise_exposed_s(gather_s, one.forward_s, count, ahead)
        if software.prefetch_backward:
            backward_s = layerwise_exposed_s(gather_s + scatter_s, one.backward_s, count, ahead)
        else:
            backward_s = gather_s * count + layerwise_exposed_s(scatter_s, one.backward_s, count, 1)
        added = [
            whole_s - hidden_s * (1.0 - self.clock.slowdown_frac)
            for whole_s, exposed_s in ((gather_s * count, forward_s), ((gather_s + scatter_s) * count, backward_s))
            for hidden_s in (np.maximum(0.0, whole_s - exposed_s),)
        ]
        return np.where(sharded, added[0], 0.0), np.where(sharded, added[1], 0.0)

    def _transfers(self, share: LayerShare, one: _Passes, job: _Job) -> tuple[Floats | float, Floats | float]:
        """What moving weights and activations to and from the host adds to the passes of the layers of a share."""
        options = job.options
        if not (any(options.offload_weights) or any(options.offload_activations)):
            return 0.0, 0.0

        def weights_s(z: int, w: int) -> float:
            if not options.offload_weights[w]:
                return 0.0
            plan = replace(options.plan(job.degrees, 0, 0, 0, z), offload_weights=True, offload_activations=False)
            return layer_transfers_s(share.layer, share.hidden, self._shape(share, plan), plan, self.clock)[0]

        def activations_s(s: int, r: int, a: int) -> float:
            if not options.offload_activations[a]:
                return 0.0
            plan = replace(options.plan(job.degrees, s, 0, r), offload_weights=False, offload_activations=True)
            return layer_transfers_s(share.layer, share.hidden, self._shape(share, plan), plan, self.clock)[0]

        layer = (id(share.layer), id(share.stack))
        ranks = job.degrees.data_count * job.degrees.context_count
        down_s = self._remembered(("weights", layer, ranks, self._cut(job)), job, (SHARDING, WEIGHTS), weights_s)
        axes = (SEQUENCE, RECOMPUTE, ACTIVATIONS)
        up_s = self._remembered(("activations", layer, self._cut(job)), job, axes, activations_s)
        return (
            layerwise_exposed_s(np.maximum(down_s, up_s), one.forward_s, share.count, 1),
            layerwise_exposed_s(down_s + up_s, one.backward_s, share.count, 1),
        )

    def _remembered(
        self, key: tuple[Any, ...], job: _Job, axes: tuple[int, ...], value: Callable[..., float]
    ) -> Floats:
        found = self._moved.get(key)
        if found is None:
            found = self._moved[key] = along(job.options, axes, value)
        return found

    def _sends(self, job: _Job, forward_s: Floats) -> Floats | float:
        """Transfers between stages; those of interleaved schedules behind the next piece where the software does so."""
        degrees, options = job.degrees, job.options
        if degrees.pipeline_count == 1:
            return 0.0
        found = [send_works(self.space.model, options.plan(degrees, s), self.clock) for s in range(options.shape[0])]
        whole_s = along(options, (SEQUENCE,), lambda s: total_s(found[s][0]))
        if not hides_sends(degrees, self.clock):
            return whole_s
        steady = steady_crossings_count(degrees)
        window_s = steady * forward_s / degrees.interleave_count
        hidden_s = np.minimum(steady / found[0][1] * whole_s, window_s)
        return whole_s - hidden_s * (1.0 - self.clock.slowdown_frac)

    def _last(self, stages: tuple[Stage, ...], passes: dict[int, _Passes], job: _Job) -> Floats | float:
        """The once-a-step work that ends last, less the time by which earlier stages started it before the end."""
        last_s: Floats | float = -np.inf
        ahead_s: Floats | float = 0.0
        for stage in stages:
            one = passes[stage.like]
            if stage.index in (0, 1, len(stages) - 1):
                last_s = np.maximum(last_s, self._once_a_step(stage, one, job) - ahead_s)
            ahead_s = ahead_s + one.backward_s / job.degrees.interleave_count
        return last_s

    def _once_a_step(self, stage: Stage, one: _Passes, job: _Job) -> Floats:
        """Gradient sum, weight gather and optimizer of one stage, with what hides taken off."""
        plan = job.options.plan(job.degrees)
        parts = self._once_parts(stage, job)
        overlaps = [
            data_overlaps(replace(plan, data_overlap=name), self.clock.software) for name in job.options.data_overlap
        ]
        buckets = self._buckets(stage, job)
        hidden_s = np.zeros((1,) * AXES_COUNT)
        for exchange_s, window_s, kind in (
            (parts.gradient_s, one.backward_s * parts.reductions_count, 0),
            (parts.weight_s, one.forward_s, 1),
        ):
            behind_s = np.maximum(0.0, exchange_s - bucketed_exposed_s(exchange_s, window_s, buckets))
            hidden_s = hidden_s + np.where(flags(tuple(pair[kind] for pair in overlaps), DATA), behind_s, 0.0)
        return parts.exchanges_s - hidden_s * (1.0 - self.clock.slowdown_frac) + parts.after_s

    def _buckets(self, stage: Stage, job: _Job) -> Floats:
        """Pieces in which gradients and weights are exchanged, by sharding."""
        plans = [job.options.plan(job.degrees, 0, 0, 0, z) for z in range(job.options.shape[SHARDING])]
        found = [buckets_count(stage, local_parameters(self.space.model, stage, p), p, self.clock) for p in plans]
        return along(job.options, (SHARDING,), lambda z: found[z])

    def _once_parts(self, stage: Stage, job: _Job) -> _OnceParts:
        """What a stage does once a step before any overlap; not a number for a sharding that nothing asks for."""
        degrees, options = job.degrees, job.options
        cut = (degrees.tensor_count, degrees.pipeline_count, degrees.data_count, degrees.context_count)
        key = (contents(stage), cut, degrees.expert_count, options.shape, job.shardings)
        plans = [options.plan(degrees, 0, 0, 0, z) for z in range(options.shape[SHARDING])]
        unknown = (np.nan, np.nan, np.nan)
        times = [
            self._exchange_times(stage, plan, key) if wanted else unknown
            for plan, wanted in zip(plans, job.shardings, strict=True)
        ]

        def after_s(z: int, w: int, o: int) -> float:
            plan = options.plan(degrees, 0, 0, 0, z, 0, w, 0, o)
            return total_s(step_parts(self.space.model, stage, plan, self.clock)[1]) if job.shardings[z] else np.nan

        def exchange_s(kind: int) -> Floats:
            return along(options, (SHARDING,), lambda z: times[z][kind])

        return _OnceParts(
            exchanges_s=exchange_s(0),
            gradient_s=exchange_s(1),
            weight_s=exchange_s(2),
            reductions_count=along(options, (SHARDING,), lambda z: reductions_count(plans[z])),
            after_s=self._remembered(("after", key), job, (SHARDING, WEIGHTS, OPTIMIZER), after_s),
        )

    def _exchange_times(self, stage: Stage, plan: TrainingPlan, place: tuple[Any, ...]) -> tuple[float, float, float]:
        """All exchanges of a step under one sharding, gradients and weights among them."""
        key = (place, stage.index > 0, plan.sharding, plan.interleave_count, reductions_count(plan))
        found = self._once.get(key)
        if found is None:
            works, _ = step_parts(self.space.model, stage, plan, self.clock)
            times = (total_s(works), total_s(works, "gradient exchange"), total_s(works, "weight exchange"))
            found = self._once[key] = times
        return found
