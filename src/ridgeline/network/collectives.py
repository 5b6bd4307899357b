"""Collective algorithms as formulas: how long an ideal network takes, and what each algorithm sends over a link.

Pure kernels: floats or numpy arrays in, the same out. Bandwidths are those of one device in one direction; message
sizes are those of nccl-tests: all-reduce: the buffer of a rank; all-gather: the gathered result; reduce-scatter: the
whole input of a rank; all-to-all: the whole send buffer of a rank; send: the message.

The bus bandwidth of nccl-tests is `traffic of a ring / time`; an algorithm that sends less than a ring (a tree on two
nodes, reduction in the switch) shows a bus bandwidth above the wire rate.
"""

from __future__ import annotations

from typing import Any

from ridgeline.core import model

Number = Any
"""A float or a numpy array; every kernel broadcasts."""

# Largest group and largest single domain that any catalogue machine has.
_RANKS = {"ranks_count": (1, 65536)}  # src: ridgeline-collective-laws
_DOMAIN = (1, 1024)  # src: ridgeline-collective-laws


@model(id="ring-all-reduce", sources=("patarasuk-2009", "thakur-2005"), valid=_RANKS)
def ring_all_reduce_s(
    message_bytes: Number, ranks_count: Number, oneway_bytes_per_s: Number, hop_latency_s: Number
) -> Number:
    """Time of a ring all-reduce: a reduce-scatter and an all-gather around one ring.

    `message_bytes` [B] is the buffer of each rank, `oneway_bytes_per_s` [B/s] what one device sends in one direction,
    `hop_latency_s` [s] one step. Returns [s].

    t = 2 (n-1) hop + 2 (n-1)/n message / bandwidth

    Assumes that every rank sends and receives at full rate at once. Sources: Patarasuk 2009, Thakur 2005.

    >>> round(ring_all_reduce_s(1e9, 8, 450e9, 0.0) * 1e3, 3)
    3.889
    """
    steps_count = 2 * (ranks_count - 1)
    return steps_count * hop_latency_s + steps_count / ranks_count * message_bytes / oneway_bytes_per_s


@model(id="ring-gather", sources=("thakur-2005",), valid=_RANKS)
def ring_gather_s(
    message_bytes: Number, ranks_count: Number, oneway_bytes_per_s: Number, hop_latency_s: Number
) -> Number:
    """Time of a ring all-gather or reduce-scatter.

    `message_bytes` [B] is the gathered result (the whole input of a reduce-scatter). Returns [s].

    t = (n-1) hop + (n-1)/n message / bandwidth

    Half of a ring all-reduce of the same size. Source: Thakur 2005.

    >>> round(ring_gather_s(1e9, 8, 450e9, 0.0) * 1e3, 3)
    1.944
    """
    steps_count = ranks_count - 1
    return steps_count * hop_latency_s + steps_count / ranks_count * message_bytes / oneway_bytes_per_s


@model(id="direct-gather", sources=("thakur-2005",), valid=_RANKS)
def direct_gather_s(
    message_bytes: Number, ranks_count: Number, oneway_bytes_per_s: Number, hop_latency_s: Number
) -> Number:
    """Time of an all-gather or reduce-scatter in which each rank sends to all others at once, through a switch.

    As `ring_gather_s` with one step of latency: t = hop + (n-1)/n message / bandwidth. Nothing for one rank.

    >>> direct_gather_s(8e9, 2, 4e9, 1e-6)
    1.000001
    """
    others_frac = (ranks_count - 1) / ranks_count
    return _present(ranks_count) * hop_latency_s + others_frac * message_bytes / oneway_bytes_per_s


@model(id="tree-all-reduce", sources=("thakur-2005", "nccl-double-tree"), valid=_RANKS)
def tree_all_reduce_s(
    message_bytes: Number, depth_count: Number, busiest_frac: Number, oneway_bytes_per_s: Number, hop_latency_s: Number
) -> Number:
    """Time of a double-binary-tree all-reduce: up and down `depth_count` levels, pipelined.

    `busiest_frac` is what the busiest rank sends, as a share of the message: `tree_busiest_frac`. Returns [s].

    t = 2 depth hop + busiest message / bandwidth

    Half the message goes over each of two trees whose leaves are the inner ranks of the other. Sources: Thakur 2005
    for trees; the double tree of NCCL 2.4.

    >>> round(tree_all_reduce_s(1e9, 1, 1.0, 50e9, 5e-6) * 1e3, 3)
    20.01
    """
    return 2 * depth_count * hop_latency_s + busiest_frac * message_bytes / oneway_bytes_per_s


def tree_busiest_frac(ranks_count: float) -> float:
    """Share of the message that the busiest rank of a double binary tree sends: 1 for two ranks, else 2.

    An inner rank sends half the message up and twice half down, and as a leaf of the other tree half up: 2 in all.
    Two ranks: half up as leaf of one tree, half down as root of the other.

    >>> tree_busiest_frac(2), tree_busiest_frac(16), tree_busiest_frac(1)
    (1.0, 2.0, 0.0)
    """
    return min(2.0, max(0.0, ranks_count - 1.0))


