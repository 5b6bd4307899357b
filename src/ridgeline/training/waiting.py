"""What a step waits for: the ends of a pipeline under its schedule, and an input pipeline that is too slow."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ridgeline.core import model as formula
from ridgeline.specs import System, TrainingPlan, Transformer
from ridgeline.training.clock import Clock
from ridgeline.training.phases import Phases
from ridgeline.training.schedule import bubble_s
from ridgeline.training.zero_bubble import split_bubble_s, v_bubble_s
from ridgeline.workload.layers import training_layer_ops
from ridgeline.workload.stages import LayerShare, Stage, cross_tokens, stack_tokens
from ridgeline.workload.training_shapes import layer_shape

_WEIGHT_WORK = ("weight gradient", "gradient accumulation")


def pipeline_wait_s(
    model: Transformer, parts: Sequence[Stage], phases: Sequence[Phases], plan: TrainingPlan, clock: Clock
) -> tuple[float, str]:
    """Waiting of the slowest stage while the pipeline fills and drains [s], and the id of the formula."""
    if not plan.splits_backward:
        return bubble_s([phase.total_s for phase in phases], plan.interleave_count), "pipeline-bubble"
    weight_s = [min(weights_s(model, stage, plan, clock), phase.backward_s) for stage, phase in _pairs(parts, phases)]
    forward_s = [phase.forward_s for phase in phases]
    input_s = [phase.backward_s - weight for phase, weight in zip(phases, weight_s, strict=True)]
    if plan.schedule == "zb-v":
        times = list(zip(forward_s, input_s, weight_s, strict=True))
        return v_bubble_s(times, plan.micro_batches_count), "zero-bubble-v"
    return split_bubble_s(forward_s, input_s, weight_s, 2 if plan.schedule == "zb-h2" else 1), "zero-bubble-h"


def _pairs(parts: Sequence[Stage], phases: Sequence[Phases]) -> list[tuple[Stage, Phases]]:
    return list(zip(parts, phases, strict=True))


def weights_s(model: Transformer, stage: Stage, plan: TrainingPlan, clock: Clock) -> float:
    """Time of the weight gradients of one micro-batch on one stage [s]: what a split backward pass may delay."""
    return sum(_share_s(model, share, plan, clock) for share in stage.shares)


def _share_s(model: Transformer, share: LayerShare, plan: TrainingPlan, clock: Clock) -> float:
    tokens = stack_tokens(model, share.stack, plan.sequence_tokens)
    shape = layer_shape(plan, tokens, cross_tokens(model, plan.sequence_tokens), clock.domain_count)
    ops = training_layer_ops(share.layer, share.hidden, shape, clock.software).backward
    mine = [item for item in ops if item.op.name.endswith(_WEIGHT_WORK)]
    return share.count * sum(item.count * clock.time(item.op).time_s for item in mine)


@formula(id="input-roof", sources=("rl-derivation",))
def input_roof_s(samples_count: float, nodes_count: float, node_samples_per_s: float, storage_per_s: float) -> float:
    """Least time between two steps that the input pipeline allows [s].

    t = samples / min(nodes x rate of one node, rate of the storage)

    Decoding and tokenising on the hosts and reading from the file system run ahead of the steps; the slower one is the
    pace. A rate of 0 is no limit. Assumes that nodes share the samples evenly.

    >>> input_roof_s(256.0, 2.0, 64.0, 0.0), input_roof_s(256.0, 2.0, 0.0, 512.0), input_roof_s(256.0, 2.0, 0.0, 0.0)
    (2.0, 0.5, 0.0)
    """
    rates = [rate for rate in (nodes_count * node_samples_per_s, storage_per_s) if rate > 0]
    return samples_count / min(rates) if rates else 0.0


def input_wait_s(plan: TrainingPlan, system: System, busy_s: float) -> float:
    """What of a step that takes `busy_s` otherwise the devices wait for their input [s]."""
    nodes = math.ceil(plan.devices_count / system.devices_per_node_count)
    roof_s = input_roof_s(plan.global_batch_count, nodes, plan.node_samples_per_s, plan.storage_samples_per_s)
    return max(0.0, roof_s - busy_s)
