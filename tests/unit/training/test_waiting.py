"""Split backward passes, uneven stages, slow input, packed documents, adapters: each against what it must come to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ridgeline.specs import Calibration, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training import TrainingJob, check_plan, estimate_step, peak_memory
from ridgeline.training.clock import clock_for
from ridgeline.training.phases import stage_phases
from ridgeline.training.waiting import input_roof_s, weights_s
from ridgeline.training.zero_bubble import split_bubble_s, v_bubble_s
from ridgeline.workload.memory import in_flight_frac
from ridgeline.workload.stages import dealt_counts, stages_of
from ridgeline.workload.training_adapters import adapter_parameters_count
from ridgeline.workload.training_flop import step_flop

SOFTWARE = SoftwareProfile(id="x", attention="best", data_overlap=True)
DEEP = TrainingPlan(sequence_tokens=2048, pipeline_count=4, global_batch_count=32, data_count=1)


@pytest.fixture
def model(make_gpt: Any) -> Transformer:
    made: Transformer = make_gpt(16, 4096, 32, sequence=2048)
    return made


@pytest.fixture
def estimate(model: Transformer, machine: System, calibration: Calibration) -> Any:
    def run(plan: TrainingPlan, **software: Any) -> Any:
        used = replace(SOFTWARE, **software)
        return estimate_step(
            TrainingJob(model=model, plan=plan, system=machine, calibration=calibration, software=used)
        )

    return run


@pytest.mark.parametrize("depth", [2, 4, 8, 16])
@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (1.0, 1.3, 0.8), (1.0, 2.0, 1.0)])
def test_split_schedules_wait_less_in_order(depth: int, times: tuple[float, float, float]) -> None:
    """1F1B waits (p - 1)(F + B + W), ZB-H1 (p - 1)(F + B - W), ZB-H2 (p - 1)(F + B - 2 W); the V that is made here less
    than H1."""
    forward, back, weight = ([part] * depth for part in times)
    first, second = (split_bubble_s(forward, back, weight, count) for count in (1, 2))
    assert first == pytest.approx((depth - 1) * (times[0] + times[1] - times[2]))
    assert second == pytest.approx((depth - 1) * (times[0] + times[1] - 2 * times[2]))
    assert 0 < v_bubble_s([times] * depth, 4 * depth) < 0.85 * first


def test_the_v_is_a_schedule_that_ends() -> None:
    """Every task of a folded pipeline is run, in any mix of times, also where a device is far slower."""
    uneven = [(1.0, 1.5, 0.5), (2.0, 2.0, 2.0), (1.0, 1.0, 1.0), (0.5, 1.0, 1.0)]
    for batches in (1, 2, 5, 12):
        assert 0 <= v_bubble_s(uneven, batches) < sum(sum(three) for three in uneven)
    assert v_bubble_s([(1.0, 1.0, 1.0)], 8) == 0.0


def test_a_split_backward_pass_shortens_the_step(estimate: Any, model: Transformer, machine: System) -> None:
    plain, first, second = (estimate(replace(DEEP, schedule=name)) for name in ("1f1b", "zb-h1", "zb-h2"))
    folded = estimate(replace(DEEP, schedule="zb-v", interleave_count=2))
    waits = [item.time.value_of("pipeline bubble") for item in (plain, folded, first, second)]
    assert waits[0] > waits[2] > waits[3] >= 0
    assert waits[1] < waits[2]
    assert first.step_s.best == pytest.approx(plain.step_s.best - waits[0] + waits[2])
    assert "zero-bubble-h" in first.models
    assert "zb-h1" in first.plan.label()
    # H1 lives in the memory of 1F1B; H2 keeps 2p - 1 micro-batches
    assert 1.0 <= first.memory.value / plain.memory.value < 1.05  # the last stage, with the logits, has as many now
    assert [in_flight_frac(3, replace(DEEP, schedule=name)) for name in ("1f1b", "zb-h1", "zb-h2")] == [1, 4, 7]
    assert second.memory.value > first.memory.value


def test_weight_gradients_are_a_third_of_the_products(
    model: Transformer, machine: System, calibration: Calibration
) -> None:
    clock = clock_for(machine, calibration, SOFTWARE)
    stage = stages_of(model, DEEP)[1]
    phases = stage_phases(model, stage, DEEP, clock)
    products_s = phases.forward["matrix products"].time_s + phases.backward["matrix products"].time_s
    # a little more than a third: they are written in fp32 and added to the buffer
    assert 1 / 3 < weights_s(model, stage, DEEP, clock) / products_s < 0.42


def test_schedules_say_what_they_need(model: Transformer, machine: System) -> None:
    texts = [
        check_plan(model, machine, replace(DEEP, pipeline_count=1, schedule="zb-h1")),
        check_plan(model, machine, replace(DEEP, schedule="zb-v")),
        check_plan(model, machine, replace(DEEP, first_layers_count=1, last_layers_count=2)),
        check_plan(model, machine, replace(DEEP, document_tokens=4096.0)),
        check_plan(model, machine, replace(DEEP, adapter_rank=8)),
    ]
    words = ["there is none", "has 2 virtual stages", "leave no even number", "documents of 4096", "beside trained"]
    assert [word in problems[0].text for word, problems in zip(words, texts, strict=True)] == [True] * 5


def test_a_short_last_stage_makes_room_for_the_head(estimate: Any, model: Transformer, machine: System) -> None:
    """61 layers on 16 stages as 4 x 15 + 1; here 5, 5, 5 and 1."""
    assert dealt_counts(61, 16, None, 1)[-2:] == [4, 1]
    uneven = replace(DEEP, last_layers_count=1)
    assert check_plan(model, machine, uneven) == []
    assert [stage.layers_count for stage in stages_of(model, uneven)] == [5, 5, 5, 1]
    # so small a vocabulary needs no such room: three stages of five layers are slower than four of four
    assert estimate(uneven).step_s.best > estimate(DEEP).step_s.best


def test_slow_input_is_a_roof(estimate: Any) -> None:
    plan = TrainingPlan(sequence_tokens=2048, data_count=8, global_batch_count=64)
    free = estimate(plan)
    rate = 64 / free.step_s.best
    assert estimate(replace(plan, node_samples_per_s=2 * rate)).step_s.best == free.step_s.best
    slow = estimate(replace(plan, node_samples_per_s=rate / 2))
    assert slow.step_s.best == pytest.approx(2 * free.step_s.best)
    assert slow.time.value_of("waiting for input") == pytest.approx(free.step_s.best)
    # sixteen devices are two nodes, which prepare twice as much; the file system stays one
    assert input_roof_s(64, 2, 4.0, 0.0) == 8.0
    assert input_roof_s(64, 2, 4.0, 2.0) == 32.0


def test_packed_documents_see_themselves_alone(estimate: Any, model: Transformer) -> None:
    """Scores go with the sum of squares: documents of a quarter need a quarter of the pairs."""
    plan = TrainingPlan(sequence_tokens=8192, data_count=8, global_batch_count=8)
    whole, packed = estimate(plan), estimate(replace(plan, document_tokens=2048.0))
    assert packed.time.find("forward").value_of("attention") < 0.45 * whole.time.find("forward").value_of("attention")
    assert packed.time.value_of("matrix products") == whole.time.value_of("matrix products")
    flop = [step_flop(model, p) for p in (plan, replace(plan, document_tokens=2048.0))]
    quarter = [step_flop(model, replace(plan, sequence_tokens=n, global_batch_count=c)) for n, c in ((2048, 32),)]
    assert flop[1] == pytest.approx(quarter[0])
    padded = estimate(replace(plan, document_tokens=2048.0, real_frac=0.8))
    assert padded.step_s.best == packed.step_s.best
    assert padded.tokens_per_s == pytest.approx(0.8 * packed.tokens_per_s)
    assert padded.mfu_frac == pytest.approx(0.8 * packed.mfu_frac)


def test_adapters_need_four_operations_a_parameter_and_their_own(estimate: Any, model: Transformer) -> None:
    """2 N forward and 2 N for input gradients; pairs are small in operations and not in time."""
    plan = TrainingPlan(sequence_tokens=2048, data_count=8, global_batch_count=64, sharding="none")
    full = estimate(plan)
    share = adapter_parameters_count(model, 16) / model.parameters_count
    assert share == pytest.approx(
        16 * 16 * (4096 * (2 + 3 + 1) + 4 * 4096 * 2 + 4096 * 2) / model.parameters_count, rel=0.3
    )
    frozen = replace(plan, trainable_frac=share)
    pairs = replace(frozen, adapter_rank=16)
    bare, with_pairs = estimate(frozen), estimate(pairs)
    assert bare.model_flop_per_s_per_device * bare.step_s.best / (
        full.model_flop_per_s_per_device * full.step_s.best
    ) == pytest.approx(2 / 3, abs=0.02)
    products = [item.time.value_of("matrix products") for item in (full, bare, with_pairs)]
    assert products[1] == pytest.approx(2 / 3 * products[0], rel=0.03)
    assert 1.02 < products[2] / products[1] < 1.35
    assert with_pairs.time.value_of("element-wise") > 1.2 * bare.time.value_of("element-wise")
    assert not any("left out where their rank" in note.text for note in with_pairs.notes)


def test_few_bits_are_widened_before_each_product(estimate: Any, model: Transformer) -> None:
    plan = TrainingPlan(
        sequence_tokens=2048, global_batch_count=4, sharding="none", trainable_frac=0.004, adapter_rank=16
    )
    wide, narrow = estimate(plan), estimate(replace(plan, frozen_precision="nf4"))
    assert narrow.time.value_of("element-wise") > wide.time.value_of("element-wise")
    weights = model.parameters_count * 2
    assert narrow.memory.value_of("weights") < 0.5 * wide.memory.value_of("weights") <= 0.5 * 1.01 * weights


def test_one_card_in_a_narrow_slot_sets_the_pace(model: Transformer, machine: System, calibration: Calibration) -> None:
    """Seven links of 25 GB/s and one of a third of that: the ring goes at a third."""
    inner = replace(machine.levels[0], kind="pcie", oneway_bytes_per_s=25e9, in_switch_reduction=False)
    plan = TrainingPlan(sequence_tokens=2048, data_count=8, global_batch_count=8, sharding="none")
    found = []
    for rates in ((), (25e9,) * 7 + (25e9 / 3,)):
        level = replace(inner, device_oneway_bytes_per_s=rates)
        system = replace(machine, levels=(level, *machine.levels[1:]))
        job = TrainingJob(model=model, plan=plan, system=system, calibration=calibration, software=SOFTWARE)
        found.append(estimate_step(job).time.value_of("gradient exchange"))
    assert found[1] / found[0] == pytest.approx(3.0, rel=0.02)


def test_memory_of_the_fold_has_both_ends_on_one_device(model: Transformer) -> None:
    folded = replace(DEEP, schedule="zb-v", interleave_count=2)
    first = stages_of(model, folded)[0]
    assert first.embedding
    assert first.head
    assert peak_memory(model, folded, SOFTWARE).value > 0
