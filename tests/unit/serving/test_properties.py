"""What must hold for any serving job: trees add up, roofs hold, more is never slower."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ridgeline.core import FrozenMap
from ridgeline.serving import capacity, estimate_max_load, estimate_serving, estimate_static_batch, step_time
from ridgeline.specs import EngineProfile, Load, ServingPlan
from ridgeline.workload.engine_step import Step

SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
lengths = st.integers(min_value=1, max_value=6000)
engines = st.builds(
    EngineProfile,
    id=st.just("e"),
    host_step_s=st.floats(0, 5e-3),
    host_sequence_s=st.floats(0, 1e-4),
    host_hidden_frac=st.floats(0, 1),
    mixed_steps=st.booleans(),
    max_batch_count=st.integers(1, 512),
    max_batch_tokens=st.integers(512, 16384),
    admission=st.sampled_from(["evict", "no-evict"]),
    block_tokens=st.sampled_from([1, 16, 64]),
    pool_basis=st.sampled_from(["total", "free", "static", "none"]),
    pool_frac=st.floats(0.7, 0.95),
)
plans = st.builds(ServingPlan, tensor_count=st.sampled_from([1, 2, 4, 8]), pipeline_count=st.sampled_from([1, 2, 4]))


@SETTINGS
@given(engine=engines, plan=plans, given_tokens=lengths, made=lengths)
def test_trees_add_up_and_flow_is_conserved(toy, engine, plan, given_tokens, made):
    job = toy.job(engine=engine, plan=plan, load=Load(input_tokens=given_tokens, output_tokens=made))
    answer = estimate_max_load(job)
    assert answer.step.check() == answer.time.check() == answer.memory.check() == []
    assert answer.output_tokens_per_s.best > 0
    assert answer.running_count <= answer.max_running_count
    assert abs(answer.requests_per_s.best * answer.e2e_s.best / answer.running_count - 1) < 1e-6
    assert abs(answer.output_tokens_per_s.best * answer.time.value - 1) < 1e-6
    assert 0 <= answer.device_busy_frac <= 1
    assert answer.flop_per_s_per_device <= 1e15 * 1.0001
    assert answer.memory_bytes_per_s_per_device <= 3e12 * 1.0001


@SETTINGS
@given(count=st.floats(1, 512), context=st.floats(1, 8000), tensor=st.sampled_from([1, 2, 4, 8]))
def test_a_step_is_never_below_its_roofs(toy, count, context, tensor):
    time = step_time(toy.job(plan=ServingPlan(tensor_count=tensor)), Step(decode_count=count, context_tokens=context))
    assert time.time_s >= time.flop / 1e15
    assert time.time_s >= time.moved_bytes / 3e12 * (1 - 1e-9)


@SETTINGS
@given(given_tokens=lengths, made=st.integers(1, 500), faster=st.floats(1, 4))
def test_more_bandwidth_and_more_peak_are_never_slower(toy, given_tokens, made, faster):
    job = toy.job(load=Load(input_tokens=given_tokens, output_tokens=made))
    base = estimate_static_batch(job, 4).e2e_s.best
    chip = toy.chip
    wider = replace(chip, memory_bandwidth_bytes_per_s=chip.memory_bandwidth_bytes_per_s * faster)
    peaks = FrozenMap({name: peak * faster for name, peak in chip.peak_dense_flop_per_s.items()})
    stronger = replace(chip, peak_dense_flop_per_s=peaks)
    for better in (wider, stronger):
        system = replace(job.system, chip=better)
        assert estimate_static_batch(replace(job, system=system), 4).e2e_s.best <= base * (1 + 1e-9)


@SETTINGS
@given(made=st.integers(16, 2000), more=st.floats(1, 3))
def test_more_memory_never_holds_fewer(toy, made, more):
    job = toy.job(load=Load(input_tokens=500, output_tokens=made))
    roomy = replace(job, memory_bytes=job.system.chip.memory_bytes() * more)
    assert capacity(roomy).running_count >= capacity(job).running_count
    assert estimate_max_load(roomy).output_tokens_per_s.best >= 0.97 * estimate_max_load(job).output_tokens_per_s.best


@SETTINGS
@given(share=st.floats(0.02, 0.95), made=st.integers(2, 800))
def test_open_loop_is_never_quicker_than_an_empty_system(toy, share, made):
    job = toy.job(load=Load(input_tokens=400, output_tokens=made))
    most = estimate_max_load(job).requests_per_s.best
    answer = estimate_serving(job.with_load(rate_per_s=share * most))
    alone = estimate_static_batch(job, 1)
    assert answer.e2e_s.best >= alone.e2e_s.best * (1 - 1e-6)
    assert answer.e2e_p95_s >= answer.e2e_s.best
    assert answer.ttft_p95_s >= answer.ttft_s.best
    assert answer.requests_per_s.best == share * most
