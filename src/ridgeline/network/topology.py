"""Which levels of a machine a group of ranks spans, and what each of its ranks can send into every one of them.

A group (size, stride) covers the devices 0, stride, 2 stride, ... in the numbering of the machine, which fills a node
before it goes to the next. At each level the group has so many members inside one domain of the level below
(`inner_count`) and so many such domains (`fan_count`).

Groups run side by side: with a stride of 8 on nodes of 8, eight groups share the node's network cards. The bandwidth of
a level is per device when all devices send, so a group never gets more than its ranks' share of the node. A launcher is
taken to place a group inside one domain wherever it fits there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.errors import BadPlan
from ridgeline.network.collectives import mesh_oneway_bytes_per_s
from ridgeline.network.torus import TORUS_KINDS, Span, spans
from ridgeline.specs import NetworkLevel, RankGroup, System

KINDS = ("switch", "package", "mesh", "pcie", "fat-tree", "ethernet", *TORUS_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level as one group sees it.

    `fan_count` domains of the level below take part, with `inner_count` ranks of the group in each (1 at the innermost
    level). `oneway_bytes_per_s` is what one rank can send here in a ring or gather, `pair_bytes_per_s` to one other
    rank, `shuffle_bytes_per_s` in an all-to-all, each while all devices of the machine do the same. `hops_count` is
    the number of links that a message passes at most (1 through a switch, the axes of a torus).
    """

    level: NetworkLevel
    fan_count: float
    inner_count: float
    oneway_bytes_per_s: float
    pair_bytes_per_s: float
    shuffle_bytes_per_s: float
    hops_count: float = 1.0


def tiers(group: RankGroup, system: System) -> tuple[Tier, ...]:
    """The levels that `group` spans on `system`, inner to outer; empty for a group of one.

    Raises `BadPlan` where the machine has no level that reaches so far.

    >>> from ridgeline.specs import Chip
    >>> nvlink = NetworkLevel(name="nvlink", kind="switch", link="nvlink4", size_count=8,
    ...                       oneway_bytes_per_s=450e9, latency_s=1e-6)
    >>> rail = NetworkLevel(name="rail", kind="fat-tree", link="ib-ndr", size_count=None,
    ...                     oneway_bytes_per_s=50e9, latency_s=5e-6)
    >>> node = System(id="x", name="", chip=Chip(id="c"), devices_per_node_count=8, levels=(nvlink, rail))
    >>> [(t.level.name, t.fan_count, t.inner_count) for t in tiers(RankGroup(size_count=32), node)]
    [('nvlink', 8, 1), ('rail', 4.0, 8)]
    >>> [(t.level.name, t.fan_count) for t in tiers(RankGroup(size_count=4, stride_count=8), node)]
    [('rail', 4.0)]
    """
    size, stride = group.size_count, group.stride_count
    if size < 1 or stride < 1:
        raise BadPlan(f"rank group of size {size} and stride {stride}: both must be at least 1")
    found: list[Tier] = []
    inner = 1
    for level in system.levels:
        if inner >= size:
            break
        inside = _members_inside(level, size, stride)
        if inside > inner:
            found.append(_tier(level, size, stride, inner, inside))
            inner = inside
    if inner < size:
        raise BadPlan(
            f"a group of {size} ranks with stride {stride} reaches beyond the levels of system {system.id!r} "
            f"({', '.join(level.name for level in system.levels) or 'none'}); add a level or use fewer devices"
        )
    return tuple(found)


def domain_members_count(group: RankGroup, level: NetworkLevel) -> int:
    """How many ranks of the group lie in one domain of `level`.

    >>> level = NetworkLevel(name="nvlink", kind="switch", link="nvlink4", size_count=8,
    ...                      oneway_bytes_per_s=450e9, latency_s=1e-6)
    >>> domain_members_count(RankGroup(size_count=64, stride_count=4), level)
    2
    """
    return _members_inside(level, group.size_count, group.stride_count)


def _members_inside(level: NetworkLevel, size: int, stride: int) -> int:
    if level.size_count is None or (size - 1) * stride < level.size_count:
        return size
    return max(1, level.size_count // stride)


def _tier(level: NetworkLevel, size: int, stride: int, inner: int, inside: int) -> Tier:
    fan = inside / inner if inner > 1 or inside == size else float(inside)
    extent = min(size * stride, level.size_count or size * stride)
    wide = level.full_rate_count is not None and extent > level.full_rate_count
    whole = level.pace_oneway_bytes_per_s
    oneway = whole / (level.oversubscription if wide else 1.0)
    if level.kind == "mesh":
        return _mesh_tier(level, inside, fan, inner, oneway)
    if level.kind in TORUS_KINDS:
        return _torus_tier(level, RankGroup(size_count=inside, stride_count=stride), fan, inner, oneway)
    ring = whole if level.kind == "pcie" else oneway
    return Tier(
        level=level,
        fan_count=int(fan) if inner == 1 and fan == int(fan) and level.size_count is not None else fan,
        inner_count=inner,
        oneway_bytes_per_s=ring,
        pair_bytes_per_s=ring,
        shuffle_bytes_per_s=oneway,
    )


def _mesh_tier(level: NetworkLevel, inside: int, fan: float, inner: int, oneway: float) -> Tier:
    """Direct links: a rank reaches its `inside - 1` peers over as many links of its `size - 1`."""
    peers = max(1, (level.size_count or inside) - 1)
    usable = mesh_oneway_bytes_per_s(oneway, max(1, inside - inner), peers)
    pair = mesh_oneway_bytes_per_s(oneway, 1, peers)
    return Tier(
        level=level,
        fan_count=fan,
        inner_count=inner,
        oneway_bytes_per_s=usable,
        pair_bytes_per_s=pair,
        shuffle_bytes_per_s=usable,
    )


def _torus_tier(level: NetworkLevel, group: RankGroup, fan: float, inner: int, oneway: float) -> Tier:
    """Rings and lines over the axes that the group takes of its slice, each with its share of the links."""
    axes = level.axes or (level.size_count or group.size_count,)
    link = oneway / (2 * len(axes))
    if level.kind == "ring":
        whole = group.size_count * group.stride_count >= axes[0]
        taken: tuple[Span, ...] = (Span(members_count=max(2, round(fan)), closed=whole),)
    else:
        taken = spans(axes, level.kind, group, level.slice_count)
    links = sum(span.links_count for span in taken)
    shuffles = [
        span.members_count * span.spacing_count / (2 if span.closed else 1) / 4  # src: scaling-book
        for span in taken
        if span.members_count > 1
    ]
    others = (group.size_count - 1) / group.size_count
    return Tier(
        level=level,
        fan_count=fan,
        inner_count=inner,
        oneway_bytes_per_s=(links or 1.0) * link,
        pair_bytes_per_s=link,
        shuffle_bytes_per_s=link * others / max(shuffles, default=others),
        hops_count=max(1.0, float(sum(span.hops_count for span in taken))),
    )
