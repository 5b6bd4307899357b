"""What happens once a step: gradients summed, weights gathered, the optimizer, and what of it hides."""

from __future__ import annotations

from dataclasses import replace

from ridgeline.specs import RankGroup, SoftwareProfile, TrainingPlan, Transformer
from ridgeline.training.clock import Clock, Work, Works, add, total_s
from ridgeline.training.host import TRANSFERS, host_oneway_bytes_per_s, layers_parameters_count
from ridgeline.training.phases import Phases, hide
from ridgeline.training.schedule import bucketed_exposed_s
from ridgeline.workload.layers import training_layer_ops
from ridgeline.workload.memory import LocalParameters, local_parameters, shard_ranks
from ridgeline.workload.ops import Collective, CollectiveKind, Repeated
from ridgeline.workload.stages import Stage
from ridgeline.workload.training_ends import optimizer_ops
from ridgeline.workload.training_shapes import LayerShape, expert_tensor_count, layer_shape
from ridgeline.workload.training_streams import wire_bytes


def step_works(model: Transformer, stage: Stage, plan: TrainingPlan, clock: Clock, phases: Phases) -> Works:
    """Everything that `stage` does once a step, with overlaps taken off; `phases` is one micro-batch on it.

    Gradients are summed behind the backward pass of the last micro-batch and weights gathered behind the forward pass
    of the first one where the software does so; the last (first) bucket has nothing to hide behind.
    """
    local = local_parameters(model, stage, plan)
    works, after = step_parts(model, stage, plan, clock)
    software = clock.software
    shared_s = 0.0
    buckets = buckets_count(stage, local, plan, clock)
    gradients, weights = data_overlaps(plan, software)
    if gradients:
        window_s = phases.backward_s * reductions_count(plan)
        shared_s += hide(works, "gradient exchange", bucketed_exposed_s, window_s, buckets)
    if weights:
        shared_s += hide(works, "weight exchange", bucketed_exposed_s, phases.forward_s, buckets)
    if shared_s > 0 and clock.slowdown_frac > 0:
        slowed_s = shared_s * clock.slowdown_frac
        add(works, Work("slowed by exchange", slowed_s, 0.0, 0.0, "", (software.fact_id("overlap_slowdown_frac"),)))
    for work in after.values():
        add(works, work)
    return works


def step_parts(model: Transformer, stage: Stage, plan: TrainingPlan, clock: Clock) -> tuple[Works, Works]:
    """What `stage` does once a step before any overlap: (exchanges with the casts before them, what follows them)."""
    local = local_parameters(model, stage, plan)
    exchanges = clock.works((*_weight_casts(stage, plan, clock), *_reductions(stage, local, plan, clock)))
    after: Works = dict(_optimizer(local, plan, clock))
    for work in clock.works(_tied(model, stage, plan, clock)).values():
        add(after, work)
    if plan.offload_weights:
        add(after, _written_back(stage, plan, clock))
    return exchanges, after


def _written_back(stage: Stage, plan: TrainingPlan, clock: Clock) -> Work:
    """New weights of the layers that lie in the host's memory go there after the optimizer; nothing hides that."""
    ranks = shard_ranks(plan)[0] if plan.sharding == "zero3" else 1
    count = layers_parameters_count(stage, plan) * plan.trainable_frac / ranks
    time_s = count * layer_shape(plan).stream_bytes / host_oneway_bytes_per_s(clock.system)
    return Work(TRANSFERS, time_s, 0.0, 0.0, "", (clock.system.chip.fact_id("host_oneway_bytes_per_s"),))


def data_overlaps(plan: TrainingPlan, software: SoftwareProfile) -> tuple[bool, bool]:
    """Whether gradients are summed behind the backward pass, and weights gathered behind the forward pass."""
    if plan.data_overlap is None:
        return software.data_overlap, software.gather_overlap
    return plan.data_overlap != "none", plan.data_overlap == "both"


