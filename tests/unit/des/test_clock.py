"""The clock and its stations: order, ties, stop rules, and the closed forms of queues."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ridgeline.des import Clock, Pool, SharedRate, Station, Store


def clock(seed: int = 0) -> Clock:
    return Clock(np.random.default_rng(seed))


def test_events_come_in_order_of_time_and_ties_in_order_of_scheduling():
    now, seen = clock(), []
    for name, time_s in (("late", 3.0), ("a", 1.0), ("b", 1.0), ("c", 1.0)):
        now.at(time_s, lambda name=name: seen.append(name))
    assert now.run() == 4
    assert seen == ["a", "b", "c", "late"]


def test_run_stops_at_a_time_after_a_count_and_on_demand():
    now, seen = clock(), []
    for time_s in (1.0, 2.0, 3.0, 4.0):
        now.at(time_s, lambda time_s=time_s: seen.append(time_s))
    assert now.run(until_s=2.0) == 2
    assert now.now_s == 2.0
    assert now.run(events_count=1) == 1
    assert now.now_s == 3.0
    now.at(3.5, now.stop)
    assert now.run() == 1
    assert seen == [1.0, 2.0, 3.0]
    assert now.next_s == 4.0


def test_the_past_and_nonsense_are_refused_and_cancelled_events_pass():
    now, seen = clock(), []
    now.at(1.0, lambda: seen.append(1)).cancel()
    now.at(2.0, lambda: seen.append(2))
    now.run()
    assert seen == [2]
    for wrong in (1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="cannot be scheduled"):
            now.at(wrong, lambda: None)


def queue(servers: int, rate: float, service, count: int, seed: int) -> tuple[float, float]:
    """Mean waiting and mean busy of a station under Poisson arrivals."""
    now = clock(seed)
    station: Station[int] = Station(now, servers, lambda item: service(now.generator), lambda item: None)

    def arrive(left: int) -> None:
        station.offer(left)
        if left:
            now.after(now.generator.exponential(1 / rate), lambda: arrive(left - 1))

    arrive(count)
    now.run()
    return station.waiting.mean(), station.busy.mean()


def erlang_c(servers: int, load: float) -> float:
    """Chance of waiting in M/M/c at `load` Erlang."""
    top = load**servers / math.factorial(servers) * servers / (servers - load)
    return top / (sum(load**k / math.factorial(k) for k in range(servers)) + top)


@pytest.mark.parametrize(
    ("servers", "load", "service", "expected"),
    [
        (1, 0.7, lambda g: g.exponential(), 0.7**2 / 0.3),  # M/M/1: rho^2 / (1 - rho)
        (1, 0.7, lambda g: 1.0, 0.7**2 / (2 * 0.3)),  # M/D/1: half of it
        (4, 3.0, lambda g: g.exponential(), erlang_c(4, 3.0) * 3.0 / (4 - 3.0)),  # M/M/c: C rho / (1 - rho)
    ],
)
def test_queues_have_the_lengths_of_their_closed_forms(servers, load, service, expected):
    """Derived values; the mean of replications lies within three standard errors."""
    found = [queue(servers, load, service, 8000, seed) for seed in range(8)]
    waiting, busy = np.array(found).T
    assert abs(waiting.mean() - expected) < 3 * waiting.std(ddof=1) / math.sqrt(len(waiting)) + 0.01 * expected
    assert busy.mean() == pytest.approx(load, rel=0.03)


def test_a_full_queue_refuses_as_erlang_b_says():
    """M/M/2/2 at two Erlang: 2/5 of the arrivals are lost (Erlang B, derived)."""
    now = clock(3)
    station: Station[int] = Station(now, 2, lambda item: now.generator.exponential(), lambda item: None, queue_count=0)

    def arrive(left: int) -> None:
        station.offer(left)
        if left:
            now.after(now.generator.exponential(0.5), lambda: arrive(left - 1))

    arrive(20000)
    now.run()
    assert station.refused_count / 20001 == pytest.approx(0.4, abs=0.02)


def test_a_shared_rate_is_processor_sharing():
    """M/M/1 with processor sharing has rho / (1 - rho) jobs at work in the mean, whatever the sizes: here constant."""
    now = clock(5)
    shared = SharedRate(now, 1.0)

    def arrive(left: int) -> None:
        shared.start(1.0, lambda: None)
        if left:
            now.after(now.generator.exponential(1 / 0.6), lambda: arrive(left - 1))

    arrive(20000)
    now.run()
    assert shared.running.mean() == pytest.approx(0.6 / 0.4, rel=0.06)


def test_limited_jobs_leave_their_share_to_others():
    now, ends = clock(), []
    shared = SharedRate(now, 10.0)
    shared.start(4.0, lambda: ends.append(("slow", now.now_s)), most_per_s=2.0)
    shared.start(16.0, lambda: ends.append(("fast", now.now_s)))
    now.run()
    assert ends == [("slow", 2.0), ("fast", 2.0)]


def test_stores_block_the_sender_and_pools_serve_in_order():
    now, log = clock(), []
    store: Store[str] = Store(now, room_count=1)
    store.put("a", lambda: log.append("a in"))
    store.put("b", lambda: log.append("b in"))
    assert (log, store.blocked_count) == (["a in"], 1)
    store.get(lambda item: log.append(f"got {item}"))
    assert log[1:] == ["got a", "b in"] or log[1:] == ["b in", "got a"]
    pool = Pool(now, 3)
    pool.take(2, lambda: log.append("two"))
    pool.take(3, lambda: log.append("three"))
    pool.take(1, lambda: log.append("one"))
    assert log[-1] == "two"
    pool.give(2)
    assert log[-1] == "three"
    pool.give(3)
    assert log[-1] == "one"
    with pytest.raises(ValueError, match="can never give"):
        pool.take(4, lambda: None)
