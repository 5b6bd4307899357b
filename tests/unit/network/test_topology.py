"""Which levels a group spans."""

from __future__ import annotations

import pytest
from tests.unit.network.machines import DGX, NVLINK, RAIL, level, system

from ridgeline.errors import BadPlan
from ridgeline.network import tiers
from ridgeline.network.topology import domain_members_count, sub_torus
from ridgeline.specs import NetworkLevel, RankGroup


def shape(size: int, stride: int = 1) -> list[tuple[str, float, float]]:
    return [
        (tier.level.name, tier.fan_count, tier.inner_count)
        for tier in tiers(RankGroup(size_count=size, stride_count=stride), DGX)
    ]


def test_group_inside_a_node() -> None:
    assert shape(8) == [("nvlink", 8, 1)]
    assert shape(2, 4) == [("nvlink", 2, 1)]


def test_one_rank_a_node_uses_its_own_rail() -> None:
    assert shape(16, 8) == [("rail", 16, 1)]
    assert tiers(RankGroup(size_count=16, stride_count=8), DGX)[0].oneway_bytes_per_s == 50e9


def test_several_ranks_a_node_span_both_levels() -> None:
    assert shape(64) == [("nvlink", 8, 1), ("rail", 8, 8)]
    assert shape(32, 2) == [("nvlink", 4, 1), ("rail", 8, 4)]


def test_group_of_one_spans_nothing() -> None:
    assert shape(1) == []


def test_three_levels() -> None:
    rack = level("rack", "switch", "nvlink5", 72, 100e9)
    spine = level("spine", "fat-tree", "ib-ndr", None, 50e9)
    found = tiers(RankGroup(size_count=144), system(level("tray", "switch", "nvlink5", 4, 900e9), rack, spine))
    assert [(t.level.name, t.fan_count, t.inner_count) for t in found] == [
        ("tray", 4, 1),
        ("rack", 18, 4),
        ("spine", 2, 72),
    ]


def test_too_wide_for_the_machine_is_one_clear_error() -> None:
    with pytest.raises(BadPlan, match="reaches beyond the levels of system 'hand-made'"):
        tiers(RankGroup(size_count=16), system(NVLINK))
    with pytest.raises(BadPlan, match="at least 1"):
        tiers(RankGroup(size_count=0), DGX)


def test_oversubscription_counts_beyond_the_full_rate_only() -> None:
    leaf = level("leaf", "fat-tree", "ib-ndr", None, 50e9, oversubscription=4.0, full_rate_count=256)
    machine = system(NVLINK, leaf)
    assert tiers(RankGroup(size_count=32, stride_count=8), machine)[0].oneway_bytes_per_s == 50e9
    assert tiers(RankGroup(size_count=64, stride_count=8), machine)[0].oneway_bytes_per_s == 12.5e9


def test_mesh_gives_a_pair_one_link_and_the_group_all() -> None:
    mesh = system(level("xgmi", "mesh", "xgmi-mi300x", 8, 448e9))
    pair, whole = tiers(RankGroup(size_count=2), mesh)[0], tiers(RankGroup(size_count=8), mesh)[0]
    assert (pair.oneway_bytes_per_s, pair.pair_bytes_per_s) == (64e9, 64e9)
    assert (whole.oneway_bytes_per_s, whole.pair_bytes_per_s) == (448e9, 64e9)


def test_ring_over_shared_bridges_keeps_its_rate_and_a_shuffle_does_not() -> None:
    pcie = level("pcie", "pcie", "pcie4-x16", 8, 31e9, oversubscription=4.0, full_rate_count=4)
    inside = tiers(RankGroup(size_count=4), system(pcie))[0]
    across = tiers(RankGroup(size_count=8), system(pcie))[0]
    assert (inside.oneway_bytes_per_s, inside.shuffle_bytes_per_s) == (31e9, 31e9)
    assert (across.oneway_bytes_per_s, across.shuffle_bytes_per_s) == (31e9, 31e9 / 4)


def torus(kind: str, axes: tuple[int, ...], links: int, link: float) -> NetworkLevel:
    size = 1
    for length in axes:
        size *= length
    return level("ici", kind, "ici", size, links * link, axes=axes)


def test_torus_uses_the_links_of_the_axes_that_it_spans() -> None:
    pod = system(torus("torus2d", (16, 16), 4, 45e9))
    # A whole axis wraps: two links; both axes: four; a part of an axis is a line: one link an axis.
    assert tiers(RankGroup(size_count=16, stride_count=16), pod)[0].oneway_bytes_per_s == 90e9
    assert tiers(RankGroup(size_count=256), pod)[0].oneway_bytes_per_s == 180e9
    assert tiers(RankGroup(size_count=64), pod)[0].oneway_bytes_per_s == 90e9
    assert tiers(RankGroup(size_count=2), pod)[0].oneway_bytes_per_s == 45e9


def test_optical_switches_close_multiples_of_four() -> None:
    pod = system(torus("torus3d", (16, 16, 16), 6, 45e9))
    assert tiers(RankGroup(size_count=64), pod)[0].oneway_bytes_per_s == 6 * 45e9
    assert tiers(RankGroup(size_count=8), pod)[0].oneway_bytes_per_s == 3 * 45e9


def test_torus_shuffle_is_bound_by_its_middle() -> None:
    # 16x16 torus: 16/8 x message / link for each wrapping axis, so 255/256 / 2 links.
    tier = tiers(RankGroup(size_count=256), system(torus("torus2d", (16, 16), 4, 45e9)))[0]
    assert tier.shuffle_bytes_per_s == pytest.approx(45e9 * (255 / 256) / 2)


@pytest.mark.parametrize(
    ("size", "stride", "expected"), [(16, 1, (4, 4)), (256, 1, (16, 16)), (16, 16, (1, 16)), (8, 2, (2, 4))]
)
def test_sub_torus(size: int, stride: int, expected: tuple[int, int]) -> None:
    assert sub_torus((16, 16), RankGroup(size_count=size, stride_count=stride)) == expected


def test_members_in_a_domain() -> None:
    assert domain_members_count(RankGroup(size_count=64, stride_count=2), NVLINK) == 4
    assert domain_members_count(RankGroup(size_count=64, stride_count=16), NVLINK) == 1
    assert domain_members_count(RankGroup(size_count=64), RAIL) == 64
