"""Forward, recomputation and backward of one micro-batch on one pipeline stage, with what hides behind what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ridgeline.specs import Layer, RankGroup, SoftwareProfile, TrainingPlan, Transformer, bytes_per_element
from ridgeline.training.clock import Clock, Work, Works, add, merged, total_s
from ridgeline.training.host import add_transfers, layer_transfers_s, offloads_layers
from ridgeline.training.schedule import layerwise_exposed_s, pipelined_exposed_s, ring_exposed_s, slowest_excess_frac
from ridgeline.workload.layers import LayerOps, training_layer_ops
from ridgeline.workload.memory import layer_parameters, shard_ranks
from ridgeline.workload.ops import AttentionPrefill, Collective, CollectiveKind, Gemm, GroupedGemm, Repeated
from ridgeline.workload.stages import LayerShare, Stage, cross_tokens, stack_tokens
from ridgeline.workload.training_ends import ahead_ops, embedding_ops, head_ops
from ridgeline.workload.training_shapes import LayerShape, layer_shape
from ridgeline.workload.training_streams import wire_bytes

_PRODUCTS = ("matrix products", "expert products")
_CLOCKED = (*_PRODUCTS, "attention")


@dataclass(frozen=True, slots=True)
class Phases:
    """Works of one micro-batch; their totals are times with all overlap taken off."""

    forward: Works
    recompute: Works
    backward: Works

    @property
    def forward_s(self) -> float:
        """Time of the forward pass."""
        return total_s(self.forward)

    @property
    def backward_s(self) -> float:
        """Time of the backward pass, what is computed again included."""
        return total_s(self.recompute) + total_s(self.backward)

    @property
    def total_s(self) -> float:
        """Time of both passes."""
        return self.forward_s + self.backward_s

    def scaled(self, factor: float) -> Phases:
        """`factor` times the same phases."""
        return Phases(*({k: w.scaled(factor) for k, w in part.items()} for part in self._parts))

    @property
    def _parts(self) -> tuple[Works, Works, Works]:
        return self.forward, self.recompute, self.backward


def joined(parts: Iterable[Phases]) -> Phases:
    """Several phases in a row as one."""
    items = list(parts)
    return Phases(
        merged([item.forward for item in items]),
        merged([item.recompute for item in items]),
        merged([item.backward for item in items]),
    )


def stage_phases(model: Transformer, stage: Stage, plan: TrainingPlan, clock: Clock) -> Phases:
    """One micro-batch on one stage: its layers, and embedding or head where it has them."""
    shape = layer_shape(plan)
    ranks = shard_ranks(plan) if plan.sharding == "zero3" else (1, 1)
    held = tuple((id(share.layer), share.count) for share in stage.shares)
    chosen = (plan.recompute, plan.recompute_layers_frac, plan.tensor_overlap)
    moved = (plan.offload_weights, plan.offload_activations)
    key = (held, stage.embedding, stage.head, shape, chosen, moved, ranks, plan.devices_count, id(model))
    found = clock.stages.get(key)
    if found is None:  # the model is kept beside the answer, so that its identity is not used again
        found = clock.stages[key] = (_stage_phases(model, stage, plan, clock), model)
    return found[0]


def _stage_phases(model: Transformer, stage: Stage, plan: TrainingPlan, clock: Clock) -> Phases:
    parts = [share_phases(model, share, plan, clock) for share in stage.shares]
    return joined([*parts, *ends_phases(model, stage, plan, clock)])


def ends_phases(model: Transformer, stage: Stage, plan: TrainingPlan, clock: Clock) -> list[Phases]:
    """One micro-batch through the embedding and through the head, where `stage` has them."""
    shape = layer_shape(plan)
    found = []
    if stage.embedding and model.vocab_count:
        found.append(_end_phases(embedding_ops(model, shape, clock.software), plan, clock))
    if stage.head and model.head is not None:
        head = _end_phases(head_ops(model, shape, clock.software), plan, clock)
        ahead = plan.ahead_count if model.ahead else 0
        found.append(head.scaled(1.0 + ahead))
        if ahead:
            found.append(_end_phases(ahead_ops(model, shape, clock.software), plan, clock).scaled(float(ahead)))
    return found


def share_phases(model: Transformer, share: LayerShare, plan: TrainingPlan, clock: Clock) -> Phases:
    """The equal layers of one stage."""
    tokens = stack_tokens(model, share.stack, plan.sequence_tokens)
    shape = layer_shape(plan, tokens, cross_tokens(model, plan.sequence_tokens), clock.domain_count)
    one = layer_phases(share.layer, share.hidden, shape, plan, clock)
    whole = one.scaled(share.count)
    if plan.sharding == "zero3":
        _add_full_sharding(whole, one, share, shape, plan, clock)
    if offloads_layers(plan):
        forward_s, backward_s = layer_transfers_s(share.layer, share.hidden, shape, plan, clock)
        add_transfers(whole.forward, forward_s, one.forward_s, share.count, clock)
        add_transfers(whole.backward, backward_s, one.backward_s, share.count, clock)
    return whole


def layer_phases(layer: Layer, hidden: int, shape: LayerShape, plan: TrainingPlan, clock: Clock) -> Phases:
    """One layer, remembered by what decides it."""
    chosen = (plan.recompute, plan.recompute_layers_frac, plan.tensor_overlap)
    key = (id(layer), hidden, shape, chosen, plan.devices_count)
    found = clock.layers.get(key)
    if found is None:
        ops = training_layer_ops(layer, hidden, shape, clock.software)
        again = {"none": (), "selective": ops.selective_recompute, "full": ops.full_recompute}[plan.recompute]
        phases = Phases(
            _phase(ops.forward, plan, clock, backward=False),
            _phase(again, plan, clock, backward=False, times=plan.recompute_layers_frac),
            _phase(ops.backward, plan, clock, backward=True),
        )
        if layer.mixers:
            _overlap_experts(phases, shape, plan, clock)
        found = clock.layers[key] = (phases, layer)
    return found[0]


def _overlap_experts(phases: Phases, shape: LayerShape, plan: TrainingPlan, clock: Clock) -> None:
    """Exchanges of tokens behind the other pass of another micro-batch, where the software runs two at a time.

    With a pipeline that takes virtual stages, whose schedule alternates passes; a layer that is made again as a whole
    cannot take part, nor blocks that hold experts alone (hybrid stacks).
    """
    wanted = clock.software.expert_overlap
    leaves = shape.expert_count * shape.expert_tensor_count > shape.domain_count
    pairs = plan.micro_batches_count > 1 and (plan.pipeline_count == 1 or plan.interleave_count > 1)
    if wanted == "none" or (wanted == "outside" and not leaves) or not pairs or plan.recompute == "full":
        return
    busy_s = {id(part): total_s(part) - total_s(part, "expert exchange") for part in (phases.forward, phases.backward)}
    for part, other in ((phases.forward, phases.backward), (phases.backward, phases.forward)):
        hidden_s = hide(part, "expert exchange", _whole, busy_s[id(other)], 1.0)
        _extra(part, "slowed by exchange", hidden_s * clock.slowdown_frac, clock.software, "overlap_slowdown_frac")


def _end_phases(ops: LayerOps, plan: TrainingPlan, clock: Clock) -> Phases:
    return Phases(
        _phase(ops.forward, plan, clock, backward=False), {}, _phase(ops.backward, plan, clock, backward=True)
    )


def _phase(ops: Iterable[Repeated], plan: TrainingPlan, clock: Clock, *, backward: bool, times: float = 1.0) -> Works:
    """One pass with its overlaps, slow-downs and launches as lines of their own."""
    ops = tuple(ops)
    works = clock.works(ops, times)
    software = clock.software
    products_s = total_s(works, *_PRODUCTS)
    _add_conditions(works, products_s, plan, clock)
    shared_s = 0.0
    window_s = products_s / 2  # gathers run with one half of the products, scatters with the other
    overlap = plan.tensor_overlap or software.tensor_overlap
    exposed = {"pipelined": pipelined_exposed_s, "ring": ring_exposed_s}.get(overlap)
    if exposed is not None:
        shared_s += hide(works, "tensor exchange", exposed, window_s, plan.tensor_count)
    if backward and overlap != "none":
        shared_s += hide(works, "tensor exchange late", _whole, window_s, 1.0)
    elif exposed is not None:
        shared_s += hide(works, "tensor exchange late", exposed, window_s, plan.tensor_count)
    if overlap == "ring" and shared_s > 0:
        _add_pieces(works, ops, times, plan.tensor_count, clock)
    if software.context_overlap:
        attention_s = total_s(works, "attention")
        shared_s += hide(works, "context exchange", pipelined_exposed_s, attention_s, plan.context_count)
    if shared_s > 0 and clock.slowdown_frac > 0:
        _extra(works, "slowed by exchange", shared_s * clock.slowdown_frac, software, "overlap_slowdown_frac")
    _add_launches(works, ops, times, clock)
    return works


def _add_pieces(works: Works, ops: Iterable[Repeated], times: float, pieces_count: int, clock: Clock) -> None:
    """What products lose when they run in as many pieces as a ring passes: all but those of weight gradients."""
    lost_s = kernels = 0.0
    for item in ops:
        if isinstance(item.op, Gemm) and not item.op.name.endswith("weight gradient"):
            piece = clock.time(replace(item.op, m=item.op.m / pieces_count))
            count = item.count * times
            lost_s += count * (pieces_count * piece.time_s - clock.time(item.op).time_s)
            kernels += count * (pieces_count - 1)
    add(works, Work("products in pieces", max(0.0, lost_s), 0.0, kernels, "ring-overlap", ()))


def _whole(exchange_s: float, window_s: float, pieces_count: float) -> float:
    """What is left of an exchange that runs beside work of `window_s` in one piece."""
    return max(0.0, exchange_s - window_s)


def _add_conditions(works: Works, products_s: float, plan: TrainingPlan, clock: Clock) -> None:
    """What a benchmark of one chip does not have: real values, and the slowest of many chips."""
    software, chip = clock.software, clock.system.chip
    real = software.real_data_frac.get(chip.architecture, 1.0)
    if real < 1:
        _extra(works, "power of real values", products_s * (1.0 / real - 1.0), software, "real_data_frac")
    excess = slowest_excess_frac(clock.spread_sigma_frac, plan.devices_count)
    if excess > 0:
        _extra(works, "slowest device", total_s(works, *_CLOCKED) * excess, software, "spread_sigma_frac")


def _routed(item: Repeated) -> bool:
    """Whether the shape of an operation follows from the routing of tokens, so that no graph can hold it."""
    return isinstance(item.op, GroupedGemm) or item.op.name.startswith(("expert", "permutation", "routing"))


def _add_launches(works: Works, ops: tuple[Repeated, ...], times: float, clock: Clock) -> None:
    """The host must issue every kernel; what exceeds the device's own time is waiting.

    A captured graph takes that off, but not off the part that routing shapes: there the host learns the counts of
    tokens first and issues the experts' kernels while the device waits for them. Scores of the router are of fixed
    shape, so a graph holds them.
    """
    software = clock.software
    launch_s = software.host_launch_s
    if launch_s <= 0:
        return
    each_s = software.routed_launch_s or launch_s
    part: Works = {}
    if not _whole_graph(ops, clock):
        kept = [item for item in ops if _routed(item) and not (software.graphs and item.op.name.startswith("routing"))]
        part = clock.works(kept, times)
    issue_s = _kernels_count(part) * each_s
    waits_s = issue_s - total_s(part)
    if not software.graphs:
        rest_s = (_kernels_count(works) - _kernels_count(part)) * launch_s
        waits_s = max(waits_s, rest_s + issue_s - total_s(works))
    _extra(works, "host launches", waits_s, software, "routed_launch_s" if part and waits_s > 0 else "host_launch_s")


def _kernels_count(works: Works) -> float:
    return sum(work.kernels_count for work in works.values())


def _whole_graph(ops: tuple[Repeated, ...], clock: Clock) -> bool:
    """Whether one graph holds the experts too: they work in a block-scaled format that the chip multiplies, in a layer
    that has attention as well (blocks of one kind, as in hybrid stacks, are captured one by one)."""
    if not clock.software.whole_graphs or not clock.system.chip.has_peak("nvfp4"):
        return False
    products = [item.op for item in ops if isinstance(item.op, GroupedGemm)]
    narrow = all(bytes_per_element(op.activation_precision) < bytes_per_element("bf16") for op in products)
    return narrow and any(isinstance(item.op, AttentionPrefill) for item in ops)


def _extra(works: Works, name: str, time_s: float, software: SoftwareProfile, field: str) -> None:
    if time_s > 0:
        add(works, Work(name, time_s, 0.0, 0.0, "", (software.fact_id(field),)))


def hide(works: Works, name: str, exposed: object, window_s: float, pieces: float) -> float:
    """Take off what of `name` hides behind `window_s`, as a negative line; returns the hidden time."""
    work = works.get(name)
    if work is None or work.time_s <= 0 or not callable(exposed):
        return 0.0
    hidden_s = work.time_s - float(exposed(work.time_s, window_s, pieces))
    if hidden_s <= 0:
        return 0.0
    share = hidden_s / work.time_s
    add(works, Work(f"{name} hidden", -hidden_s, -share * work.doubt_s, 0.0, "", ()))
    return hidden_s


def _add_full_sharding(
    whole: Phases, one: Phases, share: LayerShare, shape: LayerShape, plan: TrainingPlan, clock: Clock
) -> None:
    """Gathers of weights before each pass of each layer, and the scatter of its gradient, behind the neighbours."""
    gather, scatter = sharding_exchanges(share.layer, shape, plan, clock)
    software, count = clock.software, share.count
    ahead = software.prefetch_layers_count
    gather_s, scatter_s = total_s(clock.works(gather)), total_s(clock.works(scatter))
    forward_s = layerwise_exposed_s(gather_s, one.forward_s, count, ahead)
    if software.prefetch_backward:
        backward_s = layerwise_exposed_s(gather_s + scatter_s, one.backward_s, count, ahead)
    else:  # a layer's weights are asked for when its gradient is due; the scatter runs behind the next layer
        backward_s = gather_s * count + layerwise_exposed_s(scatter_s, one.backward_s, count, 1)
    for works, ops, exposed_s in (
        (whole.forward, gather, forward_s),
        (whole.backward, (*gather, *scatter), backward_s),
    ):
        for work in clock.works(ops, count).values():
            add(works, work)
        hidden_s = hide(works, "sharding exchange", lambda c, w, n: w, exposed_s, 1.0)
        _extra(works, "slowed by exchange", hidden_s * clock.slowdown_frac, software, "overlap_slowdown_frac")


def sharding_exchanges(
    layer: Layer, shape: LayerShape, plan: TrainingPlan, clock: Clock
) -> tuple[tuple[Repeated, ...], tuple[Repeated, ...]]:
    """Gather of one layer's weights and scatter of its gradients over the ranks that shard them.

    Where whole tensors have an owner, it broadcasts them and they are reduced to it: a chain of ranks passes the
    message on at the pace of one link between the halves of the group (Rajbhandari et al. 2021, section 6.1).
    """
    dense, expert = layer_parameters(layer, shape)
    ranks, expert_ranks = shard_ranks(plan)
    reduce_bytes = wire_bytes(shape, clock.software)
    groups = (
        (dense, RankGroup(size_count=ranks, stride_count=plan.tensor_count)),
        (expert, RankGroup(size_count=expert_ranks, stride_count=plan.expert_count * shape.expert_tensor_count)),
    )
    gathers: list[Repeated] = []
    scatters: list[Repeated] = []
    for count, group in groups:
        if count > 0 and group.size_count > 1:
            gather, scatter = _sharding_kinds(clock.software)
            between = _halves(group) if gather == "send" else group
            gathers.append(_exchange(gather, count * shape.stream_bytes, between))
            scatters.append(_exchange(scatter, count * reduce_bytes * shape.trainable_frac, between))
    return tuple(gathers), tuple(scatters)


def _sharding_kinds(software: SoftwareProfile) -> tuple[CollectiveKind, CollectiveKind]:
    """How weights are brought together and gradients summed: in shards by all, or by the owner of each tensor."""
    return ("send", "send") if software.owner_broadcast else ("all_gather", "reduce_scatter")


def _halves(group: RankGroup) -> RankGroup:
    """Two ranks in different halves of a group: what lies between them is its widest link."""
    return RankGroup(size_count=2, stride_count=max(1, group.size_count // 2) * group.stride_count)


def _exchange(kind: CollectiveKind, size: float, group: RankGroup) -> Repeated:
    return Repeated(op=Collective(name=f"sharding {kind}", kind=kind, message_bytes=size, group=group))