@model(id="in-switch-all-reduce", sources=("nvidia-nvls", "nccl-tests-performance"), valid={"ranks_count": _DOMAIN})
def in_switch_all_reduce_s(
    message_bytes: Number, ranks_count: Number, oneway_bytes_per_s: Number, hop_latency_s: Number
) -> Number:
    """Time of an all-reduce whose sums and copies are made in the switch (NVLink SHARP).

    Each rank answers the switch's reads of its whole buffer and sends the reduced share that it owns once.

    t = 2 hop + (n+1)/n message / bandwidth        (n > 1)

    Against a ring's 2 (n-1)/n: equal at 3 ranks, 1.56 times better at 8. Its bus bandwidth can exceed the wire rate.

    >>> round(in_switch_all_reduce_s(8e9, 8, 450e9, 0.0) * 1e3, 3)
    20.0
    """
    sent_frac = (ranks_count + 1) / ranks_count
    return _present(ranks_count) * (2 * hop_latency_s + sent_frac * message_bytes / oneway_bytes_per_s)


@model(id="hierarchical-all-reduce", sources=("thakur-2005",), valid={"inner_count": _DOMAIN})
def hierarchical_all_reduce_s(
    message_bytes: Number,
    inner_count: Number,
    outer_count: Number,
    inner_oneway_bytes_per_s: Number,
    outer_oneway_bytes_per_s: Number,
    inner_hop_latency_s: Number,
    outer_hop_latency_s: Number,
) -> Number:
    """Time of a two-level all-reduce run phase by phase.

    Reduce-scatter among the `inner_count` ranks of a node, all-reduce of each share over its own rail among
    `outer_count` nodes, all-gather in the node. `outer_oneway_bytes_per_s` is per device (its own rail). Returns [s].

    Between nodes each device moves only 1/inner of the message. Phases do not overlap here; a pipelined
    implementation takes about the longest of them.

    >>> round(hierarchical_all_reduce_s(1e9, 8, 4, 450e9, 50e9, 0.0, 0.0) * 1e3, 3)
    7.639
    """
    inside_s = 2 * ring_gather_s(message_bytes, inner_count, inner_oneway_bytes_per_s, inner_hop_latency_s)
    share_bytes = message_bytes / inner_count
    return inside_s + ring_all_reduce_s(share_bytes, outer_count, outer_oneway_bytes_per_s, outer_hop_latency_s)


@model(id="all-to-all", sources=("thakur-2005",), valid=_RANKS)
def all_to_all_s(
    message_bytes: Number, ranks_count: Number, oneway_bytes_per_s: Number, hop_latency_s: Number
) -> Number:
    """Time of an all-to-all through a switch: each rank sends 1/n of its buffer to every other.

    t = hop + (n-1)/n message / bandwidth        (n > 1)

    >>> round(all_to_all_s(1e9, 8, 450e9, 0.0) * 1e3, 3)
    1.944
    """
    others_frac = (ranks_count - 1) / ranks_count
    return _present(ranks_count) * hop_latency_s + others_frac * message_bytes / oneway_bytes_per_s


@model(id="send", sources=("hockney-1994",))
def send_s(message_bytes: Number, oneway_bytes_per_s: Number, hop_latency_s: Number) -> Number:
    """Time to send one message from rank to rank: t = hop + message / bandwidth.

    >>> send_s(1e9, 1e9, 0.0)
    1.0
    """
    return hop_latency_s + message_bytes / oneway_bytes_per_s


@model(id="torus-gather", sources=("scaling-book",), valid=_RANKS)
def torus_gather_s(
    message_bytes: Number, ranks_count: Number, links_count: Number, link_oneway_bytes_per_s: Number, path_s: Number
) -> Number:
    """Time of an all-gather or reduce-scatter on a torus with rings over `links_count` links of each device at once.

    A device has two links an axis; an axis that wraps carries a ring each way (2 links count), one that does not
    carries one ring there and back (1 counts). `link_oneway_bytes_per_s` [B/s] is one link, one direction; `path_s`
    the latency of the longest path. Returns [s].

    t = path + (n-1)/n message / (links x link)

    >>> round(torus_gather_s(1e9, 256, 4, 45e9, 0.0) * 1e3, 2)
    5.53
    """
    usable_bytes_per_s = links_count * link_oneway_bytes_per_s
    return path_s + (ranks_count - 1) / ranks_count * message_bytes / usable_bytes_per_s


@model(id="torus-axis-shuffle", sources=("scaling-book",), valid={"axis_count": _DOMAIN})
def torus_axis_shuffle_s(
    message_bytes: Number, axis_count: Number, wrap_count: Number, link_oneway_bytes_per_s: Number
) -> Number:
    """Time that an all-to-all loads the links of one torus axis, by the cut through the middle of the axis.

    `wrap_count` is 1 for a ring, 0 for a line. Half the devices of the axis send half of their buffers across the
    cut, which is crossed by one link a line, two a ring.

    t = axis/4 message / ((1 + wrap) link)        (axis > 1)

    >>> torus_axis_shuffle_s(1e9, 16, 1, 50e9)
    0.04
    """
    across_bytes = _present(axis_count) * message_bytes * axis_count * 0.25  # src: scaling-book
    return across_bytes / ((1 + wrap_count) * link_oneway_bytes_per_s)


