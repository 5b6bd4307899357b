"""Failures and checkpoints: each formula by hand, and what the estimate makes of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ridgeline.core import Interval
from ridgeline.specs import Reliability
from ridgeline.training import RunConditions, estimate_goodput
from ridgeline.training.goodput import (
    between_failures_s,
    checkpoint_bytes,
    daly_interval_s,
    effective_time_frac,
    node_failures_per_s,
    recovering_frac,
    spares_needed_count,
    spares_ready_frac,
    young_interval_s,
)

DAY_S, HOUR_S = 86400.0, 3600.0
EXACT = Interval.exact


def reliability(**changes: object) -> Reliability:
    """A machine whose node of eight fails once in 100 days."""
    figures: dict[str, object] = {
        "id": "test",
        "node_failures_per_s": Interval(0.005 / DAY_S, 0.01 / DAY_S, 0.02 / DAY_S),
        "device_share_frac": EXACT(0.5),
        "detect_s": EXACT(60.0),
        "restart_s": Interval(300.0, 600.0, 1200.0),
        "repair_s": EXACT(DAY_S),
        "write_node_bytes_per_s": EXACT(1e9),
        "read_node_bytes_per_s": EXACT(2e9),
        "blocking_s": EXACT(1.0),
        "slow_frac": EXACT(0.0),
        "reference_devices_count": 8.0,
    }
    return Reliability(**{**figures, **changes})  # type: ignore[arg-type]


RUN = RunConditions(
    run_s=EXACT(30 * DAY_S),
    step_s=10.0,
    devices_count=800,
    devices_per_node_count=8,
    checkpoint_bytes=2e12,
    loaded_bytes=4e12,
    host_oneway_bytes_per_s=25e9,
)


def test_nodes_in_series() -> None:
    """100 nodes, each failing once in 100 days: one failure a day."""
    assert between_failures_s(100, 0.01 / DAY_S) == pytest.approx(DAY_S)


def test_a_node_of_four_devices_keeps_what_is_not_of_the_devices() -> None:
    """0.5 x 4/8 + 0.5 = 0.75 of the rate; twice the devices: 1.5."""
    assert node_failures_per_s(1.0, 0.5, 4.0, 8.0) == 0.75
    assert node_failures_per_s(1.0, 0.5, 16.0, 8.0) == 1.5


def test_checkpoint_of_partial_training() -> None:
    """10 parameters of 2 B, a tenth of them with 12 B of states: 20 + 12."""
    assert checkpoint_bytes(10.0, 0.1, 2.0, 12.0) == pytest.approx(32.0)


def test_young_by_hand() -> None:
    """sqrt(2 x 50 x 10,000) = 1,000."""
    assert young_interval_s(50.0, 10_000.0) == pytest.approx(1000.0)


def test_daly_by_hand() -> None:
    """delta 2, M 100: ratio 0.01, sqrt 0.1; 20 x (1 + 0.1/3 + 0.01/9) - 2 = 18.6889; beyond 2 M the interval is M."""
    assert daly_interval_s(2.0, 100.0) == pytest.approx(20 * (1 + 1 / 30 + 1 / 900) - 2)
    assert daly_interval_s(300.0, 100.0) == 100.0


def test_daly_takes_arrays() -> None:
    assert daly_interval_s(np.array([2.0, 300.0]), 100.0).tolist() == pytest.approx([18.688889, 100.0])


def test_effective_time_by_hand() -> None:
    """tau 90 of a period of 100, M 1,000, R 50: 90 / (1000 e^0.05 (e^0.1 - 1)); first order 0.9 (1 - 0.1)."""
    found = effective_time_frac(100.0, 10.0, 50.0, 1000.0)
    assert found == pytest.approx(90 / (1000 * math.exp(0.05) * (math.exp(0.1) - 1)))
    assert found == pytest.approx(0.9 * 0.9, abs=0.005)


def test_effective_time_is_what_a_simulation_finds() -> None:
    """Exponential failures that also strike recoveries, 400 failures' worth of a run, five standard errors."""
    period, stall, recovery, mean = 100.0, 10.0, 50.0, 300.0
    rng = np.random.default_rng(1)
    now, done = 0.0, 0
    left = rng.exponential(mean)
    while done < 4000:
        need = period
        while left < need:  # the failure comes first: recover, then the same period again
            now += left
            left = rng.exponential(mean)
            while left < recovery:
                now += left
                left = rng.exponential(mean)
            now += recovery
            left -= recovery
        now += need
        left -= need
        done += 1
    assert done * (period - stall) / now == pytest.approx(effective_time_frac(period, stall, recovery, mean), rel=0.03)


def test_recovering_share_by_hand() -> None:
    assert recovering_frac(100.0, 1000.0) == pytest.approx(1 - math.exp(-0.1))


