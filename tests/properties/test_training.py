"""What must hold of any training estimate, whatever the layout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ridgeline.core import FrozenMap
from ridgeline.specs import Calibration, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training import TrainingEstimate, TrainingJob, check_plan, estimate_step, peak_memory, stage_memory
from ridgeline.workload.stages import stages_of
from ridgeline.workload.training_flop import step_flop

Make = Callable[..., Transformer]
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

plans = st.builds(
    TrainingPlan,
    tensor_count=st.sampled_from([1, 2, 4, 8]),
    pipeline_count=st.sampled_from([1, 2, 4]),
    data_count=st.sampled_from([1, 2, 8]),
    context_count=st.sampled_from([1, 2]),
    interleave_count=st.sampled_from([1, 2]),
    micro_batch_count=st.sampled_from([1, 2]),
    global_batch_count=st.just(64),
    sequence_tokens=st.sampled_from([512, 2048]),
    sequence_parallel=st.booleans(),
    sharding=st.sampled_from(["none", "zero1", "zero3"]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    precision=st.just("bf16"),
)
softwares = st.builds(
    SoftwareProfile,
    id=st.just("any"),
    attention=st.sampled_from(["unfused", "best"]),
    dropout=st.booleans(),
    loss=st.sampled_from(["eager", "split", "fused", "in-place", "chunked"]),
    states=st.sampled_from(["copy", "master-only"]),
    gradient_precision=st.sampled_from(["same", "fp32", "bf16", "fp32-if-bf16"]),
    tensor_overlap=st.sampled_from(["none", "backward", "pipelined"]),
    data_overlap=st.booleans(),
    gather_overlap=st.booleans(),
    pipeline_overlap=st.booleans(),
    prefetch_layers_count=st.sampled_from([0, 1]),
    overlap_slowdown_frac=st.sampled_from([0.0, 0.2]),
    spread_sigma_frac=st.sampled_from([0.0, 0.02]),
    bucket_bytes=st.sampled_from([0.0, 40e6]),
)


@pytest.fixture(scope="module")
def model(make_gpt: Make) -> Transformer:
    return make_gpt(16, 1024, 16, vocab=8192)


@pytest.fixture(scope="module")
def run(model: Transformer, machine: System, calibration: Calibration) -> Callable[..., TrainingEstimate]:
    def estimate(plan: TrainingPlan, software: SoftwareProfile, system: System = machine) -> TrainingEstimate:
        job = TrainingJob(model=model, plan=plan, system=system, calibration=calibration, software=software)
        return estimate_step(job)

    return estimate


def faster(machine: System, *, memory: float = 1.0, wires: float = 1.0) -> System:
    chip = replace(machine.chip, memory_bandwidth_bytes_per_s=(machine.chip.memory_bandwidth_bytes_per_s or 0) * memory)
    levels = tuple(replace(x, oneway_bytes_per_s=x.oneway_bytes_per_s * wires) for x in machine.levels)
    return replace(machine, chip=chip, levels=levels)


@SLOW
@given(plan=plans, software=softwares)
def test_trees_add_up(run: Callable[..., TrainingEstimate], plan: TrainingPlan, software: SoftwareProfile) -> None:
    found = run(plan, software)
    assert found.time.check() == []
    assert found.memory.check() == []
    assert all(node.value >= 0 for node in found.memory.walk())
    assert found.step_s.low <= found.step_s.best <= found.step_s.high


@SLOW
@given(plan=plans, software=softwares)
def test_no_step_beats_the_roofs(
    run: Callable[..., TrainingEstimate],
    model: Transformer,
    machine: System,
    plan: TrainingPlan,
    software: SoftwareProfile,
) -> None:
    found = run(plan, software)
    roof_s = step_flop(model, plan) / plan.devices_count / machine.chip.peak("bf16")
    assert found.step_s.best >= roof_s
    assert 0 < found.mfu_frac <= 1
    assert 0 <= found.bubble_frac < 1


@SLOW
@given(plan=plans, software=softwares, factor=st.floats(1.1, 4.0))
def test_more_bandwidth_is_never_slower(
    run: Callable[..., TrainingEstimate],
    machine: System,
    plan: TrainingPlan,
    software: SoftwareProfile,
    factor: float,
) -> None:
    base = run(plan, software).step_s.best
    assert run(plan, software, faster(machine, memory=factor)).step_s.best <= base * (1 + 1e-9)
    if software.overlap_slowdown_frac == 0:  # faster wires may hide more, and what is hidden slows the rest
        assert run(plan, software, faster(machine, wires=factor)).step_s.best <= base * (1 + 1e-9)


@SLOW
@given(plan=plans, software=softwares)
def test_hidden_time_never_exceeds_what_it_hides(
    run: Callable[..., TrainingEstimate], plan: TrainingPlan, software: SoftwareProfile
) -> None:
    found = run(plan, software)
    for part in found.time.walk():
        for node in part.parts:
            if node.name.endswith(" hidden"):
                whole = sum(x.value for x in part.parts if x.name == node.name.removesuffix(" hidden"))
                assert -whole * (1 + 1e-9) <= node.value <= 0


@SLOW
@given(plan=plans, software=softwares)
def test_sharding_more_never_needs_more_states(
    model: Transformer, plan: TrainingPlan, software: SoftwareProfile
) -> None:
    held = []
    for sharding in ("none", "zero1", "zero2", "zero3"):
        tree = peak_memory(model, replace(plan, sharding=sharding), software)  # type: ignore[arg-type]
        names = ("weights", "gradients", "master weights", "optimizer moments")
        held.append(sum(tree.value_of(name) for name in names))
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(held))


@SLOW
@given(plan=plans, software=softwares)
def test_recompute_trades_time_for_memory(
    run: Callable[..., TrainingEstimate], plan: TrainingPlan, software: SoftwareProfile
) -> None:
    none, full = (run(replace(plan, recompute=r), software) for r in ("none", "full"))  # type: ignore[arg-type]
    assert full.step_s.best > none.step_s.best
    assert full.memory.value_of("activations") < none.memory.value_of("activations")


@SLOW
@given(plan=plans, software=softwares)
def test_the_peak_is_the_fullest_stage(model: Transformer, plan: TrainingPlan, software: SoftwareProfile) -> None:
    every = [stage_memory(model, stage, plan, software).value for stage in stages_of(model, plan)]
    assert peak_memory(model, plan, software).value == pytest.approx(max(every))


@SLOW
@given(plan=plans, software=softwares)
def test_twice_the_peak_and_bandwidths_halve_all_but_latencies(
    run: Callable[..., TrainingEstimate], machine: System, plan: TrainingPlan, software: SoftwareProfile
) -> None:
    chip = replace(
        machine.chip,
        peak_dense_flop_per_s=FrozenMap({k: 2 * v for k, v in machine.chip.peak_dense_flop_per_s.items()}),
        memory_bandwidth_bytes_per_s=2 * (machine.chip.memory_bandwidth_bytes_per_s or 0),
        clock_hz=2 * (machine.chip.clock_hz or 0),
    )
    double = replace(faster(machine, wires=2.0), chip=chip)
    base, half = run(plan, software).step_s.best, run(plan, software, double).step_s.best
    assert base / 2 * (1 - 1e-9) <= half < base


@given(plan=plans)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_found_problem_names_fields_of_the_plan(model: Transformer, machine: System, plan: TrainingPlan) -> None:
    for problem in check_plan(model, machine, plan):
        assert problem.text
        assert all(hasattr(plan, name) for name in problem.fields)
