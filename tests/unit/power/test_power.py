"""Power of chips, hosts and machines against hand calculations and published measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.core import Interval
from ridgeline.errors import MissingFact
from ridgeline.power import Activity, PowerLaw, chip_power_w, estimate_power
from ridgeline.specs import Chip, System

LAW = PowerLaw(
    base_frac=Interval(0.3, 0.45, 0.6),
    compute_share_frac=Interval(0.5, 0.8, 1.2),
    memory_share_frac=Interval(0.02, 0.2, 0.5),
    idle_frac=Interval(0.08, 0.13, 0.3),
    host_activity_frac=Interval(0.4, 0.61, 1.0),
    host_frac=Interval(0.15, 0.35, 0.6),
)
NODE = System(
    id="node",
    name="8 x 700 W",
    chip=Chip(id="chip", tdp_w=700.0, idle_w=70.0),
    devices_per_node_count=8,
    levels=(),
    node_power_w=10_200.0,
)


def test_chip_power_by_hand() -> None:
    # 70 + 630 x (0.45 + 0.8 x 0.4 + 0.2 x 0.3) = 70 + 630 x 0.83
    assert chip_power_w(70.0, 700.0, 0.4, 0.3, 0.45, 0.8, 0.2) == pytest.approx(592.9)
    assert chip_power_w(70.0, 700.0, 1.0, 1.0, 0.45, 0.8, 0.2) == 700.0


def test_node_power_by_hand() -> None:
    estimate = estimate_power(NODE, 16, Activity(compute_frac=0.4, memory_frac=0.3), LAW)
    chip_w = 592.9
    # host: 0.61 x (10,200 - 5,600) x (1 + 592.9/700) / 2 for 8 devices
    host_w = 0.61 * 4600 * (1 + chip_w / 700) / 2 / 8
    assert estimate.chip_w == pytest.approx(chip_w)
    assert estimate.host_per_device_w == pytest.approx(host_w)
    assert estimate.total_w.best == pytest.approx(16 * (chip_w + host_w))
    assert estimate.power.check() == []
    assert "chip.tdp_w" in estimate.uses
    assert estimate.notes == ()


def test_a_full_h100_node_draws_what_was_measured() -> None:
    """latif-2024: 8.4 kW at most on an 8-GPU H100 node in training, against a rating of 10.2 kW."""
    estimate = estimate_power(NODE, 8, Activity(compute_frac=0.9, memory_frac=0.5), LAW)
    assert estimate.total_w.best == pytest.approx(8400, rel=0.02)
    assert estimate.total_w.contains(8400)


def test_idle_shares_the_time() -> None:
    busy = estimate_power(NODE, 8, Activity(compute_frac=0.4, memory_frac=0.3), LAW)
    half = estimate_power(NODE, 8, Activity(compute_frac=0.4, memory_frac=0.3, busy_frac=0.5), LAW)
    assert half.chip_w == pytest.approx((busy.chip_w + 70.0) / 2)


def test_missing_facts_are_named_or_noted() -> None:
    with pytest.raises(MissingFact, match=r"chip\.tdp_w"):
        estimate_power(replace(NODE, chip=Chip(id="chip")), 8, Activity(compute_frac=0.1, memory_frac=0.1), LAW)
    poor = replace(NODE, chip=Chip(id="chip", tdp_w=100.0), node_power_w=None)
    estimate = estimate_power(poor, 8, Activity(compute_frac=0.5, memory_frac=0.0), LAW)
    # idle 13 W; chip 13 + 87 x 0.85; host 35 W a device
    assert estimate.chip_w == pytest.approx(13 + 87 * 0.85)
    assert estimate.host_per_device_w == pytest.approx(35.0)
    assert [note.kind for note in estimate.notes] == ["missing", "missing"]
    assert {"power.idle_frac", "power.host_frac"} <= set(estimate.uses)


@given(
    compute=st.floats(0, 1), more=st.floats(0, 1), memory=st.floats(0, 1), tdp=st.floats(1, 2000), busy=st.floats(0, 1)
)
def test_power_lies_between_idle_and_tdp_and_grows_with_work(
    compute: float, more: float, memory: float, tdp: float, busy: float
) -> None:
    system = replace(NODE, chip=Chip(id="c", tdp_w=tdp), node_power_w=None)
    low, high = sorted((compute, more))
    less = estimate_power(system, 8, Activity(compute_frac=low, memory_frac=memory, busy_frac=busy), LAW)
    most = estimate_power(system, 8, Activity(compute_frac=high, memory_frac=memory, busy_frac=busy), LAW)
    assert 0.13 * tdp * (1 - 1e-9) <= less.chip_w <= most.chip_w <= tdp * (1 + 1e-9)
    assert most.total_w.low <= most.total_w.best <= most.total_w.high
