"""Collective formulas against hand calculation."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.core import models
from ridgeline.network import collectives as c


def test_ring_all_reduce_by_hand() -> None:
    # 4 ranks, 400 bytes, 100 B/s: 6 steps of 100 bytes = 6 s; 6 hops of 0.5 s = 3 s.
    assert c.ring_all_reduce_s(400.0, 4, 100.0, 0.5) == pytest.approx(9.0)


def test_all_reduce_is_reduce_scatter_and_all_gather() -> None:
    both = 2 * c.ring_gather_s(1e9, 8, 450e9, 1e-6)
    assert c.ring_all_reduce_s(1e9, 8, 450e9, 1e-6) == pytest.approx(both)


def test_arrays_broadcast_like_floats() -> None:
    ranks = np.array([[2.0], [8.0]])
    sizes = np.array([1e6, 1e9])
    table = c.ring_all_reduce_s(sizes, ranks, 450e9, 1e-6)
    assert table.shape == (2, 2)
    assert table[1, 0] == pytest.approx(c.ring_all_reduce_s(1e6, 8.0, 450e9, 1e-6))


@pytest.mark.parametrize(
    "formula", [c.ring_all_reduce_s, c.ring_gather_s, c.direct_gather_s, c.all_to_all_s, c.in_switch_all_reduce_s]
)
def test_one_rank_costs_nothing(formula: object) -> None:
    assert formula(1e9, 1, 450e9, 1e-6) == 0.0  # type: ignore[operator]


def test_in_switch_against_ring() -> None:
    # (n+1)/n against 2(n-1)/n: equal for 3 ranks, 9/14 of the ring's time for 8.
    ring3, switch3 = c.ring_all_reduce_s(3.0, 3, 1.0, 0.0), c.in_switch_all_reduce_s(3.0, 3, 1.0, 0.0)
    ring8, switch8 = c.ring_all_reduce_s(8.0, 8, 1.0, 0.0), c.in_switch_all_reduce_s(8.0, 8, 1.0, 0.0)
    assert ring3 == pytest.approx(switch3)
    assert switch8 / ring8 == pytest.approx(9 / 14)


def test_double_tree_sends_once_for_two_and_twice_for_many() -> None:
    assert [c.tree_busiest_frac(n) for n in (1, 2, 3, 64)] == [0.0, 1.0, 2.0, 2.0]
    # Two nodes: the tree moves the message once, a ring 2(n-1)/n = 1 time as well for one device a node.
    assert c.tree_all_reduce_s(50e9, 1, 1.0, 50e9, 0.0) == pytest.approx(c.ring_all_reduce_s(50e9, 2, 50e9, 0.0))


def test_hierarchical_by_hand() -> None:
    # 4 in a node at 100 B/s, 3 nodes at 10 B/s, 400 bytes: 2 x 300/100 = 6 s inside, 100 bytes x 4/3 / 10 = 13.33 s.
    assert c.hierarchical_all_reduce_s(400.0, 4, 3, 100.0, 10.0, 0.0, 0.0) == pytest.approx(6 + 40 / 3)


def test_torus_all_to_all_by_hand() -> None:
    # A ring of 4, links of 1 B/s, each device sends 4 bytes, one to each: half the devices send 2 bytes across the
    # middle = 4 bytes over 2 links one way = 2 s. A line has one link there: 4 s.
    assert c.torus_axis_shuffle_s(4.0, 4, 1, 1.0) == pytest.approx(2.0)
    assert c.torus_axis_shuffle_s(4.0, 4, 0, 1.0) == pytest.approx(4.0)


def test_mesh_pair_uses_its_own_link_only() -> None:
    # 8 directly linked devices with 448 GB/s in all: a pair has 64 GB/s, the whole group 448 GB/s.
    assert c.mesh_oneway_bytes_per_s(448e9, 1, 7) == pytest.approx(64e9)
    assert c.mesh_oneway_bytes_per_s(448e9, 7, 7) == pytest.approx(448e9)


def test_shared_bridge_by_hand() -> None:
    # 4 of 8 devices behind a bridge of 25 GB/s: each sends 4/8 of 1 GB across, 2 GB in all, 0.08 s.
    assert c.bridge_shuffle_s(1e9, 8, 4, 25e9) == pytest.approx(0.08)


def test_size_law_halves_at_its_size_and_grows() -> None:
    assert c.saturating_transfer_s(1e6, 1e9, 1e6, 0.5) == pytest.approx(2e-3)
    sizes = np.logspace(2, 10, 200)
    assert np.all(np.diff(c.saturating_transfer_s(sizes, 1e9, 1e6, 0.5)) > 0)


def test_protocol_switch_is_below_both_and_tends_to_the_smaller() -> None:
    assert c.protocol_switch_s(1.0, 1.0, 8.0) == pytest.approx(2 ** (-1 / 8))
    assert c.protocol_switch_s(1.0, 100.0, 8.0) == pytest.approx(1.0)
    assert c.protocol_switch_s(100.0, 1.0, 8.0) == pytest.approx(1.0)


def test_bus_bandwidth_corrections_are_those_of_nccl_tests() -> None:
    assert c.ring_sent_frac("all_reduce", 8) == pytest.approx(14 / 8)
    assert c.ring_sent_frac("all_gather", 8) == c.ring_sent_frac("reduce_scatter", 8) == pytest.approx(7 / 8)
    assert c.bus_bytes_per_s(1e9, c.ring_all_reduce_s(1e9, 8, 450e9, 0.0), 14 / 8) == pytest.approx(450e9)


def test_every_formula_cites_a_source() -> None:
    ours = [entry for entry in models().values() if entry.function.__module__ == c.__name__]
    assert len(ours) >= 15
    assert all(entry.sources and entry.title for entry in ours)
