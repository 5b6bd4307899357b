"""What must hold of failures and checkpoints, whatever the figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.core import Interval
from ridgeline.specs import Reliability
from ridgeline.training import RunConditions, estimate_goodput
from ridgeline.training.goodput import daly_interval_s, effective_time_frac

DAY_S = 86400.0
EXACT = Interval.exact
runs = st.builds(
    RunConditions,
    run_s=st.floats(1e4, 1e8).map(EXACT),
    step_s=st.floats(0.1, 60.0),
    devices_count=st.integers(1, 100_000),
    devices_per_node_count=st.sampled_from([1, 4, 8, 72]),
    checkpoint_bytes=st.floats(1e8, 1e14),
    loaded_bytes=st.floats(1e8, 1e15),
    host_oneway_bytes_per_s=st.sampled_from([None, 1e10, 1e11]),
)
machines = st.builds(
    Reliability,
    id=st.just("any"),
    node_failures_per_s=st.floats(1e-10, 1e-6).map(EXACT),
    device_share_frac=st.floats(0.0, 1.0).map(EXACT),
    detect_s=st.floats(1.0, 600.0).map(EXACT),
    restart_s=st.floats(10.0, 3600.0).map(EXACT),
    repair_s=st.floats(1e3, 1e6).map(EXACT),
    write_node_bytes_per_s=st.floats(1e7, 1e10).map(EXACT),
    read_node_bytes_per_s=st.floats(1e7, 1e10).map(EXACT),
    blocking_s=st.floats(0.0, 10.0).map(EXACT),
    slow_frac=st.floats(0.0, 0.3).map(EXACT),
    reference_devices_count=st.just(8.0),
    asynchronous=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(run=runs, machine=machines)
def test_shares_are_shares_and_the_time_adds_up(run: RunConditions, machine: Reliability) -> None:
    found = estimate_goodput(run, machine)
    assert 0 <= found.goodput_frac.best <= found.ettr_frac.best <= 1
    if found.goodput_frac.best > 1e-6:
        assert found.time.check() == []
        assert found.time.value == pytest.approx(found.run_s.best, rel=1e-6)
        assert min(part.value for part in found.time.parts) >= 0
        assert found.run_s.best >= run.run_s.best * (1 - 1e-12)


@settings(max_examples=150, deadline=None)
@given(run=runs, machine=machines, more=st.integers(1, 100_000))
def test_more_nodes_never_raise_the_effective_share(run: RunConditions, machine: Reliability, more: int) -> None:
    """The storage of a known rate, so that it does not grow with the nodes, and nothing copied to hosts."""
    known = replace(machine, storage_bytes_per_s=1e11)
    still = replace(run, host_oneway_bytes_per_s=None, devices_count=run.devices_per_node_count)
    wider = replace(still, devices_count=run.devices_per_node_count * (1 + more))
    few, many = (estimate_goodput(item, replace(known, interval_s=3600.0)) for item in (still, wider))
    assert many.ettr_frac.best <= few.ettr_frac.best + 1e-12
    few, many = (estimate_goodput(item, known) for item in (still, wider))
    assert many.ettr_frac.best <= few.ettr_frac.best * (1 + 2e-3)  # the interval is a series, not the exact optimum


@settings(max_examples=150, deadline=None)
@given(run=runs, machine=machines, faster=st.floats(1.0, 100.0))
def test_faster_storage_never_lowers_it(run: RunConditions, machine: Reliability, faster: float) -> None:
    slow = replace(machine, storage_bytes_per_s=1e10, interval_s=None)
    quick = replace(slow, storage_bytes_per_s=1e10 * faster)
    before, after = (estimate_goodput(run, item) for item in (slow, quick))
    assert after.ettr_frac.best >= before.ettr_frac.best * (1 - 2e-3)


@given(write_s=st.floats(0.1, 600.0), between_s=st.floats(1e3, 1e7), other=st.floats(0.05, 20.0))
def test_the_interval_is_a_minimum_of_what_is_lost(write_s: float, between_s: float, other: float) -> None:
    """Any other interval leaves no more than Daly's, up to the error of the series where the write is short."""
    best = float(daly_interval_s(write_s, between_s))
    at_best, at_other = (
        float(effective_time_frac(tau + write_s, write_s, 0.0, between_s)) for tau in (best, best * other)
    )
    assert at_other <= at_best * (1 + 1e-3)
    if not 0.8 < other < 1.25:
        assert at_other < at_best


@given(recovery_s=st.floats(0.0, 3600.0), between_s=st.floats(1e3, 1e7))
def test_longer_recovery_never_helps(recovery_s: float, between_s: float) -> None:
    shares = [
        float(effective_time_frac(1000.0, 10.0, recovery, between_s)) for recovery in (recovery_s, recovery_s + 1)
    ]
    assert shares[1] < shares[0] < 1
