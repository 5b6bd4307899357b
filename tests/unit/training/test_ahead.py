"""Multi-token prediction: what further tokens cost in time and memory, and where their modules stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ridgeline.catalog.loader import load_catalog
from ridgeline.intake.models import load_model
from ridgeline.specs import Calibration, SoftwareProfile, Stack, System, TrainingPlan, Transformer
from ridgeline.training.check import layers
from ridgeline.training.job import TrainingJob
from ridgeline.training.memory import activation_terms, stage_memory
from ridgeline.training.step import estimate_step
from ridgeline.workload.stages import stages_of
from ridgeline.workload.training_ends import ahead_ops
from ridgeline.workload.training_shapes import layer_shape

SOFTWARE = SoftwareProfile(id="plain", fragmentation_frac=0.0, context_bytes=0.0)


@pytest.fixture(scope="module")
def deepseek() -> Transformer:
    return load_model("deepseek-v3", load_catalog())


def plan_of(ahead: int, stages: int = 16) -> TrainingPlan:
    return TrainingPlan(
        sequence_tokens=4096, precision="bf16", pipeline_count=stages, expert_count=1, ahead_count=ahead
    )


@pytest.mark.parametrize("name", ["deepseek-v3", "nemotron-3-super-120b-a12b"])
def test_a_module_has_the_parameters_that_its_model_counts(name: str) -> None:
    model = load_model(name, load_catalog())
    assert model.ahead is not None
    assert model.ahead.parameters_count == model.mtp_parameters_count


def test_models_without_modules_predict_nothing_ahead(make_gpt: Callable[..., Transformer]) -> None:
    model = make_gpt(8, 2048, 16)
    assert model.ahead is None
    assert stages_of(model, plan_of(2, 1)) == stages_of(model, plan_of(0, 1))


def test_a_model_without_modules_is_refused(make_gpt: Callable[..., Transformer], machine: System) -> None:
    found = [problem.fields for problem in layers(make_gpt(8, 2048, 16), machine, plan_of(1, 1))]
    assert found == [("ahead_count",)]


def test_modules_take_the_place_of_layers_in_the_last_stage(deepseek: Transformer) -> None:
    plain, ahead = stages_of(deepseek, plan_of(0)), stages_of(deepseek, plan_of(1))
    assert [stage.layers_count for stage in plain] == [4.0] * 13 + [3.0] * 3
    assert [stage.layers_count for stage in ahead] == [4.0] * 15 + [2.0]
    assert [share.stack is deepseek.ahead for share in ahead[-1].shares] == [False, True]


def test_one_module_that_is_passed_twice_is_kept_once(deepseek: Transformer) -> None:
    share = stages_of(deepseek, plan_of(2, 1))[0].shares[-1]
    assert (share.count, share.stored_count) == (2.0, 1.0)


def test_what_joins_two_inputs_is_one_product_each_way_and_two_back(deepseek: Transformer) -> None:
    shape = layer_shape(plan_of(1, 1))
    ops = ahead_ops(deepseek, shape, SOFTWARE)
    hidden = deepseek.hidden_count
    sizes = [(item.op.m, item.op.n, item.op.k) for item in (*ops.forward, *ops.backward) if hasattr(item.op, "m")]
    assert sizes == [(4096, hidden, 2 * hidden), (4096, 2 * hidden, hidden), (2 * hidden, hidden, 4096)]


def test_every_further_token_costs_a_module_and_a_head(
    machine: System, calibration: Calibration, make_gpt: Callable[..., Transformer]
) -> None:
    plain = make_gpt(8, 2048, 16)
    module = Stack(role="decoder", hidden_count=2048, runs=(replace(plain.main.runs[0], repeat_count=1),))
    model = replace(plain, ahead=module)

    def seconds(count: int) -> float:
        plan = TrainingPlan(
            sequence_tokens=2048, precision="bf16", global_batch_count=32, micro_batch_count=1, ahead_count=count
        )
        job = TrainingJob(model=model, plan=plan, system=machine, calibration=calibration, software=SOFTWARE)
        return estimate_step(job).time.value

    none, one, two = (seconds(count) for count in range(3))
    assert one > none
    assert two - one == pytest.approx(one - none, rel=0.05)


def test_logits_of_every_head_are_alive_together(deepseek: Transformer) -> None:
    terms = {
        count: activation_terms(deepseek, stages_of(deepseek, plan_of(count))[-1], plan_of(count), SOFTWARE)
        for count in (0, 1)
    }
    assert terms[1].logits == 2 * terms[0].logits
    last = stages_of(deepseek, plan_of(1, 1))[-1]
    grown = stage_memory(deepseek, last, plan_of(1, 1), SOFTWARE).value
    base = stage_memory(deepseek, stages_of(deepseek, plan_of(0, 1))[-1], plan_of(0, 1), SOFTWARE).value
    assert grown > base
