"""The time of one collective: the algorithm chosen, its levels, its parts."""

from __future__ import annotations

import time

import pytest
from tests.unit.network.machines import DGX, IDEAL, KINDS, NVLS, RAIL, calibration, level, system

from ridgeline.core import FrozenMap
from ridgeline.errors import BadPlan
from ridgeline.network import collective_time, law_for, published_law
from ridgeline.specs import Calibration, RankGroup


def seconds(kind: str, size: float, ranks: int, stride: int = 1, machine: object = DGX, laws: object = IDEAL) -> float:
    group = RankGroup(size_count=ranks, stride_count=stride)
    return collective_time(kind, size, group, machine, laws).time_s  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_one_and_an_empty_message_cost_nothing(kind: str) -> None:
    assert seconds(kind, 1e9, 1) == 0.0
    assert seconds(kind, 0.0, 8) == 0.0


def test_ideal_times_inside_a_node_by_hand() -> None:
    # 8 devices, 450 GB/s, 1 GB: all-reduce 2 x 7/8 / 450 = 3.889 ms, gather 1.944 ms, send 2.222 ms.
    assert seconds("all_reduce", 1e9, 8) == pytest.approx(2 * 7 / 8 / 450, rel=1e-9)
    assert seconds("all_gather", 1e9, 8) == pytest.approx(7 / 8 / 450, rel=1e-9)
    assert seconds("reduce_scatter", 1e9, 8) == pytest.approx(7 / 8 / 450, rel=1e-9)
    assert seconds("all_to_all", 1e9, 8) == pytest.approx(7 / 8 / 450, rel=1e-9)
    assert seconds("send", 1e9, 8) == pytest.approx(1 / 450, rel=1e-9)


def test_all_reduce_is_twice_a_gather_and_so_in_bytes() -> None:
    for ranks in (2, 4, 8):
        assert seconds("all_reduce", 1e9, ranks) == pytest.approx(
            seconds("all_gather", 1e9, ranks) + seconds("reduce_scatter", 1e9, ranks)
        )


def test_a_library_that_walks_one_cycle_waits_at_every_core() -> None:
    # 16 devices of two cores on a torus of 4 x 4, 2 us a hop: 2 x (32 - 1) hops; without stops 4 hops there and back.
    laws = calibration("torus-link", high_hop_s=2e-6)
    for stops, hops in ((2, 2 * 31), (0, 2 * 4)):
        torus = level("torus", "torus2d", "torus-link", 16, 200e9, axes=(4, 4), ring_stops_count=stops)
        found = collective_time("all_reduce", 1e3, RankGroup(size_count=16), system(torus, devices=16), laws)
        assert found.algorithm == "ring" if stops else found.time_s < 20e-6
        assert found.time_s == pytest.approx(hops * 2e-6, rel=0.01)


def test_ring_between_nodes_spreads_over_the_rails_of_its_ranks() -> None:
    # 64 devices on 8 nodes: 2 x 63/64 GB over 8 rails of 50 GB/s.
    assert seconds("all_reduce", 1e9, 64) == pytest.approx(2 * 63 / 64 / 400, rel=0.03)


def test_one_rank_a_node_gets_one_rail_however_many_groups_run() -> None:
    # 8 groups of 8 ranks with stride 8: each has one rail of 50 GB/s.
    assert seconds("all_reduce", 1e9, 8, 8) == pytest.approx(2 * 7 / 8 / 50, rel=1e-6)


def test_two_nodes_run_a_tree_that_moves_the_message_once() -> None:
    found = collective_time("all_reduce", 1e9, RankGroup(size_count=16), system(NVLS, RAIL), IDEAL)
    # 1 GB over 8 rails of 50 GB/s = 2.5 ms; in the switch 9/8 GB / 450 GB/s = 2.5 ms: both at once.
    assert found.algorithm == "in-switch-tree"
    assert found.time_s == pytest.approx(2.5e-3 * 2 ** (1 / 12), rel=1e-6)


def test_reduction_in_the_switch_is_used_where_it_pays() -> None:
    machine = system(NVLS, RAIL)
    two = collective_time("all_reduce", 1e9, RankGroup(size_count=2), machine, IDEAL)
    eight = collective_time("all_reduce", 1e9, RankGroup(size_count=8), machine, IDEAL)
    assert (two.algorithm, eight.algorithm) == ("ring", "in-switch")
    assert eight.time_s == pytest.approx(9 / 8 / 450, rel=1e-9)


def test_send_takes_the_widest_level_that_the_group_spans() -> None:
    assert seconds("send", 1e9, 4, 2) == pytest.approx(1 / 450)
    assert seconds("send", 1e9, 4, 8) == pytest.approx(1 / 50)
    found = collective_time("send", 1e9, RankGroup(size_count=2, stride_count=8), DGX, IDEAL)
    assert (found.level, found.algorithm, found.model) == ("rail", "send", "send")


def test_all_to_all_sends_the_share_of_other_nodes_over_the_rails() -> None:
    # 16 ranks on 2 nodes: half of each buffer leaves over the rank's own rail.
    assert seconds("all_to_all", 1e9, 16) == pytest.approx(0.5 / 50, rel=1e-6)


