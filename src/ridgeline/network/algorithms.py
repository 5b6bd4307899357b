"""The algorithms that may run a collective over the levels that a group spans: steps and bytes sent at each level."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ridgeline.network.collectives import ring_sent_frac, tree_busiest_frac
from ridgeline.network.topology import Tier

# Libraries build trees between nodes; inside one switch of up to so many devices a ring is as good.
_TREE_FROM_COUNT = 9  # src: ridgeline-collective-laws
_BETWEEN_NODES = ("fat-tree", "ethernet")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm on the tiers of a group, inner to outer.

    `steps` are the sequential steps that cross each tier, `sent` what the busiest rank sends there as a share of the
    message, `bandwidth` which rate of a tier it sees ("oneway", "pair", "shuffle"). `in_switch`: the innermost tier
    reduces in its switch. `low` is what runs in its place under the low-latency protocol, where it has none.
    """

    algorithm: str
    model: str
    steps: tuple[float, ...]
    sent: tuple[float, ...]
    bandwidth: str = "oneway"
    in_switch: bool = False
    low: Algorithm | None = None


def algorithms(kind: str, spanned: tuple[Tier, ...]) -> list[Algorithm]:
    """The candidates for a collective of `kind` over the tiers `spanned`."""
    ranks = math.prod(tier.fan_count for tier in spanned)
    last = len(spanned) - 1
    if kind == "send":
        steps = tuple(tier.hops_count if i == last else 0.0 for i, tier in enumerate(spanned))
        sent = tuple(1.0 if i == last else 0.0 for i in range(last + 1))
        return [Algorithm("send", "send", steps, sent, "pair")]
    if kind in ("all_to_all", "token_exchange"):
        sent = tuple((ranks - tier.inner_count) / ranks for tier in spanned)
        if kind == "token_exchange":
            return [Algorithm("one kernel", "all-to-all", tuple(1.0 for _ in spanned), sent, "shuffle")]
        peers = tuple(_peers(tier) for tier in spanned)
        return [Algorithm("pairwise", "all-to-all", peers, sent, "shuffle")]
    ring = _ring(kind, spanned, ranks)
    if kind == "all_reduce":
        return [ring, *_reductions(spanned, ranks, ring)]
    if last == 0 and spanned[0].level.kind in _BETWEEN_NODES and ranks > 2:
        # One rank a node: recursive halving needs as many steps as the tree has levels.
        return [ring, Algorithm("halving", "direct-gather", (math.log2(ranks),), ring.sent)]
    return [ring]


def peer_algorithms(tier: Tier) -> tuple[Algorithm, Algorithm]:
    """One-shot (each rank reads the whole buffer of every other) and two-shot all-reduce over peer memory."""
    others = tier.fan_count - 1.0
    one = Algorithm("one-shot", "direct-gather", (1.0,), (others,))
    two = Algorithm("two-shot", "direct-gather", (2.0,), (2 * others / tier.fan_count,))
    return one, two


def _ring(kind: str, spanned: tuple[Tier, ...], ranks: float) -> Algorithm:
    """One ring through all ranks, node after node; a node's traffic is spread over the rails of its ranks."""
    passes = 2.0 if kind == "all_reduce" else 1.0
    last = len(spanned) - 1
    steps = tuple(passes * _ring_steps(tier, ranks, i == last) for i, tier in enumerate(spanned))
    sent = tuple(ring_sent_frac(kind, ranks) / tier.inner_count for tier in spanned)
    return Algorithm("ring", "ring-all-reduce" if kind == "all_reduce" else "ring-gather", steps, sent)


def _ring_steps(tier: Tier, ranks: float, outermost: bool) -> float:
    """Steps of one round of the ring that cross this tier; the closing edge is not waited for."""
    domains = ranks / tier.inner_count
    if tier.level.ring_stops_count:
        cycles = 1.0 if outermost else domains / tier.fan_count
        return cycles * (tier.fan_count * tier.level.ring_stops_count - 1)
    if tier.hops_count > 1:
        return tier.hops_count
    edges = domains - 1 if outermost else domains - domains / tier.fan_count
    return max(edges, 0.0)


def _reductions(spanned: tuple[Tier, ...], ranks: float, ring: Algorithm) -> list[Algorithm]:
    """All-reduce by trees between nodes and in the switch."""
    first = spanned[0]
    outer_steps = tuple(2 * math.log2(tier.fan_count) * tier.hops_count for tier in spanned[1:])
    outer_sent = tuple(tree_busiest_frac(tier.fan_count) / tier.inner_count for tier in spanned[1:])
    found = []
    if outer_sent or (ranks >= _TREE_FROM_COUNT and not first.level.ring_stops_count):
        chain = 2 * _ring_steps(first, ranks, True) if outer_sent and first.inner_count == 1 else math.inf
        inner = min(chain, 2 * math.log2(first.fan_count) * first.hops_count)
        steps = (inner, *outer_steps)
        found.append(Algorithm("tree", "tree-all-reduce", steps, (tree_busiest_frac(first.fan_count), *outer_sent)))
    if first.level.in_switch_reduction and first.fan_count > 1:
        low = found[0] if found else ring
        sent = ((first.fan_count + 1) / first.fan_count, *outer_sent)
        name = "in-switch-tree" if outer_sent else "in-switch"
        found.append(
            Algorithm(name, "in-switch-all-reduce", (2.0, *outer_steps), sent, in_switch=True, low=low),
        )
    return found


def _peers(tier: Tier) -> float:
    """Peers that a rank has at a tier: the messages that an all-to-all starts there."""
    if tier.hops_count > 1:
        return tier.hops_count
    return tier.inner_count * (tier.fan_count - 1.0)
