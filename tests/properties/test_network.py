"""Collectives are physical: monotone, above the wire's bound, the same on floats and arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.network import collective_time, collective_times_s, tiers
from ridgeline.network.collectives import protocol_switch_s, saturating_transfer_s
from ridgeline.specs import Calibration, RankGroup, System

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
MACHINES = ("dgx-a100", "dgx-h100", "dgx-b200", "gb200-nvl72", "mi300x-8", "p5-48xlarge", "l40s-8", "tpu-v5p")
CATALOG: Catalog = load_catalog(plugins=False)
SYSTEMS: dict[str, System] = {name: CATALOG.system(name) for name in MACHINES}
LAWS: Calibration = CATALOG.calibration("h100-sxm5-80")

kinds = st.sampled_from(KINDS)
machines = st.sampled_from(MACHINES)
sizes = st.floats(1e2, 1e10)
# Ranks and strides in powers of two, as layouts are.
groups = st.builds(
    lambda ranks, stride: RankGroup(size_count=2**ranks, stride_count=2**stride),
    st.integers(1, 7),
    st.integers(0, 4),
)


def seconds(kind: str, size: float, group: RankGroup, system: System) -> float:
    return collective_time(kind, size, group, system, LAWS).time_s


@settings(max_examples=200, deadline=None)
@given(kind=kinds, machine=machines, size=sizes, group=groups, factor=st.floats(1.0, 50.0))
def test_a_larger_message_never_takes_less(
    kind: str, machine: str, size: float, group: RankGroup, factor: float
) -> None:
    system = SYSTEMS[machine]
    assert seconds(kind, size * factor, group, system) >= seconds(kind, size, group, system) * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(kind=kinds, machine=machines, size=sizes, group=groups, factor=st.floats(1.0, 10.0), which=st.integers(0, 3))
def test_more_bandwidth_is_never_slower(
    kind: str, machine: str, size: float, group: RankGroup, factor: float, which: int
) -> None:
    system = SYSTEMS[machine]
    index = which % len(system.levels)
    faster = tuple(
        replace(item, oneway_bytes_per_s=item.oneway_bytes_per_s * factor) if i == index else item
        for i, item in enumerate(system.levels)
    )
    better = replace(system, levels=faster)
    assert seconds(kind, size, group, better) <= seconds(kind, size, group, system) * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(kind=kinds, machine=machines, size=sizes, group=groups)
def test_time_is_above_the_wire_and_its_parts_add_up(kind: str, machine: str, size: float, group: RankGroup) -> None:
    system = SYSTEMS[machine]
    found = collective_time(kind, size, group, system, LAWS)
    assert found.bandwidth_s + found.latency_s == pytest.approx(found.time_s)
    assert min(found.bandwidth_s, found.latency_s) >= 0
    # Whatever the algorithm, half of what a rank must at least receive passes its links at their full rate.
    received = size / group.size_count if kind != "send" else size
    fastest = max(max(t.oneway_bytes_per_s, t.pair_bytes_per_s) * t.inner_count for t in tiers(group, system))
    assert found.time_s >= 0.5 * received / fastest
    assert found.sigma > 0
    assert found.uses


@settings(max_examples=50, deadline=None)
@given(size=st.floats(1e7, 1e10), stride=st.sampled_from([1, 2, 4, 8]))
def test_sharing_the_cards_of_a_node_is_never_faster_than_having_them(size: float, stride: int) -> None:
    # 64 ranks that fill nodes against 64 ranks with stride s, of which s groups share each node.
    system = SYSTEMS["dgx-h100"]
    wide = seconds("all_gather", size, RankGroup(size_count=64, stride_count=stride), system)
    assert wide >= seconds("all_gather", size, RankGroup(size_count=64), system) * (1 - 1e-9)


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(1e2, 1e9), min_size=1, max_size=20), power=st.floats(0.4, 1.0))
def test_kernels_give_the_same_on_arrays_and_floats(values: list[float], power: float) -> None:
    array = np.array(values)
    many = protocol_switch_s(array / 1e9, saturating_transfer_s(array, 1e11, 1e6, power), 8.0)
    one = [protocol_switch_s(v / 1e9, saturating_transfer_s(v, 1e11, 1e6, power), 8.0) for v in values]
    assert many == pytest.approx(one, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(kind=kinds, machine=machines, values=st.lists(st.floats(0.0, 1e10), min_size=1, max_size=8), group=groups)
def test_array_path_and_scalar_path_agree(kind: str, machine: str, values: list[float], group: RankGroup) -> None:
    system = SYSTEMS[machine]
    many = collective_times_s(kind, np.array(values), group, system, LAWS)
    one = [seconds(kind, value, group, system) if value >= 1.0 or value == 0.0 else None for value in values]
    assert [m for m, o in zip(many, one, strict=True) if o is not None] == pytest.approx(
        [o for o in one if o is not None], rel=1e-9
    )