def buckets_count(stage: Stage, local: LocalParameters, plan: TrainingPlan, clock: Clock) -> float:
    """Pieces in which gradients are exchanged: by bucket size, and at least one for each virtual stage.

    Flat parameters of sharded gradients are reduced layer by layer, as those of full sharding are. Buckets that are
    sized in parameters cut only the first virtual stage of the first stage, as nothing hides behind the others' end.
    Sources: Li et al. 2020; Zhao et al. 2023, section 3; `DistributedDataParallel` of Megatron-Core.
    """
    software = clock.software
    if plan.sharding == "zero2" and software.flat_gradients:
        return max(1.0, stage.layers_count)
    chunks = float(plan.interleave_count)
    if software.bucket_parameters_count > 0:
        ranks = plan.data_count * plan.context_count
        size = max(software.bucket_parameters_count, software.rank_bucket_parameters_count * ranks)
        return chunks if stage.index > 0 else chunks - 1.0 + max(1.0, local.total_count / chunks / size)
    whole = local.total_count * wire_bytes(layer_shape(plan), software)
    return max(1.0, chunks, whole / software.bucket_bytes if software.bucket_bytes > 0 else 1.0)


def reductions_count(plan: TrainingPlan) -> int:
    """How often a step gradients are summed: with ZeRO-2 after every micro-batch, as nobody keeps whole ones."""
    return plan.micro_batches_count if plan.sharding == "zero2" else 1


def _weight_casts(stage: Stage, plan: TrainingPlan, clock: Clock) -> list[Repeated]:
    shape = layer_shape(plan)
    if not shape.narrow_bytes:
        return []
    found = []
    for share in stage.shares:
        for item in training_layer_ops(share.layer, share.hidden, shape, clock.software).per_step:
            found.append(Repeated(op=item.op, count=item.count * share.count))
    return found


