"""The operations of a chosen layout one by one: how long, what bounds them, which figure would have to improve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ridgeline.device import KernelContext, op_time
from ridgeline.network import collective_time, sliced
from ridgeline.search.result import ServingRow, TrainingRow
from ridgeline.specs import SoftwareProfile, TrainingPlan, Transformer
from ridgeline.training import TrainingJob
from ridgeline.training.clock import attention_family, settled
from ridgeline.workload.layers import training_layer_ops
from ridgeline.workload.ops import Collective, Repeated
from ridgeline.workload.stages import Stage, cross_tokens, stack_tokens, stages_of
from ridgeline.workload.training_ends import embedding_ops, head_ops
from ridgeline.workload.training_shapes import layer_shape


@dataclass(frozen=True, slots=True)
class OpLine:
    """One operation: its runs, their time in all [s], the highest roof, and the id of the figure behind that roof."""

    name: str
    count: float
    time_s: float
    bound: str
    limiter: str


def serving_operations(row: ServingRow) -> tuple[OpLine, ...]:
    """Operations of an engine step, longest first."""
    return tuple(OpLine(op.name, op.count, op.time_s, op.bound, op.limiter) for op in row.estimate.ops)


def training_operations(model: Transformer, row: TrainingRow) -> tuple[OpLine, ...]:
    """Operations of the first pipeline stage over all micro-batches of a step, longest first.

    Times are those of the kernels and collectives by themselves: what hides behind what is in the step's tree. The
    optimizer and the exchange of gradients, done once a step, are in that tree too.
    """
    job = TrainingJob(model=model, plan=row.plan, system=row.system, calibration=row.calibration, software=row.software)
    return step_operations(job)


def step_operations(job: TrainingJob) -> tuple[OpLine, ...]:
    """As `training_operations`, of any job."""
    model, plan, software = job.model, job.plan, job.software
    first = stages_of(model, plan)[0]
    calibration, system = settled(job.calibration), sliced(job.system, plan.devices_count)
    context = KernelContext(attention=attention_family(job.calibration, software), fused=software.fused_kernels)
    lines: dict[str, OpLine] = {}
    for item in _stage_ops(model, first, plan, software):
        count = item.count * plan.micro_batches_count
        if isinstance(item.op, Collective):
            op = item.op
            wire = collective_time(op.kind, op.message_bytes, op.group, system, calibration)
            bound = "bandwidth" if wire.bandwidth_s > wire.latency_s else "latency"
            line = OpLine(op.name, count, count * wire.time_s, bound, wire.level)
        else:
            kernel = op_time(item.op, job.system.chip, calibration, context)
            line = OpLine(item.op.name, count, count * kernel.time_s, kernel.bound, kernel.limiter)
        _add(lines, line)
    return tuple(sorted(lines.values(), key=lambda line: (-line.time_s, line.name)))


def _stage_ops(model: Transformer, stage: Stage, plan: TrainingPlan, software: SoftwareProfile) -> Iterable[Repeated]:
    """Forward, recomputed and backward operations of one micro-batch on a stage."""
    for share in stage.shares:
        tokens = stack_tokens(model, share.stack, plan.sequence_tokens)
        shape = layer_shape(plan, tokens, cross_tokens(model, plan.sequence_tokens))
        ops = training_layer_ops(share.layer, share.hidden, shape, software)
        again = {"none": (), "selective": ops.selective_recompute, "full": ops.full_recompute}[plan.recompute]
        for item in (*ops.forward, *ops.backward):
            yield Repeated(op=item.op, count=item.count * share.count)
        for item in again:
            yield Repeated(op=item.op, count=item.count * share.count * plan.recompute_layers_frac)
    shape = layer_shape(plan)
    ends = []
    if stage.embedding and model.vocab_count:
        ends.append(embedding_ops(model, shape, software))
    if stage.head and model.head is not None:
        ends.append(head_ops(model, shape, software))
    for end in ends:
        yield from (*end.forward, *end.backward)


def _add(lines: dict[str, OpLine], line: OpLine) -> None:
    """Add to the line of the same name and bound."""
    key = f"{line.name}/{line.bound}"
    last = lines.get(key)
    if last is None:
        lines[key] = line
    else:
        lines[key] = OpLine(line.name, last.count + line.count, last.time_s + line.time_s, line.bound, line.limiter)