@model(id="mesh-oneway", sources=("stas00-network",))
def mesh_oneway_bytes_per_s(oneway_bytes_per_s: Number, peers_in_group_count: Number, peers_count: Number) -> Number:
    """What a device of a directly linked mesh can send to the members of its group [B/s].

    Each pair has only its own link: a group of 2 in a mesh of 8 uses one link of seven.

    >>> mesh_oneway_bytes_per_s(448e9, 1, 7)
    64000000000.0
    """
    return oneway_bytes_per_s * peers_in_group_count / peers_count


@model(id="bridge-shuffle", sources=("ridgeline-collective-laws",))
def bridge_shuffle_s(
    message_bytes: Number, ranks_count: Number, behind_count: Number, bridge_oneway_bytes_per_s: Number
) -> Number:
    """Time that an all-to-all keeps one host bridge busy: the devices behind it send to all on the other side.

    `behind_count` of the `ranks_count` ranks sit behind the bridge, which passes `bridge_oneway_bytes_per_s` one way.

    t = behind (n - behind)/n message / bridge

    A ring crosses the same bridge only once, so rings are not slowed by it.

    >>> bridge_shuffle_s(1e9, 8, 4, 25e9)
    0.08
    """
    return behind_count * (ranks_count - behind_count) / ranks_count * message_bytes / bridge_oneway_bytes_per_s


@model(id="saturating-transfer", sources=("hockney-1994", "ridgeline-collective-laws"))
def saturating_transfer_s(sent_bytes: Number, oneway_bytes_per_s: Number, half_bytes: Number, power: Number) -> Number:
    """Time on the wire of `sent_bytes` when large messages come closer to the full rate than small ones.

    t = sent / bandwidth x (1 + (half / sent)^power)

    At `half_bytes` the wire runs at half rate. `power` 1 is a plain added latency (Hockney), smaller values the slow
    approach to the full rate that pipelined collectives show; below 1 more bytes always take longer.

    >>> saturating_transfer_s(1e6, 1e9, 1e6, 0.7)
    0.002
    """
    return sent_bytes / oneway_bytes_per_s * (1 + (half_bytes / sent_bytes) ** power)


@model(id="protocol-switch", sources=("nccl-tuner", "ridgeline-collective-laws"))
def protocol_switch_s(low_latency_s: Number, high_bandwidth_s: Number, sharpness: Number) -> Number:
    """Time of the better of two protocols, smoothly: a library switches from one to the other near their crossing.

    t = (low^-k + high^-k)^(-1/k)

    Tends to the smaller of both for a large `sharpness` k.

    >>> round(protocol_switch_s(1.0, 4.0, 8.0), 4)
    1.0
    """
    ratio = low_latency_s / high_bandwidth_s
    return low_latency_s / (1 + ratio**sharpness) ** (1 / sharpness)


@model(id="slowest-tier", sources=("ridgeline-collective-laws",))
def slowest_tier_s(first_s: Number, second_s: Number, sharpness: Number) -> Number:
    """Time of two pipelined stages, smoothly: t = (a^k + b^k)^(1/k), the longer one for a large `sharpness` k.

    >>> round(slowest_tier_s(3.0, 4.0, 2.0), 6)
    5.0
    """
    return (first_s**sharpness + second_s**sharpness) ** (1 / sharpness)


@model(id="bus-bandwidth", sources=("nccl-tests-performance",))
def bus_bytes_per_s(message_bytes: Number, time_s: Number, ring_frac: Number) -> Number:
    """Bus bandwidth of nccl-tests: message / time x the share that a ring sends (`ring_sent_frac`) [B/s].

    >>> round(bus_bytes_per_s(1.6e9, 0.363, 2 * 7 / 8) / 1e9, 1)
    7.7
    """
    return message_bytes / time_s * ring_frac


def ring_sent_frac(kind: str, ranks_count: float) -> float:
    """Share of the message that each rank sends in a ring: the correction factor of nccl-tests.

    2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for a send.

    >>> ring_sent_frac("all_reduce", 8), ring_sent_frac("all_gather", 2), ring_sent_frac("send", 2)
    (1.75, 0.5, 1.0)
    """
    others_frac = (ranks_count - 1.0) / ranks_count
    return {
        "all_reduce": 2 * others_frac,
        "all_gather": others_frac,
        "reduce_scatter": others_frac,
        "all_to_all": others_frac,
        "token_exchange": others_frac,
        "send": 1.0,
    }[kind]


def _present(ranks_count: Number) -> Number:
    """1 where more than one rank takes part, else 0; for floats and arrays."""
    return (ranks_count > 1) * 1.0
