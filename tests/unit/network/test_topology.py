"""Which levels a group spans."""

from __future__ import annotations

import pytest
from tests.unit.network.machines import DGX, NVLINK, RAIL, level, system

from ridgeline.errors import BadPlan
from ridgeline.network import tiers
from ridgeline.network.topology import domain_members_count
from ridgeline.network.torus import closed_axes, slice_shape, sliced, spans
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
def test_spans_of_a_group_alone(size: int, stride: int, expected: tuple[int, int]) -> None:
    found = spans((16, 16), "torus2d", RankGroup(size_count=size, stride_count=stride))
    assert tuple(span.members_count for span in found) == expected


@pytest.mark.parametrize("tensor", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize(
    ("axes", "kind", "count"),
    [((16, 16), "torus2d", 256), ((16, 16), "torus2d", 128), ((16, 16, 24), "torus3d", 6144)],
)
def test_groups_that_nest_never_claim_a_link_twice(tensor: int, axes: tuple[int, ...], kind: str, count: int) -> None:
    """Members of the inner times the outer group are the axis, and all groups together use no link more than whole."""
    inner = spans(axes, kind, RankGroup(size_count=tensor), count)
    outer = spans(axes, kind, RankGroup(size_count=count // tensor, stride_count=tensor), count)
    shape = slice_shape(axes, kind, count)
    assert [one.members_count * two.members_count for one, two in zip(inner, outer, strict=True)] == list(shape)
    for one, two in zip(inner, outer, strict=True):
        # so many groups lie side by side on the axis; each has a link's share, so that the sum is at most two links
        assert two.links_count * one.members_count <= 2 or two.members_count == 1
        assert two.members_count == 1 or two.spacing_count == one.members_count


def test_only_whole_axes_of_a_slice_close() -> None:
    assert slice_shape((16, 16, 24), "torus3d", 384) == (4, 8, 12)
    assert closed_axes((16, 16, 24), "torus3d", (4, 8, 12)) == (True, True, True)
    assert closed_axes((16, 16), "torus2d", (8, 8)) == (False, False)
    # four chips of an axis of 16: a line, although 4 is a multiple of 4
    part = spans((16, 16, 16), "torus3d", RankGroup(size_count=4), 4096)
    assert (part[0].members_count, part[0].closed, part[0].links_count) == (4, False, 1.0)
    # the same four as a whole axis of a cube: a ring
    whole = spans((16, 16, 16), "torus3d", RankGroup(size_count=4), 64)
    assert (whole[0].closed, whole[0].links_count) == (True, 2.0)


def test_a_job_knows_its_slice() -> None:
    pod = system(torus("torus2d", (16, 16), 4, 45e9))
    tensor, data = RankGroup(size_count=16), RankGroup(size_count=16, stride_count=16)
    held = sliced(pod, 256)
    # each has one whole axis to itself: two links of four
    assert [tiers(group, held)[0].oneway_bytes_per_s for group in (tensor, data)] == [90e9, 90e9]
    # in 8 x 16 the group of 8 has the line, the other one the ring
    held = sliced(pod, 128)
    assert tiers(RankGroup(size_count=8), held)[0].oneway_bytes_per_s == 45e9
    assert tiers(RankGroup(size_count=16, stride_count=8), held)[0].oneway_bytes_per_s == 90e9
    assert sliced(DGX, 64) is DGX


def test_a_group_that_shares_an_axis_has_its_share_of_the_links() -> None:
    held = sliced(system(torus("torus2d", (16, 16), 4, 45e9)), 256)
    # 64 ranks 4 apart: 4 of every fourth place of one axis (2/4 of a link's rate) and the whole of the other (2 links)
    assert tiers(RankGroup(size_count=64, stride_count=4), held)[0].oneway_bytes_per_s == 2.5 * 45e9


def test_members_in_a_domain() -> None:
    assert domain_members_count(RankGroup(size_count=64, stride_count=2), NVLINK) == 4
    assert domain_members_count(RankGroup(size_count=64, stride_count=16), NVLINK) == 1
    assert domain_members_count(RankGroup(size_count=64), RAIL) == 64
