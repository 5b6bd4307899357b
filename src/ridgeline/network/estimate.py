"""How long one collective takes on one machine: the best algorithm over the levels that its group spans."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.errors import BadPlan
from ridgeline.network.collectives import ring_sent_frac, saturating_transfer_s, tree_busiest_frac
from ridgeline.network.laws import law_for
from ridgeline.network.topology import Tier, tiers
from ridgeline.specs import Calibration, Law, RankGroup, System

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
_ROUTES_LIMIT_COUNT = 8192  # src: rl-numerics
_TIER_SHARPNESS = 4.0  # src: rl-collectives-fit


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """Time of one collective and what decides it.

    `bandwidth_s` is the part that the wire takes at its full achieved rate, `latency_s` the rest. `algorithm` names
    the chosen one, `level` the level that takes longest, `sigma` the log standard deviation of the law's residuals,
    `model` the id of the formula, `uses` the facts that it leans on.
    """

    time_s: float
    bandwidth_s: float
    latency_s: float
    algorithm: str
    level: str
    sigma: float
    model: str
    uses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stage:
    """One level of one algorithm under one protocol: seconds a byte of the message, and the size law."""

    level: str
    sent_frac: float
    oneway_bytes_per_s: float
    half_bytes: float
    half_power: float


@dataclass(frozen=True, slots=True)
class _Route:
    """One algorithm under one protocol on one group: fixed time and the stages that the message passes."""

    algorithm: str
    model: str
    fixed_s: float
    stages: tuple[_Stage, ...]
    sigma: float
    uses: tuple[str, ...]


_NOTHING = CollectiveTime(
    time_s=0.0, bandwidth_s=0.0, latency_s=0.0, algorithm="none", level="", sigma=0.0, model="", uses=()
)
# Routes of (kind, group, machine, calibration). The records are kept beside their ids, so that an id is never reused.
_ROUTES: dict[tuple[str, int, int, int, int], tuple[System, Calibration, tuple[tuple[_Route, _Route], ...], float]] = {}


def collective_time(
    kind: str, message_bytes: float, group: RankGroup, system: System, calibration: Calibration
) -> CollectiveTime:
    """Time of one collective of `message_bytes` [B] among `group` on `system`.

    `kind`: all_reduce, all_gather, reduce_scatter, all_to_all or send (to the neighbour at the group's stride, over
    the widest level that the group spans). Sizes are those of nccl-tests (see `workload.ops.Collective`). A group of
    one, or nothing to send, costs nothing. The cheapest of the algorithms that fit the levels is taken, each as the
    smooth minimum of a low-latency and a high-bandwidth protocol. Other groups of the same stride run at the same
    time and keep their share of the links.
    """
    if group.size_count == 1 or message_bytes <= 0:
        return _NOTHING
    key = (kind, group.size_count, group.stride_count, id(system), id(calibration))
    entry = _ROUTES.get(key)
    if entry is None:
        entry = _remember(key, kind, group, system, calibration)
    best_s = math.inf
    best: _Route | None = None
    sharpness = entry[3]
    for low, high in entry[2]:
        low_s = _route_s(low, message_bytes)
        high_s = _route_s(high, message_bytes)
        if low_s < high_s:
            time_s, chosen = low_s / (1 + (low_s / high_s) ** sharpness) ** (1 / sharpness), low
        else:
            time_s, chosen = high_s / (1 + (high_s / low_s) ** sharpness) ** (1 / sharpness), high
        if time_s < best_s:
            best_s, best = time_s, chosen
    if best is None:
        raise BadPlan(f"no algorithm for {kind} on system {system.id!r}")
    wire_s, level = _wire(best, message_bytes)
    wire_s = min(wire_s, best_s)
    return CollectiveTime(
        time_s=best_s,
        bandwidth_s=wire_s,
        latency_s=best_s - wire_s,
        algorithm=best.algorithm,
        level=level,
        sigma=best.sigma,
        model=best.model,
        uses=best.uses,
    )


def _route_s(route: _Route, message_bytes: float) -> float:
    """Fixed time and the stages in a pipeline: the longest, smoothly."""
    longest_s = 0.0
    powered = 0.0
    for stage in route.stages:
        sent_bytes = stage.sent_frac * message_bytes
        if stage.half_bytes > 0.0:
            stage_s = saturating_transfer_s(sent_bytes, stage.oneway_bytes_per_s, stage.half_bytes, stage.half_power)
        else:
            stage_s = sent_bytes / stage.oneway_bytes_per_s
        if longest_s == 0.0:
            longest_s = stage_s
        else:
            high, low = (stage_s, longest_s) if stage_s > longest_s else (longest_s, stage_s)
            powered = (low / high) ** _TIER_SHARPNESS
            longest_s = high * (1 + powered) ** (1 / _TIER_SHARPNESS)
    return route.fixed_s + longest_s


def _wire(route: _Route, message_bytes: float) -> tuple[float, str]:
    """The longest stage at full rate, and its level."""
    wire_s, level = 0.0, ""
    for stage in route.stages:
        stage_s = stage.sent_frac * message_bytes / stage.oneway_bytes_per_s
        if stage_s > wire_s:
            wire_s, level = stage_s, stage.level
    return wire_s, level


def _remember(
    key: tuple[str, int, int, int, int], kind: str, group: RankGroup, system: System, calibration: Calibration
) -> tuple[System, Calibration, tuple[tuple[_Route, _Route], ...], float]:
    if kind not in KINDS:
        raise BadPlan(f"unknown collective {kind!r}; known: {', '.join(KINDS)}")
    spanned = tiers(group, system)
    laws = tuple(law_for(tier.level, kind, calibration) for tier in spanned)
    pairs = tuple(
        (_route(plan, spanned, laws, "low"), _route(plan, spanned, laws, "high"))
        for plan in _algorithms(kind, spanned, laws)
    )
    entry = (system, calibration, pairs, laws[-1].parameters["sharpness"])
    if len(_ROUTES) >= _ROUTES_LIMIT_COUNT:
        _ROUTES.clear()
    _ROUTES[key] = entry
    return entry


@dataclass(frozen=True, slots=True)
class _Plan:
    """An algorithm on the tiers: steps and share of the message sent per rank at each, and which bandwidth it sees."""

    algorithm: str
    model: str
    steps: tuple[float, ...]
    sent: tuple[float, ...]
    bandwidth: str = "oneway"
    in_switch: bool = False


def _algorithms(kind: str, spanned: tuple[Tier, ...], laws: tuple[Law, ...]) -> list[_Plan]:
    """The algorithms that may run a collective of `kind` over the tiers."""
    ranks = math.prod(tier.fan_count for tier in spanned)
    last = len(spanned) - 1
    if kind == "send":
        steps = tuple(0.0 if i < last else spanned[i].hops_count for i in range(last + 1))
        sent = tuple(0.0 if i < last else 1.0 for i in range(last + 1))
        return [_Plan("send", "send", steps, sent, "pair")]
    if kind == "all_to_all":
        sent = tuple((ranks - tier.inner_count) / ranks for tier in spanned)
        return [_Plan("pairwise", "all-to-all", tuple(tier.hops_count for tier in spanned), sent, "shuffle")]
    passes = 2.0 if kind == "all_reduce" else 1.0
    ring = ring_sent_frac(kind, ranks)
    ring_steps = tuple(passes * _ring_edges(tier, ranks, i == last) for i, tier in enumerate(spanned))
    plans = [
        _Plan(
            "ring",
            "ring-all-reduce" if kind == "all_reduce" else "ring-gather",
            ring_steps,
            tuple(ring / tier.inner_count for tier in spanned),
        )
    ]
    if kind == "all_reduce":
        plans += _reductions(spanned, laws, ranks)
    elif last > 0:
        depth = tuple(math.log2(tier.fan_count) if i else tier.fan_count - 1 for i, tier in enumerate(spanned))
        plans.append(_Plan("direct", "direct-gather", depth, tuple(ring / tier.inner_count for tier in spanned)))
    return plans


def _reductions(spanned: tuple[Tier, ...], laws: tuple[Law, ...], ranks: float) -> list[_Plan]:
    """All-reduce by trees and in the switch."""
    tree = tuple(2 * math.log2(tier.fan_count) * tier.hops_count for tier in spanned)
    outer = tuple(tree_busiest_frac(tier.fan_count) / tier.inner_count for tier in spanned[1:])
    first = spanned[0]
    plans = []
    if ranks > 2:
        plans.append(_Plan("tree", "tree-all-reduce", tree, (tree_busiest_frac(first.fan_count), *outer)))
    if first.level.in_switch_reduction and first.fan_count > 1 and "switch_frac" in laws[0].parameters:
        sent = ((first.fan_count + 1) / first.fan_count, *outer)
        name = "in-switch" if not outer else "in-switch-tree"
        plans.append(_Plan(name, "in-switch-all-reduce", (2.0, *tree[1:]), sent, "oneway", True))
    return plans


def _ring_edges(tier: Tier, ranks: float, outermost: bool) -> float:
    """Steps of one round of a ring that cross this tier: all of its edges but the closing one."""
    if tier.hops_count > 1:
        return tier.hops_count
    domains = ranks / tier.inner_count
    edges = domains if outermost else domains - domains / tier.fan_count
    return max(edges - 1, 0) if outermost and tier.inner_count == 1 else edges * (ranks - 1) / ranks


def _route(plan: _Plan, spanned: tuple[Tier, ...], laws: tuple[Law, ...], protocol: str) -> _Route:
    stages = []
    base_s = 0.0
    hops_s = 0.0
    for index, (tier, law) in enumerate(zip(spanned, laws, strict=True)):
        figures = law.parameters
        switched = plan.in_switch and index == 0
        name = "switch" if switched and protocol == "high" else protocol
        base_s = max(base_s, figures[f"{name}_base_s"])
        hops_s += plan.steps[index] * figures[f"{protocol}_hop_s"]
        rate = {
            "oneway": tier.oneway_bytes_per_s,
            "pair": tier.pair_bytes_per_s,
            "shuffle": tier.shuffle_bytes_per_s,
        }[plan.bandwidth]
        sent = plan.sent[index]
        if sent <= 0.0:
            continue
        if index == 0:
            sent += figures["local_frac"] / tier.fan_count
        half = figures["half_bytes"] if protocol == "high" else 0.0
        stages.append(_Stage(tier.level.name, sent, rate * figures[f"{name}_frac"], half, figures["half_power"]))
    worst = max(laws, key=lambda law: law.sigma)
    uses = tuple(dict.fromkeys(fact for tier, law in zip(spanned, laws, strict=True) for fact in _facts(tier, law)))
    return _Route(plan.algorithm, plan.model, base_s + hops_s, tuple(stages), worst.sigma, uses)


def _facts(tier: Tier, law: Law) -> tuple[str, ...]:
    return (law.fact, *(fact for name, fact in tier.level.facts.items() if name in ("oneway_bytes_per_s", "latency_s")))
