"""Static batches, closed and open loops, maximum load, encoders: identities and hand-worked figures."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from ridgeline.serving import (
    estimate_encoder,
    estimate_max_load,
    estimate_serving,
    estimate_static_batch,
    step_time,
)
from ridgeline.serving.operating import prompts_in_a_step, running_point, steady_pieces
from ridgeline.specs import EngineProfile, Load, ServingPlan
from ridgeline.workload.engine_step import Step


def test_compiled_batches_compute_empty_slots(toy):
    """One client is as slow as the compiled batch makes him, and no slower than with dynamic shapes when it is full."""
    plan = replace(toy.job().plan, max_batch_count=32)
    load = Load(input_tokens=2000, output_tokens=64)
    dynamic = toy.job(engine=EngineProfile(id="e"), plan=plan, load=load)
    padded = toy.job(engine=EngineProfile(id="e", padded_batch=True), plan=plan, load=load)
    one, full = (estimate_serving(padded.with_load(concurrency_count=n)).tpot_s.best for n in (1.0, 32.0))
    assert estimate_serving(dynamic.with_load(concurrency_count=1.0)).tpot_s.best < 0.95 * one
    assert estimate_serving(dynamic.with_load(concurrency_count=32.0)).tpot_s.best == pytest.approx(full)
    assert one <= full


def test_single_request_is_prompt_and_steps(toy):
    job = toy.job()
    answer = estimate_static_batch(job, 1)
    prompt = step_time(job, Step(prompt_count=1, prompt_tokens=1000, finishing_count=1)).time_s
    token = step_time(job, Step(decode_count=1, context_tokens=1050)).time_s
    assert answer.mode == "static batch"
    assert answer.ttft_s.best == pytest.approx(prompt)
    assert answer.tpot_s.best == pytest.approx(token)
    assert answer.e2e_s.best == pytest.approx(prompt + 99 * token)
    assert answer.output_tokens_per_s.best == pytest.approx(100 / (prompt + 99 * token))


def test_static_batch_reads_prompts_in_passes_of_the_token_budget(toy):
    job = toy.job(engine=EngineProfile(id="e", max_batch_tokens=4000))
    answer = estimate_static_batch(job, 8)
    prompts = step_time(job, Step(prompt_count=4, prompt_tokens=1000, finishing_count=4)).time_s
    assert answer.ttft_s.best == pytest.approx(2 * prompts)
    assert answer.running_count == 8


def test_a_static_batch_beyond_the_pool_is_infeasible(toy):
    answer = estimate_static_batch(toy.job(engine=EngineProfile(id="e", max_batch_tokens=8192)), 10_000)
    assert not answer.feasible
    assert "more cache than the pool holds" in answer.reasons[0]


def test_steady_state_keeps_littles_law_and_the_token_balance(toy):
    job = toy.job()
    for count in (1.0, 7.0, 64.0, 300.0):
        point = running_point(job, count)
        assert point.requests_per_s * point.e2e_s == pytest.approx(count)
        assert point.e2e_s == pytest.approx(point.ttft_s + 99 * point.tpot_s)
        read = steady_pieces(count, 1.0, 100.0)
        assert point.requests_per_s * point.step_s == pytest.approx(read)  # requests that end in a mean step
        assert sum(share for share, _ in point.mix) == pytest.approx(1.0)


def test_maximum_load_is_the_larger_of_the_limits_and_a_mean_of_two_kinds_of_steps(toy):
    job = toy.job(engine=EngineProfile(id="e", max_batch_count=50))
    answer = estimate_max_load(job)
    assert (answer.running_count, answer.binding) == (50, "max batch")
    # 50 sequences of 100 steps: half a prompt a step, Poisson, so that a share 1 - exp(-1/2) of the steps has some.
    share = 1 - math.exp(-0.5)
    held = 0.5 / share
    plain = step_time(job, Step(decode_count=50, context_tokens=1050)).time_s
    loaded = step_time(
        job,
        Step(decode_count=50 - held, context_tokens=1050, prompt_count=held, prompt_tokens=1000, finishing_count=held),
    ).time_s
    mean = (1 - share) * plain + share * loaded
    assert answer.output_tokens_per_s.best == pytest.approx(50 / mean)
    assert answer.step.value == pytest.approx(mean)
    assert answer.time.value == pytest.approx(mean / 50)
    assert answer.step.check() == answer.time.check() == answer.memory.check() == []


def test_chunks_of_long_prompts(toy):
    job = toy.job(engine=EngineProfile(id="e", max_batch_tokens=300), load=Load(input_tokens=1000, output_tokens=100))
    point = running_point(job, 10.0)
    # 290 tokens of room: four pieces of 250; ten requests of 103 steps: 40/103 pieces a step.
    assert point.mix[1][0] == pytest.approx(1 - math.exp(-40 / 103))
    assert point.requests_per_s == pytest.approx(10 / (103 * point.step_s))


def test_engines_that_stop_decoding_for_prompts(toy):
    job = toy.job(engine=EngineProfile(id="e", mixed_steps=False, max_batch_count=50))
    answer = estimate_max_load(job)
    prompt = step_time(job, Step(prompt_count=1, prompt_tokens=1000, finishing_count=1)).time_s
    token = step_time(job, Step(decode_count=50, context_tokens=1050)).time_s
    assert answer.requests_per_s.best == pytest.approx(50 / (100 * token + 50 * prompt))


def test_closed_loop_waits_for_a_place(toy):
    job = toy.job(engine=EngineProfile(id="e", max_batch_count=16))
    some = estimate_serving(job.with_load(concurrency_count=16))
    more = estimate_serving(job.with_load(concurrency_count=32))
    assert more.output_tokens_per_s.best == pytest.approx(some.output_tokens_per_s.best)
    assert more.e2e_s.best == pytest.approx(2 * some.e2e_s.best)
    assert more.e2e_s.best * more.requests_per_s.best == pytest.approx(32)


def test_replicas_share_the_load(toy):
    one = estimate_serving(toy.job(load=Load(input_tokens=1000, output_tokens=100, rate_per_s=5)))
    two = estimate_serving(
        toy.job(plan=ServingPlan(replica_count=2), load=Load(input_tokens=1000, output_tokens=100, rate_per_s=10))
    )
    assert two.ttft_s.best == pytest.approx(one.ttft_s.best)
    assert two.requests_per_s.best == pytest.approx(2 * one.requests_per_s.best)
    assert two.utilisation_frac == pytest.approx(one.utilisation_frac)


def test_open_loop_slows_down_with_the_rate_and_ends_at_capacity(toy):
    job = toy.job()
    capacity = estimate_max_load(job).requests_per_s.best
    answers = [estimate_serving(job.with_load(rate_per_s=f * capacity)) for f in (0.05, 0.3, 0.6, 0.9, 0.98)]
    for before, after in pairwise(answers):
        assert before.e2e_s.best < after.e2e_s.best
        assert before.ttft_p95_s < after.ttft_p95_s
        assert before.device_busy_frac <= after.device_busy_frac
    assert all(answer.feasible for answer in answers)
    assert all(answer.ttft_p95_s >= answer.ttft_s.best and answer.e2e_p95_s >= answer.e2e_s.best for answer in answers)
    quiet = answers[0]
    alone = estimate_static_batch(job, 1)
    assert quiet.ttft_s.best == pytest.approx(alone.ttft_s.best, rel=0.3)
    too_much = estimate_serving(job.with_load(rate_per_s=1.5 * capacity))
    assert not too_much.feasible
    assert "above the capacity" in too_much.reasons[0]
    assert "key-value pool" in too_much.reasons[0]
    assert too_much.utilisation_frac == pytest.approx(1.5)


def test_latency_limit_bounds_the_batch(toy):
    job = toy.job(load=Load(input_tokens=1000, output_tokens=100, tpot_p95_s=0.02))
    held = estimate_serving(job)
    assert held.feasible
    assert held.binding == "latency limit"
    assert held.tpot_s.best <= 0.02 < running_point(job, held.running_count + 1).tpot_s
    never = estimate_serving(job.with_load(tpot_p95_s=0.004))
    assert not never.feasible
    assert "at any batch" in never.reasons[0]
    assert "matrices" in never.reasons[0]
    assert never.running_count == 1


def test_encoder_rate_is_batch_over_time(toy):
    job = toy.job(toy.encoder(), load=Load(input_tokens=128))
    eight = estimate_encoder(job, 8)
    assert eight.mode == "encoder"
    assert eight.requests_per_s.best == pytest.approx(8 / eight.e2e_s.best)
    assert eight.output_tokens_per_s.best == 0
    assert eight.total_tokens_per_s.best == pytest.approx(128 * eight.requests_per_s.best)
    largest = estimate_serving(job.with_load(e2e_p95_s=0.005))
    assert largest.feasible
    assert largest.e2e_s.best <= 0.005
    assert estimate_encoder(job, largest.running_count + 1).e2e_s.best > 0.005
    slow = estimate_serving(job.with_load(e2e_p95_s=1e-6))
    assert not slow.feasible
    assert slow.reasons[0].startswith("latency")


def test_dynamic_batches_grow_with_the_rate(toy):
    job = toy.job(toy.encoder(), load=Load(input_tokens=128))
    most = estimate_serving(job).requests_per_s.best
    slow, fast = (estimate_serving(job.with_load(rate_per_s=f * most)) for f in (0.1, 0.8))
    assert slow.running_count <= fast.running_count
    assert slow.e2e_s.best < fast.e2e_s.best
    assert not estimate_serving(job.with_load(rate_per_s=2 * most)).feasible


def test_intervals_widen_with_the_engine(toy):
    sure = estimate_max_load(toy.job())
    unsure = estimate_max_load(toy.job(engine=EngineProfile(id="e", release_sigma=0.1)))
    assert unsure.output_tokens_per_s.sigma == pytest.approx(0.1, rel=0.05)
    assert sure.output_tokens_per_s.sigma < 0.05
    offered = estimate_serving(toy.job(load=Load(input_tokens=1000, output_tokens=100, rate_per_s=5)))
    assert offered.requests_per_s.low == offered.requests_per_s.high == 5


def test_assumed_engine_facts_are_named(toy):
    engine = EngineProfile(id="e", host_step_s=1e-3, assumed=("host_step_s",))
    notes = estimate_max_load(toy.job(engine=engine)).notes
    assert [(note.kind, note.facts) for note in notes if note.kind == "assumed"] == [("assumed", ("e.host_step_s",))]


def test_answer_is_plain_data(toy):
    import json

    data = estimate_serving(toy.job(load=Load(input_tokens=1000, output_tokens=100, rate_per_s=5))).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False))["schema_version"] == 1


def test_attention_groups_wait_for_the_one_that_reads_a_prompt(toy):
    """Half a piece a step on four groups: exp(-1/2) of the steps are free; in the others one group holds one piece."""
    share, mean, fullest = prompts_in_a_step(0.5, 4.0)
    assert share == pytest.approx(1 - math.exp(-0.5))
    assert share * mean == pytest.approx(0.5)
    assert fullest == 1.0
    assert prompts_in_a_step(8.0, 4.0)[2] > 8.0 / 4.0
    model = toy.decoder(toy.Dims(experts=8, active=2, inner=2048))
    plan = ServingPlan(tensor_count=4, expert_count=4, attention_data_count=4)
    point = running_point(toy.job(model, plan=plan), 50.0)
    assert point.mix[1][0] == pytest.approx(share)
    assert point.requests_per_s * point.step_s == pytest.approx(0.5)


def test_beams_decode_side_by_side_and_share_the_prompt(job):
    one = estimate_max_load(job.with_load(input_tokens=1000.0, output_tokens=100.0))
    four = estimate_max_load(job.with_load(input_tokens=1000.0, output_tokens=100.0, beams_count=4.0))
    assert four.requests_per_s.best < one.requests_per_s.best
    # the prompt is read and kept once, so four beams cost less than four requests
    assert four.requests_per_s.best > one.requests_per_s.best / 4
