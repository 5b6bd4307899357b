"""How long one collective takes on one machine: the best algorithm over the levels that its group spans."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ridgeline.errors import BadPlan
from ridgeline.network.algorithms import Algorithm, algorithms, peer_algorithms
from ridgeline.network.collectives import protocol_switch_s, saturating_transfer_s, slowest_tier_s
from ridgeline.network.laws import law_for, peer_law
from ridgeline.network.topology import Tier, tiers
from ridgeline.specs import Calibration, Law, RankGroup, System

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "token_exchange", "send")
_ROUTES_LIMIT_COUNT = 8192  # src: ridgeline-collective-laws
_TIER_SHARPNESS = 12.0  # src: ridgeline-collective-laws
_RATES = {"oneway": "oneway_bytes_per_s", "pair": "pair_bytes_per_s", "shuffle": "shuffle_bytes_per_s"}


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
_Key = tuple[str, int, int, int, int, str]
_Entry = tuple[System, Calibration, tuple[tuple[_Route, _Route, float], ...]]
# Routes of (kind, group, machine, calibration). The records are kept beside their ids, so that an id is never reused.
_ROUTES: dict[_Key, _Entry] = {}


def collective_time(
    kind: str,
    message_bytes: float,
    group: RankGroup,
    system: System,
    calibration: Calibration,
    *,
    peer_kernels: str = "",
) -> CollectiveTime:
    """Time of one collective of `message_bytes` [B] among `group` on `system`.

    `kind`: all_reduce, all_gather, reduce_scatter, all_to_all, token_exchange (an all-to-all in one kernel that writes
    to all peers at once, as libraries for expert parallelism do) or send (to the neighbour at the group's stride, over
    the widest level that the group spans). Sizes are those of nccl-tests (see `workload.ops.Collective`). A group of
    one, or nothing to send, costs nothing. The cheapest of the algorithms that fit the levels is taken, each as the
    smooth minimum of a low-latency and a high-bandwidth protocol. Other groups of the same stride run at the same
    time and keep their share of the links. `peer_kernels` names an inference engine ("vllm", "trtllm", "sglang", or
    "any") whose one-shot and two-shot all-reduce over peer memory join the candidates, where they were measured.
    Times are those of the kernel, without the host's launch.
    """
    if group.size_count == 1 or message_bytes <= 0:
        return _NOTHING
    entry = _entry(kind, group, system, calibration, peer_kernels)
    best_s = math.inf
    best: _Route | None = None
    for low, high, sharpness in entry[2]:
        low_s = _route_s(low, message_bytes)
        high_s = _route_s(high, message_bytes)
        quick_s, slow_s, chosen = (low_s, high_s, low) if low_s < high_s else (high_s, low_s, high)
        time_s = quick_s / (1 + (quick_s / slow_s) ** sharpness) ** (1 / sharpness)
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


def collective_times_s(
    kind: str,
    messages_bytes: npt.NDArray[np.float64],
    group: RankGroup,
    system: System,
    calibration: Calibration,
) -> npt.NDArray[np.float64]:
    """`collective_time(...).time_s` for an array of message sizes [B], through the array kernels.

    >>> import numpy as np
    >>> from ridgeline.specs import Chip, NetworkLevel
    >>> link = NetworkLevel(name="nvlink", kind="switch", link="nvlink4", size_count=8,
    ...                     oneway_bytes_per_s=450e9, latency_s=1e-6)
    >>> node = System(id="x", name="", chip=Chip(id="c"), devices_per_node_count=8, levels=(link,))
    >>> sizes = np.array([0.0, 1e6])
    >>> many = collective_times_s("all_gather", sizes, RankGroup(size_count=8), node, Calibration(chip="c"))
    >>> one = collective_time("all_gather", 1e6, RankGroup(size_count=8), node, Calibration(chip="c"))
    >>> bool(many[0] == 0.0), bool(abs(many[1] / one.time_s - 1) < 1e-12)
    (True, True)
    """
    messages = np.asarray(messages_bytes, dtype=np.float64)
    if group.size_count == 1:
        return np.zeros_like(messages)
    sizes = np.maximum(messages, 1.0)
    best = np.full_like(sizes, np.inf)
    for low, high, sharpness in _entry(kind, group, system, calibration, "")[2]:
        times = protocol_switch_s(_route_array(low, sizes), _route_array(high, sizes), sharpness)
        best = np.minimum(best, times)
    return np.where(messages > 0, best, 0.0)


def _route_array(route: _Route, sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    longest: npt.NDArray[np.float64] | None = None
    for stage in route.stages:
        sent = stage.sent_frac * sizes
        stage_s = sent / stage.oneway_bytes_per_s
        if stage.half_bytes > 0.0:
            stage_s = saturating_transfer_s(sent, stage.oneway_bytes_per_s, stage.half_bytes, stage.half_power)
        longest = stage_s if longest is None else slowest_tier_s(longest, stage_s, _TIER_SHARPNESS)
    return route.fixed_s + (np.zeros_like(sizes) if longest is None else longest)


def _entry(kind: str, group: RankGroup, system: System, calibration: Calibration, peer_kernels: str) -> _Entry:
    """The routes of one group, made once."""
    key = (kind, group.size_count, group.stride_count, id(system), id(calibration), peer_kernels)
    found = _ROUTES.get(key)
    return found if found is not None else _remember(key, kind, group, system, calibration)


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


def _remember(key: _Key, kind: str, group: RankGroup, system: System, calibration: Calibration) -> _Entry:
    if kind not in KINDS:
        raise BadPlan(f"unknown collective {kind!r}; known: {', '.join(KINDS)}")
    spanned = tiers(group, system)
    laws = tuple(law_for(tier.level, kind, calibration) for tier in spanned)
    pairs = []
    for plan in algorithms(kind, spanned):
        low = plan.low or plan
        sharpness = min(law.parameters["sharpness"] for law in laws)
        pairs.append((_route(low, spanned, laws, "low"), _route(plan, spanned, laws, "high"), sharpness))
    if key[-1] and kind == "all_reduce" and len(spanned) == 1:
        law = peer_law(spanned[0].level, calibration, key[-1])
        if law is not None:
            one, two = peer_algorithms(spanned[0])
            pair = (_route(one, spanned, (law,), "low"), _route(two, spanned, (law,), "high"))
            pairs.append((*pair, law.parameters["sharpness"]))
    entry = (system, calibration, tuple(pairs))
    if len(_ROUTES) >= _ROUTES_LIMIT_COUNT:
        _ROUTES.clear()
    _ROUTES[key] = entry
    return entry


def _route(plan: Algorithm, spanned: tuple[Tier, ...], laws: tuple[Law, ...], protocol: str) -> _Route:
    """The coefficients of one algorithm under one protocol: fixed time, and the stages that grow with the message."""
    stages = []
    base_s = 0.0
    hops_s = 0.0
    for index, (tier, law) in enumerate(zip(spanned, laws, strict=True)):
        figures = law.parameters
        switched = plan.in_switch and index == 0
        name = "switch" if switched else protocol
        base_s = max(base_s, figures[f"{name}_base_s"])
        hops_s += plan.steps[index] * figures[f"{protocol}_hop_s"]
        sent_frac = plan.sent[index]
        if sent_frac <= 0.0:
            continue
        rate_frac = figures[f"{name}_frac"]
        if switched:
            rate_frac *= tier.fan_count ** -figures["switch_power"]
        elif index == 0:
            sent_frac += figures["local_frac"] / tier.fan_count
        half_bytes = figures["half_bytes"] if protocol == "high" else 0.0
        rate = rate_frac * getattr(tier, _RATES[plan.bandwidth])
        stages.append(_Stage(tier.level.name, sent_frac, rate, half_bytes, figures["half_power"]))
    worst = max(laws, key=lambda law: law.sigma)
    uses = tuple(dict.fromkeys(fact for tier, law in zip(spanned, laws, strict=True) for fact in _facts(tier, law)))
    return _Route(plan.algorithm, plan.model, base_s + hops_s, tuple(stages), worst.sigma, uses)


def _facts(tier: Tier, law: Law) -> tuple[str, ...]:
    return (law.fact, *(fact for name, fact in tier.level.facts.items() if name in ("oneway_bytes_per_s", "latency_s")))
