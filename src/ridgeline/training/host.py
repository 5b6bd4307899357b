"""What a layout keeps in the memory of the host, and what moving it over the host link costs a pass."""

from __future__ import annotations

from ridgeline.specs import Layer, System, TrainingPlan
from ridgeline.training.clock import Clock, Work, Works, add
from ridgeline.training.schedule import layerwise_exposed_s
from ridgeline.workload.memory import KeptBytes, LocalParameters, kept_by_layer, layer_parameters, shard_ranks
from ridgeline.workload.stages import Stage
from ridgeline.workload.training_shapes import LayerShape, layer_shape

TRANSFERS = "host transfers"
# Layers whose weights or activations are on the device at once: the one at work and the one on its way.
RESIDENT_LAYERS = 2.0


def host_oneway_bytes_per_s(system: System) -> float:
    """What one device moves to or from its host in one direction, all devices of a node at once [B/s].

    The link of the device, or its share of the memory of the host where that is less. Published rates: pinned buffers
    and no other traffic are assumed. Source: Rajbhandari et al. 2021 (ZeRO-Infinity), section 4.
    """
    rate = system.chip.need("host_oneway_bytes_per_s", "what is offloaded crosses the host link")
    memory = system.host.memory_bandwidth_bytes_per_s
    return rate if memory is None else min(rate, memory / system.devices_per_node_count)


def host_memory_bytes(system: System) -> float | None:
    """A device's share of the memory of its host [B]; None where it is not known."""
    whole = system.host.memory_bytes
    return None if whole is None else whole / system.devices_per_node_count


def kept_share(kept: KeptBytes, plan: TrainingPlan) -> float:
    """Bytes that one layer keeps of one micro-batch under the recompute of `plan`."""
    part = plan.recompute_layers_frac if plan.recompute != "none" else 0.0
    again = kept.selective if plan.recompute == "selective" else kept.entry
    return part * again + (1.0 - part) * kept.whole


def layer_transfers_s(
    layer: Layer, hidden: int, shape: LayerShape, plan: TrainingPlan, clock: Clock
) -> tuple[float, float]:
    """Time on the host link of one layer and one micro-batch: (forward, backward).

    Forward: weights come down while activations go up (the link is duplex). Backward: both come down. Weights that
    full sharding spreads cross in shards.
    """
    weights = activations = 0.0
    if plan.offload_weights:
        ranks, expert_ranks = shard_ranks(plan) if plan.sharding == "zero3" else (1, 1)
        dense, expert = layer_parameters(layer, shape)
        weights = (dense / ranks + expert / expert_ranks) * shape.stream_bytes
    if plan.offload_activations:
        activations = kept_share(kept_by_layer(layer, hidden, shape, clock.software), plan)
    rate = host_oneway_bytes_per_s(clock.system)
    return max(weights, activations) / rate, (weights + activations) / rate


def add_transfers(works: Works, transfer_s: float, pass_s: float, layers_count: float, clock: Clock) -> None:
    """Add what `layers_count` layers move, `transfer_s` each, behind their neighbours' passes of `pass_s`.

    The first layer waits for its own; copy engines move the data, so the work that hides them is not slowed.
    """
    if transfer_s <= 0:
        return
    whole_s = transfer_s * layers_count
    exposed_s = layerwise_exposed_s(transfer_s, pass_s, layers_count, 1)
    uses = (clock.system.chip.fact_id("host_oneway_bytes_per_s"),)
    add(works, Work(TRANSFERS, whole_s, 0.0, 0.0, "layerwise-overlap", uses))
    if whole_s > exposed_s:
        add(works, Work(f"{TRANSFERS} hidden", exposed_s - whole_s, 0.0, 0.0, "", ()))


def resident_frac(stage: Stage, plan: TrainingPlan, local: LocalParameters) -> float:
    """Share of a stage's weights that stays on the device: what surrounds the layers, and two layers of them."""
    if not plan.offload_weights or local.total_count <= 0:
        return 1.0
    layers = layers_parameters_count(stage, plan)
    kept = min(layers, RESIDENT_LAYERS * local.widest_layer_count)
    return (local.total_count - layers + kept) / local.total_count


def layers_parameters_count(stage: Stage, plan: TrainingPlan) -> float:
    """Parameters of the layers of a stage on one device, without what surrounds them."""
    shape = layer_shape(plan)
    return sum(share.stored_count * sum(layer_parameters(share.layer, shape)) for share in stage.shares)


def held_activations(alive_frac: float, kept: float, largest: float, *, offloaded: bool) -> float:
    """Bytes of kept activations on the device: all that are alive, or those of two layers where they are offloaded.

    `kept`: of one micro-batch through all layers of the stage; `largest`: of its largest layer.

    >>> held_activations(4.0, 100.0, 10.0, offloaded=False), held_activations(4.0, 100.0, 10.0, offloaded=True)
    (400.0, 20.0)
    """
    alive = alive_frac * kept
    return min(alive, RESIDENT_LAYERS * largest) if offloaded else alive


def offloads_layers(plan: TrainingPlan) -> bool:
    """Whether anything crosses the host link in each pass."""
    return plan.offload_weights or plan.offload_activations
