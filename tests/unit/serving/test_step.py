"""One engine step, against roofs worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.core import FrozenMap
from ridgeline.device import OpTime
from ridgeline.device.settled import sustained_clock_frac, unthrottled
from ridgeline.serving import step_time
from ridgeline.serving.heat import Heat, lower_clock_s
from ridgeline.serving.step import _kernel_sigma, imbalance_frac
from ridgeline.specs import EngineProfile, ServingPlan
from ridgeline.workload.engine_step import Step
from ridgeline.workload.ops import Gemm, GroupedGemm

DECODE = Step(decode_count=1, context_tokens=1000)


def test_one_token_reads_all_weights_and_the_cache(toy):
    """Batch 1 on the roofs: weights without the embedding, and 1000 tokens of keys and values, over the bandwidth."""
    job = toy.job()
    model = job.model
    time = step_time(job, DECODE)
    matrices = sum(x.matrix_count for run in model.main.runs for x in run.layer.linears) * 32 + model.head.matrix_count
    assert time.tree.find("matrices").value == pytest.approx(2 * matrices / 3e12, rel=2e-3)
    assert time.tree.find("attention").value == pytest.approx(1000 * 32 * 2 * 8 * 128 * 2 / 3e12)
    assert time.tree.check() == []
    assert time.ops[0].name == "gate+up"
    assert {op.bound for op in time.ops if op.name in ("gate+up", "attention decode")} == {"memory"}


def test_prompt_is_bound_by_arithmetic(toy):
    job = toy.job()
    time = step_time(job, Step(prompt_count=1, prompt_tokens=8192, finishing_count=1))
    layers = sum(x.matrix_count for run in job.model.main.runs for x in run.layer.linears) * 32
    assert time.tree.find("matrices").value == pytest.approx(2 * layers * 8192 / 1e15, rel=0.01)
    assert time.flop == pytest.approx(2 * layers * 8192 + 4 * 4096 * (8192 * 8193 / 2) * 32, rel=0.01)


def test_host_time_and_what_hides_of_it(toy):
    bare = step_time(toy.job(), DECODE).time_s
    host = {"host_step_s": 1e-3, "host_sequence_s": 1e-4}
    step = Step(decode_count=10, context_tokens=1000)
    device_s = step_time(toy.job(), step).time_s
    shown = step_time(toy.job(engine=EngineProfile(id="e", **host)), step)
    assert shown.time_s == pytest.approx(device_s + 2e-3)
    hidden = step_time(toy.job(engine=EngineProfile(id="e", host_hidden_frac=1.0, **host)), step)
    assert hidden.time_s == pytest.approx(max(device_s, 2e-3))
    assert hidden.tree.find("hidden behind the device").value == pytest.approx(-min(device_s, 2e-3))
    assert hidden.tree.check() == []
    assert bare < device_s


def test_launches_bound_a_step_without_graph(toy):
    eager = EngineProfile(id="e", graphs=False, kernel_floor_s=50e-6)
    step = step_time(toy.job(engine=eager), DECODE)
    kernels = sum(op.count for op in step.ops)
    assert step.tree.find("launches").value > 0
    assert step.time_s >= kernels * 50e-6
    graph = EngineProfile(id="e", graphs=True, kernel_floor_s=50e-6)
    assert step_time(toy.job(engine=graph), DECODE).time_s == pytest.approx(step_time(toy.job(), DECODE).time_s)
    reading = Step(prompt_count=1, prompt_tokens=16)
    assert "launches" in [part.name for part in step_time(toy.job(engine=graph), reading).tree.parts]


def test_a_pipeline_of_equal_stages_takes_as_long_as_one_device_with_its_share(toy):
    """Two stages work on half of the batch each: a step is the whole model on half of the sequences, and a send."""
    step = Step(decode_count=16, context_tokens=1000)
    staged = step_time(toy.job(plan=ServingPlan(pipeline_count=2)), step)
    half = step_time(toy.job(), Step(decode_count=8, context_tokens=1000))
    assert staged.time_s == pytest.approx(half.time_s + staged.tree.value_of("pipeline send"))
    assert "slowest stage" not in [part.name for part in staged.tree.parts]


def test_uneven_stages_wait_for_the_fullest(toy):
    staged = step_time(toy.job(plan=ServingPlan(pipeline_count=5)), Step(decode_count=10, context_tokens=100))
    kernels = sum(staged.tree.value_of(name) for name in ("matrices", "attention", "element-wise", "communication"))
    assert staged.tree.find("slowest stage").value == pytest.approx(kernels * (7 * 5 / 32 - 1))
    assert imbalance_frac(32, 5) == pytest.approx(7 * 5 / 32 - 1)


def test_more_devices_in_a_group_read_less_and_talk_more(toy):
    one = step_time(toy.job(), DECODE)
    four = step_time(toy.job(plan=ServingPlan(tensor_count=4)), DECODE)
    assert four.tree.find("matrices").value == pytest.approx(one.tree.find("matrices").value / 4, rel=0.02)
    assert four.tree.find("tensor all-reduce").value > 0


def test_one_request_passes_all_stages_one_after_another(toy):
    """With one sequence a pipeline is as slow as one device, and each device works a quarter of the time."""
    alone = step_time(toy.job(), DECODE)
    staged = step_time(toy.job(plan=ServingPlan(pipeline_count=4)), DECODE)
    assert staged.time_s == pytest.approx(alone.time_s + staged.tree.value_of("pipeline send"))
    assert staged.moved_bytes == pytest.approx(alone.moved_bytes / 4)
    assert staged.device_s == pytest.approx(staged.time_s / 4)


def test_the_clock_falls_with_the_square_of_the_work_of_a_step(toy):
    """Endless products keep 80 % of the clock: a step with the matrix units busy half of the time loses a sixteenth."""
    assert lower_clock_s(1.0, 0.5, 0.8) == pytest.approx(0.25 * 0.25)
    law = toy.roof.laws["gemm.bf16"]
    capped = replace(law, parameters=FrozenMap({**law.parameters, "sustained_frac": 0.8}))
    calibration = replace(toy.roof, laws=FrozenMap({**toy.roof.laws, "gemm.bf16": capped}))
    assert sustained_clock_frac(calibration, toy.chip, "bf16") == 0.8
    assert sustained_clock_frac(toy.roof, toy.chip, "bf16") == 1.0
    assert unthrottled(calibration).laws["gemm.bf16"].parameters["sustained_frac"] == 1.0
    heat = Heat(busy_s={"bf16": 0.5}, bound_s=1.0)
    assert heat.slower_s(1.0, toy.job(calibration=calibration)) == pytest.approx(0.0625)
    assert heat.slower_s(1.0, toy.job()) == 0.0


def test_kernels_of_experts_are_less_certain_than_their_law(toy):
    kernel = OpTime(
        time_s=1.0,
        compute_s=1.0,
        memory_s=0.0,
        launch_s=0.0,
        bound="compute",
        limiter="",
        sigma=0.1,
        model="m",
        uses=(),
        level="device",
    )
    experts = GroupedGemm(name="e", rows_count=8, experts_count=8, touched_count=8, n=8, k=8)
    assert _kernel_sigma(Gemm(name="g", m=1, n=1, k=1), kernel) == 0.1
    assert _kernel_sigma(experts, kernel) == pytest.approx((0.1**2 + 0.19**2) ** 0.5)
