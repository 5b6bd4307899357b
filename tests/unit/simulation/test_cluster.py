"""Several replicas: routing, pools of prefill and decode, prefix caches, scaling."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.simulation.toys import drawn, job, limits, theory

from ridgeline.simulation.engine import prepare
from ridgeline.simulation.options import Pool, Scaling, SimulationOptions
from ridgeline.simulation.steps import linear_table
from ridgeline.specs.requests import Requests

STEP = linear_table(step_s=1.0)


def routed(requests: Requests, routing: str, replicas: int = 2, **bounds: float) -> list[int]:
    made = theory(STEP, requests, limits(**bounds), options=SimulationOptions(routing=routing), replicas=replicas)
    return made.run().replica.tolist()


def test_round_robin_takes_turns_and_least_loaded_looks():
    """Replica 0 is busy with a long answer when the others come."""
    requests = Requests.of([0.0, 0.5, 5.0, 9.0], [1] * 4, [100, 2, 2, 2])
    assert routed(requests, "round-robin") == [0, 1, 0, 1]
    assert routed(requests, "least-loaded") == [0, 1, 1, 1]


def test_prefix_aware_routing_finds_the_cache():
    """Two conversations alternate; each stays where its beginning is; a load that is too uneven breaks it."""
    prefixes = [[(1, 64)], [(2, 64)], [(1, 64), (11, 64)], [(2, 64), (12, 64)], [(1, 64), (11, 64), (21, 64)]]
    requests = Requests.of([0.0, 0.1, 50.0, 60.0, 70.0], [200] * 5, [3] * 5, prefixes)
    bounds = {"blocks_count": 200}
    options = SimulationOptions(routing="prefix-aware")
    trace = theory(STEP, requests, limits(**bounds), options=options, replicas=2).run()
    assert trace.replica.tolist() == [0, 1, 0, 1, 0]
    assert trace.cached_tokens.tolist() == [0, 0, 64, 64, 128]


def test_prefixes_are_kept_until_room_is_needed_and_the_last_pieces_go_first():
    """A pool of 20 blocks of 16: a beginning of 128 tokens stays; a long request pushes its tail out, not its head."""
    first = [(1, 64), (2, 64)]
    requests = Requests.of([0.0, 10.0, 20.0, 30.0], [144, 144, 240, 144], [2, 2, 2, 2], [first, first, [], first])
    trace = theory(STEP, requests, limits(blocks_count=20)).run()
    assert trace.cached_tokens.tolist() == [0, 128, 0, 64]
    off = theory(STEP, requests, limits(blocks_count=20), options=SimulationOptions(prefix_cache=False)).run()
    assert off.cached_tokens.sum() == 0


def test_a_prefix_is_read_once_and_shared_while_it_is_used():
    """Ten requests at once with one beginning: nine of them find it, and its blocks are held once."""
    count, shared = 10, [(5, 1600)]
    requests = Requests.of([0.0] + [0.5] * (count - 1), [1616] * count, [50] * count, [shared] * count)
    trace = theory(STEP, requests, limits(blocks_count=10_000, step_tokens=4096, chunk_tokens=4096)).run()
    assert trace.cached_tokens.tolist() == [0] + [1600] * (count - 1)
    spans = np.diff(trace.intervals.edges_s)
    assert trace.intervals.read_tokens_per_s @ spans == pytest.approx(1616 + 16 * (count - 1))
    # 100 blocks of the beginning and 2 to 5 of each: far from ten times the beginning.
    assert 110 < trace.intervals.cache_frac.max() * 10_000 < 155
    assert trace.intervals.cache_frac[-1] * 10_000 < 155


def test_pools_of_prefill_and_decode_pay_the_way_between_them():
    requests = drawn(200, 4.0, inputs=600, outputs=100)
    given = (Pool(job=job(), role="decode"), Pool(job=job(), role="prefill"))
    slow, fast = (
        prepare(given, requests, SimulationOptions(link_bytes_per_s=rate, link_latency_s=1e-3)).run()
        for rate in (5e9, 500e9)
    )
    for trace in (slow, fast):
        assert trace.answered.all()
        made = trace.intervals.made_tokens_per_s @ np.diff(trace.intervals.edges_s)
        assert made == pytest.approx(requests.output_tokens.sum())
        assert (trace.replica[requests.output_tokens > 1] == 1).all()
    # Llama-2-7B: 32 layers x 2 x 4096 x 2 B = 524,288 bytes a token; queueing on the link comes on top.
    least_s = requests.input_tokens * 524288 * (1 / 5e9 - 1 / 500e9)
    later = slow.finished_s - fast.finished_s
    assert np.median(later[requests.output_tokens > 50] / least_s[requests.output_tokens > 50]) > 0.9
    assert slow.first_token_s == pytest.approx(fast.first_token_s, rel=1e-6)


def test_replicas_share_a_load_that_one_cannot_carry():
    requests = drawn(600, 24.0, inputs=600)
    one, four = (prepare((Pool(job=job(), replicas_count=n),), requests).run() for n in (1, 4))
    assert np.median(one.finished_s - one.arrived_s) > 3 * np.median(four.finished_s - four.arrived_s)
    assert np.bincount(four.replica, minlength=4).min() > 100


def test_replicas_start_under_load_and_are_given_back():
    """Steps of 1 s, one sequence at a time, two requests a replica: a burst calls all four, which take what comes once
    they are up (the queue of the first stays where it is) and go when the load is gone."""
    times = np.concatenate((np.arange(40) * 0.1, [30.0, 30.1, 30.2, 600.0]))
    burst = Requests.of(times, [1] * 44, [10] * 44)
    scaling = Scaling(target_count=2.0, startup_s=20.0, least_count=1, check_s=5.0, calm_s=30.0)
    options = SimulationOptions(scaling=scaling, intervals_count=400)
    trace = theory(STEP, burst, limits(sequences_count=1), options=options, replicas=4).run()
    at, paid = trace.intervals.edges_s[:-1], trace.intervals.replicas_count
    assert paid[at < 3.0].max() == pytest.approx(1.0)
    assert paid[(at > 8.0) & (at < 60.0)].min() == pytest.approx(4.0)
    assert paid[(at > 500.0) & (at < 595.0)].max() == pytest.approx(1.0)
    assert trace.replica.tolist() == [0] * 40 + [1, 2, 3, 0]
    assert trace.started_s[40:43] == pytest.approx([30.0, 30.1, 30.2])