def test_spares_by_hand() -> None:
    """Load 1: Erlang's loss is 1/2, 1/5, 1/16, 1/65, 1/326 with one to five places; the job itself has the first."""
    rate = 1.0 / DAY_S
    ready = [spares_ready_frac(1, rate, DAY_S, spares) for spares in range(5)]
    assert ready == pytest.approx([1 / 2, 4 / 5, 15 / 16, 64 / 65, 325 / 326])
    assert spares_needed_count(10, rate / 10, DAY_S, 0.99) == 4
    assert spares_needed_count(10, rate / 10, DAY_S, 0.98) == 3
    assert spares_needed_count(10, 0.0, DAY_S, 0.99) == 0


def test_the_time_adds_up_and_says_where_it_goes() -> None:
    """100 nodes fail once a day; 2 TB at 100 GB/s are safe after 20 s; each device copies 2.5 GB in 0.1 s."""
    found = estimate_goodput(RUN, reliability())
    assert found.time.check() == []
    assert found.time.value == pytest.approx(found.run_s.best)
    assert found.between_failures_s == pytest.approx(DAY_S)
    assert (found.write_s, found.stall_s) == (pytest.approx(20.0), pytest.approx(1.1))
    assert found.recovery_s == pytest.approx(60 + 600 + 20 - 1.1)
    assert found.period_s == pytest.approx(daly_interval_s(1.1, DAY_S) + 1.1)
    assert found.failures_count == pytest.approx(found.run_s.best / DAY_S)
    assert found.time.value_of("restarts") == pytest.approx(found.failures_count * 600, rel=0.01)
    assert found.time.value_of("steps") == 30 * DAY_S
    assert found.ettr_frac.best == pytest.approx(30 * DAY_S / found.run_s.best)


def test_a_synchronous_checkpoint_stops_for_the_whole_write() -> None:
    found = estimate_goodput(RUN, reliability(asynchronous=False))
    assert found.stall_s == found.write_s == pytest.approx(20.0)
    assert found.time.value_of("steps not yet saved") == 0
    assert found.ettr_frac.best < estimate_goodput(RUN, reliability()).ettr_frac.best


def test_storage_that_is_known_goes_before_the_share_of_a_node() -> None:
    found = estimate_goodput(RUN, reliability(storage_bytes_per_s=1e9, asynchronous=False))
    assert found.write_s == pytest.approx(2000.0)
    assert found.recovery_s == pytest.approx(60 + 4000)  # loading 4 TB takes longer than the restart


def test_a_checkpoint_waits_for_the_last_one() -> None:
    found = estimate_goodput(RUN, reliability(storage_bytes_per_s=1e9))
    assert found.period_s == found.write_s == pytest.approx(2000.0)


def test_an_interval_that_is_given_is_kept() -> None:
    assert estimate_goodput(RUN, reliability(interval_s=HOUR_S)).period_s == HOUR_S


def test_too_few_spares_wait_for_repairs() -> None:
    """A failure a day, a day of repair: without a spare the job waits half of the time."""
    found = estimate_goodput(RUN, reliability(spares_count=0))
    assert found.goodput_frac.best == pytest.approx(found.ettr_frac.best / 2)
    assert found.time.value_of("waiting for repairs") == pytest.approx(found.run_s.best / 2)
    assert found.time.check() == []
    assert found.spares_count == 4


def test_slow_parts_are_not_failures() -> None:
    found = estimate_goodput(RUN, reliability(slow_frac=EXACT(0.1)))
    assert found.goodput_frac.best == pytest.approx(0.9 * found.ettr_frac.best)
    assert found.time.value_of("slow parts") == pytest.approx(0.1 * found.run_s.best)


def test_the_interval_covers_what_is_uncertain() -> None:
    found = estimate_goodput(RUN, reliability())
    worse = estimate_goodput(RUN, reliability(node_failures_per_s=EXACT(0.02 / DAY_S)))
    assert found.ettr_frac.low < worse.ettr_frac.best < found.ettr_frac.best < found.ettr_frac.high < 1
    steps = replace(RUN, run_s=Interval(27 * DAY_S, 30 * DAY_S, 33 * DAY_S))
    assert estimate_goodput(steps, reliability()).run_s.low < found.run_s.low


def test_a_run_that_hardly_moves_says_so() -> None:
    found = estimate_goodput(RUN, reliability(node_failures_per_s=EXACT(2.0 / DAY_S)))
    assert [note.kind for note in found.notes] == ["out-of-range", "not-modelled"]


def test_a_single_device_is_a_node_with_the_rest_of_it() -> None:
    """0.5/8 + 0.5 of the rate of a node of eight."""
    found = estimate_goodput(replace(RUN, devices_count=1), reliability())
    assert found.between_failures_s == pytest.approx(100 * DAY_S / 0.5625)