def data_groups(local: LocalParameters, plan: TrainingPlan) -> list[tuple[float, RankGroup]]:
    """Parameters of one device that are replicated over the same ranks: ordinary ones and experts."""
    ranks = plan.data_count * plan.context_count
    cut = expert_tensor_count(plan)
    expert_ranks = max(1, ranks * plan.tensor_count // (plan.expert_count * cut))
    ordinary = RankGroup(size_count=ranks, stride_count=plan.tensor_count)
    experts = RankGroup(size_count=expert_ranks, stride_count=plan.expert_count * cut)
    pairs = [(local.dense_count, ordinary), (local.expert_count, experts)]
    return [(count, group) for count, group in pairs if count > 0 and group.size_count > 1]


def _reductions(stage: Stage, local: LocalParameters, plan: TrainingPlan, clock: Clock) -> list[Repeated]:
    """Gradient sum and weight gather of one step. Full sharding does both layer by layer, except across its groups.

    Each bucket is a collective of its own, which waits for the ring's (or tree's) latency again.
    """
    buckets = buckets_count(stage, local, plan, clock)
    shape = layer_shape(plan)
    wire = wire_bytes(shape, clock.software) * plan.trainable_frac
    ops: list[Collective] = []
    for count, group in data_groups(local, plan):
        if plan.sharding == "zero3":
            ops += _across_groups(count * wire, group, plan)
        elif plan.sharding == "none":
            ops.append(_exchange("gradient sum", "all_reduce", count * wire, group))
        else:
            ops += [_exchange("gradient sum", "reduce_scatter", count * wire, group)] * reductions_count(plan)
            kept = shape.narrow_bytes if clock.software.narrow_weights and shape.narrow_bytes else shape.stream_bytes
            ops.append(_exchange("weight gather", "all_gather", count * kept * plan.trainable_frac, group))
    return [Repeated(op=replace(op, message_bytes=op.message_bytes / buckets), count=buckets) for op in ops]


def _across_groups(size: float, group: RankGroup, plan: TrainingPlan) -> list[Collective]:
    """Sum of the sharded gradients over the groups of hybrid sharding."""
    inside = plan.shard_group_count
    if inside is None or inside >= group.size_count:
        return []
    outer = RankGroup(size_count=group.size_count // inside, stride_count=group.stride_count * inside)
    return [_exchange("gradient sum across groups", "all_reduce", size / inside, outer)]


def _exchange(name: str, kind: CollectiveKind, size: float, group: RankGroup) -> Collective:
    return Collective(name=name, kind=kind, message_bytes=size, group=group)


def _optimizer(local: LocalParameters, plan: TrainingPlan, clock: Clock) -> Works:
    """The optimizer's step on this device's share of the parameters, or on the host's where it is offloaded."""
    ranks, expert_ranks = shard_ranks(plan)
    if plan.sharding == "none":
        ranks = expert_ranks = 1
    shard = local.dense_count / ranks + local.expert_count / expert_ranks
    held = shard if plan.sharding in ("zero2", "zero3") else local.total_count
    shape = layer_shape(plan)
    ops = optimizer_ops(shard * plan.trainable_frac, held * plan.trainable_frac, shape, clock.software)
    if plan.offload_optimizer:
        return _on_host(shard * plan.trainable_frac, plan, clock)
    works = clock.works(ops)
    return {"optimizer": Work("optimizer", *_sums(works))} if works else {}


_FP32_BYTES = 4.0  # src: ieee-754
# Log sigma of an optimizer on the host: half of the logarithm of the range of `host_optimizer` over that of 80 %.
_HOST_SIGMA = 0.32  # src: ren-2021-zero-offload (0.35 to 0.8 of the bandwidth)


def host_optimizer_bytes(shape: LayerShape, software: SoftwareProfile) -> float:
    """Bytes that the host's memory moves for each parameter of an optimizer that lies there [B].

    The gradient as it arrives is read and written in fp32 (where it is not), its norm read, its scaling read and
    written; Adam reads gradient, master and moments, writes master and moments, and the weight as it is computed with.
    Source: Ren et al. 2021 (ZeRO-Offload), section 4, and DeepSpeed's code.
    """
    wire = wire_bytes(shape, software)
    widened = wire + _FP32_BYTES if wire < _FP32_BYTES else 0.0
    scaled = _FP32_BYTES + 2 * _FP32_BYTES
    adam = _FP32_BYTES + 2 * (_FP32_BYTES + software.moment_bytes)
    return widened + scaled + adam + shape.stream_bytes


def _on_host(count: float, plan: TrainingPlan, clock: Clock) -> Works:
    """Offloaded: gradients go up and weights come back over the host link; the host's memory moves the states."""
    chip, host = clock.system.chip, clock.system.host
    shape = layer_shape(plan)
    crossing = count * (wire_bytes(shape, clock.software) + shape.stream_bytes)
    link_s = crossing / chip.need("host_oneway_bytes_per_s", "optimizer in host memory")
    facts = [chip.fact_id("host_oneway_bytes_per_s")]
    host_s = 0.0
    if host.memory_bandwidth_bytes_per_s:
        achieved = host.memory_bandwidth_bytes_per_s * clock.software.host_optimizer_frac
        moved = count * host_optimizer_bytes(shape, clock.software)
        host_s = moved / (achieved / clock.system.devices_per_node_count)
        facts += [f"{clock.system.id}.host.memory_bandwidth", clock.software.fact_id("host_optimizer_frac")]
    return {
        "optimizer": Work("optimizer", host_s, host_s * _HOST_SIGMA, 0.0, "", tuple(facts)),
        "host transfers": Work("host transfers", link_s, 0.0, 0.0, "", tuple(facts[:1])),
    }


def _tied(model: Transformer, stage: Stage, plan: TrainingPlan, clock: Clock) -> list[Repeated]:
    """Tied tables on the two ends of a pipeline are summed with each other."""
    if not model.tied_embeddings or plan.pipeline_count == 1 or not (stage.embedding or stage.head):
        return []
    wire = wire_bytes(layer_shape(plan), clock.software)
    size = model.vocab_count * model.hidden_count / plan.tensor_count * wire
    ends = RankGroup(size_count=2, stride_count=plan.devices_count - plan.devices_count // plan.pipeline_count)
    return [Repeated(op=_exchange("gradient of tied tables", "all_reduce", size, ends))]


def _sums(works: Works) -> tuple[float, float, float, str, tuple[str, ...]]:
    """Time, doubt, kernels, formula and facts of all works together."""
    items = list(works.values())
    uses = tuple(dict.fromkeys(fact for work in items for fact in work.uses))
    return (
        total_s(works),
        sum(work.doubt_s for work in items),
        sum(work.kernels_count for work in items),
        items[0].model,
        uses,
    )
