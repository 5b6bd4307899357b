"""The simulator of engines: conservation, Little's law, memory, policies, and a plain simulator beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.simulation.naive import simulate
from tests.unit.simulation.toys import drawn, job, limits, theory

from ridgeline.errors import BadPlan, OutOfMemory
from ridgeline.simulation.cluster import Trace
from ridgeline.simulation.engine import Prepared, policy_of, prepare, simulate_serving
from ridgeline.simulation.options import Pool, SimulationOptions, Speculation, Users, tokens_of_a_step
from ridgeline.simulation.steps import linear_table
from ridgeline.specs import ServingPlan
from ridgeline.specs.requests import Requests


def short_of_memory(requests: Requests, blocks: int, **options: object) -> Prepared:
    """Llama-2-7B on an A100 with a pool of `blocks`."""
    made = prepare((Pool(job=job()),), requests, SimulationOptions(**options))  # type: ignore[arg-type]
    part = made.parts[0]
    return replace(made, parts=(replace(part, limits=replace(part.limits, blocks_count=blocks)),))


def conserves(trace: Trace, requests: Requests) -> None:
    """Nothing is lost: requests, tokens, and the area under those present is the sum of their times."""
    assert trace.answered.all()
    assert (trace.first_token_s >= trace.started_s).all()
    assert (trace.started_s >= trace.arrived_s).all()
    assert (trace.finished_s >= trace.first_token_s).all()
    over, spans = trace.intervals, np.diff(trace.intervals.edges_s)
    assert over.made_tokens_per_s @ spans == pytest.approx(requests.output_tokens.sum(), rel=1e-9)
    present = (over.waiting_count + over.running_count) @ spans
    assert present == pytest.approx((trace.finished_s - trace.arrived_s).sum(), rel=1e-9)
    assert trace.gap_counts.sum() == pytest.approx((requests.output_tokens - 1).sum())
    assert over.cache_frac.max() <= 1.0 + 1e-12
    assert over.cache_frac.min() >= -1e-12
    assert over.preemptions_count.sum() == pytest.approx(trace.preemptions.sum())


@pytest.mark.parametrize(
    ("engine", "batching"),
    [("vllm", "chunked"), ("vllm", "prompts-first"), ("tensorrt-llm", "chunked"), ("vllm@0.6", "engine")],
)
def test_requests_tokens_and_time_are_conserved(engine, batching):
    requests = drawn(600, 6.0)
    trace = simulate_serving(job(engine=engine), requests, SimulationOptions(batching=batching))
    conserves(trace, requests)
    read = trace.intervals.read_tokens_per_s @ np.diff(trace.intervals.edges_s)
    assert read == pytest.approx(requests.input_tokens.sum())


@pytest.mark.parametrize(("blocks", "rate"), [(7000, 6.0), (600, 20.0), (150, 20.0)])
def test_a_plain_simulator_says_the_same(blocks, rate):
    """Step by step, block by block: the same times to nine digits, the same preemptions."""
    requests = drawn(150, rate, inputs=600, outputs=150)
    made = short_of_memory(requests, blocks)
    trace = made.run()
    first, last, preempted = simulate(made)
    assert trace.first_token_s == pytest.approx([first[i] for i in range(150)], rel=1e-9)
    assert trace.finished_s == pytest.approx([last[i] for i in range(150)], rel=1e-9)
    assert trace.preemptions.tolist() == preempted


@pytest.mark.parametrize("batching", ["chunked", "prompts-first"])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_preemption_loses_no_token(batching, preemption):
    requests = drawn(400, 20.0, outputs=200)
    made = short_of_memory(requests, 300, batching=batching, preemption=preemption, swap_bytes_per_s=20e9)
    trace = made.run()
    assert trace.preemptions.sum() > 50
    conserves(trace, requests)
    read = trace.intervals.read_tokens_per_s @ np.diff(trace.intervals.edges_s)
    whole = requests.input_tokens.sum()
    assert read == pytest.approx(whole) if preemption == "swap" else read > 1.05 * whole


def test_no_evict_keeps_room_for_the_last_token():
    requests = drawn(400, 20.0, outputs=200)
    made = short_of_memory(requests, 300)
    kept = replace(made, parts=(replace(made.parts[0], reserve=True),)).run()
    conserves(kept, requests)
    assert kept.preemptions.sum() == 0
    assert kept.intervals.running_count.max() < made.run().intervals.running_count.max()


def test_same_input_same_bytes_and_intervals_do_not_matter():
    requests = drawn(300, 8.0)
    made = prepare((Pool(job=job()),), requests)
    one, two = made.run(), made.run()
    for name in ("first_token_s", "finished_s", "gap_counts"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    few = replace(made, options=SimulationOptions(intervals_count=8)).run()
    assert few.finished_s.tobytes() == one.finished_s.tobytes()
    spans = [np.diff(run.intervals.edges_s) for run in (one, few)]
    areas = [run.intervals.running_count @ span for run, span in zip((one, few), spans, strict=True)]
    assert areas[0] == pytest.approx(areas[1], rel=1e-9)


def test_requests_that_can_never_fit_are_refused_and_models_that_do_not_fit_raise():
    requests = Requests.of([0.0, 0.0, 1.0], [100, 4000, 100], [10, 10, 10])
    trace = short_of_memory(requests, 100).run()
    assert trace.answered.tolist() == [1, 0, 1]
    assert trace.refused_count == 1
    assert np.isnan(trace.finished_s[1])
    with pytest.raises(OutOfMemory):
        simulate_serving(job("llama-3.1-70b"), requests)


def test_a_static_batch_starts_and_ends_together():
    """Five requests, batches of two, by hand: steps of 1 s; a batch is one pass of prompts and its longest answer."""
    requests = Requests.of([0.0] * 5, [10] * 5, [3, 5, 2, 2, 4])
    made = theory(linear_table(step_s=1.0), requests, limits(sequences_count=2), "static")
    trace = made.run()
    assert trace.first_token_s.tolist() == pytest.approx([1.0, 4.0, 4.0, 9.0, 9.0])
    ends = trace.finished_s.tolist()
    assert ends[0] == pytest.approx(3.0)  # alone: the batch is what waits when the engine is free
    assert ends[1] == ends[2] == pytest.approx(3.0 + 5.0)
    assert ends[3] == ends[4] == pytest.approx(8.0 + 4.0)


def test_users_keep_their_number_and_think():
    """Closed loop by hand: one user, steps of 1 s, answers of 3 tokens, 2 s of thought."""
    requests = Requests.of([0.0] * 4, [5] * 4, [3] * 4)
    users = Users(users_count=1, thought_s=np.array([1.0, 2.0, 2.0, 2.0]))
    trace = theory(linear_table(step_s=1.0), requests, limits(), users=users).run()
    assert trace.arrived_s.tolist() == [1.0, 6.0, 11.0, 16.0]
    assert trace.finished_s.tolist() == [4.0, 9.0, 14.0, 19.0]
    many = drawn(500, 1.0)
    held = simulate_serving(job(), many, None, Users(users_count=20, thought_s=np.zeros(500)))
    present = held.intervals.waiting_count + held.intervals.running_count
    assert present[1 : len(present) // 2] == pytest.approx(20.0)


def test_speculation_makes_answers_faster_by_what_is_accepted():
    """By hand: k drafts cost nothing here, so that decoding takes as many steps as tokens over tokens of a step."""
    requests = Requests.of([0.0], [10], [101])
    table = replace(linear_table(step_s=1.0), tokens_per_sequence=4.0, gain=tokens_of_a_step(3, 0.5))
    trace = theory(table, requests, limits()).run()
    assert trace.finished_s[0] == pytest.approx(1.0 + np.ceil(100 / 1.875))
    real = drawn(100, 1.0)
    plain = simulate_serving(job(), real)
    ahead = SimulationOptions(speculation=Speculation(draft_tokens=3, accepted_frac=0.8, layers_frac=1 / 32))
    quick = simulate_serving(job(), real, ahead)
    assert quick.answered.all()
    plain_s, quick_s = (run.finished_s - run.first_token_s for run in (plain, quick))
    ratio = np.median(plain_s / np.maximum(quick_s, 1e-9))
    assert 1.5 < ratio < tokens_of_a_step(3, 0.8)


def test_policies_come_from_the_engine():
    options = SimulationOptions()
    assert policy_of(job(), options) == "chunked"
    assert policy_of(job(engine="vllm@0.6"), options) == "prompts-first"
    assert policy_of(job().with_load(static_batch=True), options) == "static"


@pytest.mark.parametrize(
    ("pools", "options", "problem"),
    [
        ((), {}, "pools none"),
        (("both", "both"), {}, "allowed one of both"),
        (("prefill", "decode"), {}, "link_bytes_per_s"),
        (("both",), {"preemption": "swap"}, "swap_bytes_per_s"),
    ],
)
def test_contradictions_are_told(pools, options, problem):
    given = tuple(Pool(job=job(plan=ServingPlan()), role=role) for role in pools)
    with pytest.raises(BadPlan, match=problem):
        prepare(given, drawn(5, 1.0), SimulationOptions(**options))