def test_steps_and_starts_add_up_by_hand() -> None:
    laws = calibration("nvlink4", high_base_s=1e-5, high_hop_s=1e-6)
    # 2 x 7 steps of 1 us, 10 us to start.
    assert seconds("all_reduce", 1e9, 8, laws=laws) == pytest.approx(2 * 7 / 8 / 450 + 24e-6, rel=1e-9)
    found = collective_time("all_reduce", 1e9, RankGroup(size_count=8), DGX, laws)
    assert found.latency_s == pytest.approx(24e-6, rel=1e-6)
    assert found.bandwidth_s + found.latency_s == pytest.approx(found.time_s)


def test_small_messages_take_the_low_latency_protocol() -> None:
    laws = calibration("nvlink4", low_base_s=5e-6, low_frac=0.4, high_base_s=2e-5)
    assert seconds("all_gather", 8.0, 8, laws=laws) == pytest.approx(5e-6, rel=1e-3)
    assert seconds("all_gather", 64e9, 8, laws=laws) == pytest.approx(2e-5 + 56 / 450, rel=1e-3)


def test_tcp_and_rdma_differ_in_their_start() -> None:
    tcp = level("lan", "ethernet", "tcp-100gbe", None, 12.5e9, transport="tcp")
    rdma = level("lan", "ethernet", "roce-100gbe", None, 12.5e9, transport="rdma")
    shipped = Calibration(
        chip="chip",
        laws=FrozenMap(
            {
                **{f"collective.tcp.{k}": law for k, law in _laws(low_base_s=4e-5).items()},
                **{f"collective.rdma.{k}": law for k, law in _laws(low_base_s=5e-6).items()},
            }
        ),
    )
    slow = seconds("all_reduce", 8.0, 2, machine=system(tcp), laws=shipped)
    fast = seconds("all_reduce", 8.0, 2, machine=system(rdma), laws=shipped)
    assert slow == pytest.approx(4e-5, rel=1e-3)
    assert fast == pytest.approx(5e-6, rel=1e-3)


def _laws(**changes: float) -> dict[str, object]:
    made = calibration("x", high_base_s=1e-3, **changes)
    return {key.rsplit(".", 1)[1]: law for key, law in made.laws.items()}


def test_engine_kernels_join_only_when_asked_for() -> None:
    laws = calibration("nvlink4", low_base_s=2e-5, high_base_s=2e-5)
    peer = calibration("nvlink4", low_base_s=3e-6, high_base_s=6e-6).laws["collective.nvlink4.all_reduce"]
    both = Calibration(chip="chip", laws=FrozenMap({**laws.laws, "collective.nvlink4.peer_all_reduce": peer}))
    group = RankGroup(size_count=8)
    assert collective_time("all_reduce", 8e3, group, DGX, both).time_s > 1.5e-5
    found = collective_time("all_reduce", 8e3, group, DGX, both, peer_kernels="vllm")
    assert found.algorithm == "one-shot"
    assert found.time_s == pytest.approx(3e-6 + 7 * 8e3 / 450e9, rel=0.01)


def test_laws_are_looked_up_by_link_then_family_then_published() -> None:
    assert law_for(NVLS, "all_reduce", IDEAL).fact == "test-law"
    family = Calibration(chip="c", laws=FrozenMap({"collective.rdma.all_reduce": law_for(NVLS, "all_reduce", IDEAL)}))
    assert law_for(RAIL, "all_reduce", family).fact == "test-law"
    fallback = law_for(NVLS, "all_reduce", family)
    assert (fallback.fact, fallback.level) == ("nccl-tuner", "published")
    assert fallback.sigma > published_law(RAIL, "send").sigma - 1e-12 > 0.2


def test_uses_name_the_law_and_the_figures_of_the_level() -> None:
    named = level("nvlink", "switch", "nvlink4", 8, 450e9, facts=FrozenMap({"oneway_bytes_per_s": "nvlink4.oneway"}))
    found = collective_time("all_gather", 1e9, RankGroup(size_count=8), system(named), IDEAL)
    assert found.uses == ("test-law", "nvlink4.oneway")
    assert found.sigma == pytest.approx(law_for(named, "all_gather", IDEAL).sigma)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(BadPlan, match="unknown collective 'broadcast'"):
        collective_time("broadcast", 1.0, RankGroup(size_count=2), DGX, IDEAL)


def test_a_call_is_cheap_enough_for_a_layout_search() -> None:
    machine = system(NVLS, RAIL)
    group = RankGroup(size_count=64)
    collective_time("all_reduce", 1e8, group, machine, IDEAL)
    best = min(_timed(group, machine) for _ in range(5))
    assert best < 60e-6  # measured 10 us; twice the 30 us budget for a busy test machine


def _timed(group: RankGroup, machine: object) -> float:
    start = time.perf_counter()
    for _ in range(200):
        collective_time("all_reduce", 1e8, group, machine, IDEAL)  # type: ignore[arg-type]
    return (time.perf_counter() - start) / 200


def test_an_exchange_of_tokens_is_a_shuffle_that_starts_once() -> None:
    assert seconds("token_exchange", 1e9, 8) == pytest.approx(7 / 8 / 450, rel=1e-9)
    laws = calibration("nvlink4", high_hop_s=10e-6, low_hop_s=10e-6)
    one, many = (seconds(kind, 1e3, 8, laws=laws) for kind in ("token_exchange", "all_to_all"))
    assert one == pytest.approx(10e-6, rel=0.05)
    assert many == pytest.approx(7 * 10e-6, rel=0.05)
