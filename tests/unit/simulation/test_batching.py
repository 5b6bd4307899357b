"""Dynamic batching: the rules one by one, and queues whose answer is known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ridgeline.errors import BadPlan
from ridgeline.simulation.batching import BatchingRun, BatchTimes, DynamicBatching, simulate_batching
from ridgeline.simulation.percentiles import Sampled, distribution, warm_up_count
from ridgeline.simulation.traffic import ClosedLoop, FixedLengths, OpenLoop, Replay
from ridgeline.specs.requests import Requests

ONE = FixedLengths(input_tokens=1, output_tokens=0)


def times(*device_s: float, host_s: float = 0.0, cv: float = 0.0) -> BatchTimes:
    return BatchTimes(host_s=np.full(len(device_s), host_s), device_s=np.array(device_s), cv_frac=cv)


def run(arrived_s: list[float], batch: BatchTimes, **options: object) -> BatchingRun:
    load = Requests.of(arrived_s, [1] * len(arrived_s), [0] * len(arrived_s))
    settings = DynamicBatching(max_batch_count=len(batch.device_s), **options)  # type: ignore[arg-type]
    return simulate_batching(Replay(requests=load), batch, settings, np.random.default_rng(0))


def poisson(rate: float, count: int, batch: BatchTimes, seed: int = 1, **options: object) -> BatchingRun:
    settings = DynamicBatching(max_batch_count=len(batch.device_s), **options)  # type: ignore[arg-type]
    traffic = OpenLoop(rate_per_s=rate, count=count, lengths=ONE)
    return simulate_batching(traffic, batch, settings, np.random.default_rng(seed))


def test_without_delay_what_waits_goes_together() -> None:
    # 0 starts alone at 0 (ends 1); those of 0.1, 0.2 and 0.3 wait and start together at 1, at most 2 at once
    found = run([0.0, 0.1, 0.2, 0.3], times(1.0, 1.5))
    assert found.batch_count.tolist() == [1, 2, 1]
    assert found.finished_s.tolist() == [1.0, 2.5, 2.5, 3.5]


def test_a_delay_gathers_until_the_oldest_has_waited_long_enough() -> None:
    found = run([0.0, 0.2, 1.0], times(1.0, 1.0, 1.0, 1.0), delay_s=0.5)
    assert found.batch_started_s.tolist() == [0.5, 1.5]
    assert found.batch_count.tolist() == [2, 1]


def test_a_full_batch_does_not_wait_for_the_delay() -> None:
    found = run([0.0, 0.2, 0.3], times(1.0, 1.0, 1.0), delay_s=5.0)
    assert found.batch_started_s.tolist() == [0.3]


def test_preferred_sizes_are_formed_and_the_rest_waits_its_delay() -> None:
    # 5 wait when the instance is free at 1: the largest preferred size is 4; the fifth (of 0.5) waits until 0.5 + 2
    found = run([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], times(*[1.0] * 8), preferred_counts=(2, 4), delay_s=0.0)
    assert found.batch_count.tolist() == [1, 4, 1]
    late = run([0.1, 0.2, 0.3, 0.4, 0.5], times(*[1.0] * 8), preferred_counts=(4,), delay_s=2.0)
    assert late.batch_count.tolist() == [4, 1]
    assert late.batch_started_s.tolist() == [0.4, 2.5]


def test_a_full_queue_refuses_and_old_requests_expire() -> None:
    full = run([0.0, 0.1, 0.2, 0.3], times(1.0), queue_count=1)
    assert full.state.tolist() == [0, 0, 1, 1]
    old = run([0.0, 0.1, 0.2], times(1.0), timeout_s=0.85)
    # that of 0.1 has waited 0.9 at 1.0 and is dropped; that of 0.2 has waited 0.8 and starts
    assert old.state.tolist() == [0, 2, 0]
    assert math.isnan(old.finished_s[1])


def test_instances_hide_the_host_but_share_the_device() -> None:
    # One instance: 1 s host and 1 s device in turn, 2 s a request. Two that start together: 1 s host side by side, then
    # 2 s on the device that both share, 1.5 s a request. A second one that starts 1 s later never meets the first: 1 s.
    lone = run([0.0] * 100, times(1.0, host_s=1.0))
    pair = run([0.0] * 100, times(1.0, host_s=1.0), instances_count=2)
    apart = run([0.0, 1.0, *[1.5] * 98], times(1.0, host_s=1.0), instances_count=2)
    assert lone.span_s == pytest.approx(200.0)
    assert pair.span_s == pytest.approx(150.0)
    assert apart.span_s == pytest.approx(101.0)
    # Without host time a second instance brings nothing.
    assert run([0.0] * 100, times(1.0), instances_count=2).span_s == pytest.approx(100.0)
    # A second device halves the time.
    assert run([0.0] * 100, times(1.0), devices_count=2).span_s == pytest.approx(50.0)


def waits(found: BatchingRun) -> np.ndarray:
    waited = found.started_s - found.arrived_s
    return waited[warm_up_count(waited) :]


def assert_holds(found: Sampled, truth: float) -> None:
    """The truth lies within twice the 95 % range (99.5 % with five runs), and the range is narrow."""
    assert found.high is not None
    assert abs(found.best - truth) <= 2 * (found.high - found.best), (found, truth)
    assert found.high - found.best < 0.15 * truth


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_one_at_a_time_at_constant_speed_is_an_m_d_1_queue(load: float) -> None:
    found = distribution([waits(poisson(load, 16_000, times(1.0), seed)) for seed in range(5)])
    assert found is not None
    assert_holds(found.mean, load / (2 * (1 - load)))  # Pollaczek and Khinchine


@pytest.mark.parametrize(("load", "servers"), [(0.5, 1), (0.8, 1), (0.7, 3)])
def test_exponential_times_are_an_m_m_c_queue(load: float, servers: int) -> None:
    runs = [
        waits(poisson(load * servers, 16_000, times(1.0, cv=1.0), seed, devices_count=servers)) for seed in range(5)
    ]
    found = distribution(runs)
    assert found is not None
    offered = load * servers
    states = [offered**n / math.factorial(n) for n in range(servers)]
    tail = offered**servers / math.factorial(servers) / (1 - load)
    must_wait = tail / (sum(states) + tail)  # Erlang C
    assert_holds(found.mean, must_wait / (servers * (1 - load)))
    # The wait of those that wait is exponential, so its 95th percentile over all is ln(20 C) / (c - offered).
    assert_holds(found.p95, math.log(must_wait / 0.05) / (servers - offered))


def test_unlimited_batches_of_constant_time() -> None:
    """Whoever comes while a batch runs joins the next one: wait = s / 2 with the chance that a batch runs.

    A batch is followed at once by another unless nobody came meanwhile (chance e^-rs), then by 1/r of idleness:
    busy = s / (s + e^-rs / r). Poisson arrivals see that share.
    """
    rate, step_s = 3.0, 0.5
    busy = step_s / (step_s + math.exp(-rate * step_s) / rate)
    runs = [poisson(rate, 20_000, times(*[step_s] * 64), seed) for seed in range(5)]
    found = distribution([waits(run) for run in runs])
    assert found is not None
    assert_holds(found.mean, busy * step_s / 2)
    assert np.mean([run.device_busy_frac for run in runs]) == pytest.approx(busy, rel=0.01)


def test_batches_of_up_to_b_with_exponential_times() -> None:
    """The bulk queue M/M(1,B)/1: n wait beside a batch with p10 r^n, r the root of (l + m) r = l + m r^(B+1)."""
    rate, most = 2.5, 4
    low, high = 0.0, 1.0 - 1e-9
    for _ in range(200):
        root = (low + high) / 2
        low, high = (root, high) if rate - (rate + 1) * root + root ** (most + 1) > 0 else (low, root)
    ratio = rate  # p10 / p00 with m = 1
    nobody = 1 / (1 + ratio / (1 - root))
    queue = ratio * nobody * root / (1 - root) ** 2
    found = distribution([waits(poisson(rate, 20_000, times(*[1.0] * most, cv=1.0), seed)) for seed in range(5)])
    assert found is not None
    assert_holds(found.mean, queue / rate)


def test_little_and_conservation_hold_to_the_last_digit() -> None:
    found = poisson(3.0, 5000, times(0.4, 0.5, 0.6, 0.7), delay_s=0.1, preferred_counts=(4,), queue_count=9)
    served = found.served
    waited = np.nansum(np.where(served, found.started_s - found.arrived_s, 0.0))
    assert found.queue_mean * found.finished_s[served].max() == pytest.approx(waited, rel=1e-9)
    assert found.batch_count.sum() == served.sum()
    assert served.sum() + (found.state == 1).sum() == 5000


def test_users_in_a_closed_loop_obey_littles_law() -> None:
    loop = ClosedLoop(users_count=20, count=20_000, lengths=ONE, think_s=3.0)
    settings = DynamicBatching(max_batch_count=8)
    found = simulate_batching(loop, times(*[0.5 + 0.1 * n for n in range(8)]), settings, np.random.default_rng(3))
    stay = (found.finished_s - found.arrived_s).mean()
    assert len(found.arrived_s) / found.span_s * (stay + 3.0) == pytest.approx(20, rel=0.02)


def test_options_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(BadPlan, match="preferred size 9 is not between 1 and the largest batch 2"):
        run([0.0], times(1.0, 1.0), preferred_counts=(9,))
    with pytest.raises(BadPlan, match="times of 1 sizes for batches of up to 4"):
        simulate_batching(
            OpenLoop(rate_per_s=1, count=1, lengths=ONE),
            times(1.0),
            DynamicBatching(max_batch_count=4),
            np.random.default_rng(0),
        )


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second = (poisson(2.0, 500, times(0.4, 0.5, cv=0.5), seed=8) for _ in range(2))
    assert first.finished_s.tobytes() == second.finished_s.tobytes()
