"""Rules of a layout: each broken one is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ridgeline.specs import System, TrainingPlan, Transformer
from ridgeline.training import check_plan

Make = Callable[..., Transformer]
GOOD = TrainingPlan(
    tensor_count=4, pipeline_count=2, data_count=2, global_batch_count=16, sequence_tokens=2048, micro_batch_count=2
)


def codes(model: Transformer, system: System, **changes: object) -> set[str]:
    return {problem.code for problem in check_plan(model, system, replace(GOOD, **changes))}  # type: ignore[arg-type]


def test_a_good_layout_has_no_problem(machine: System, make_gpt: Make) -> None:
    assert codes(make_gpt(8, 2048, 16), machine) == set()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tensor_count": 0}, "not-positive"),
        ({"recompute_layers_frac": 1.5}, "not-positive"),
        ({"global_batch_count": 18}, "batch"),
        ({"tensor_count": 3}, "heads"),
        ({"tensor_count": 3, "sequence_parallel": False}, "width"),
        ({"pipeline_count": 3}, "layers"),
        ({"pipeline_count": 16}, "layers"),
        ({"interleave_count": 2, "pipeline_count": 1}, "schedule"),
        ({"interleave_count": 2, "global_batch_count": 12}, "schedule"),
        ({"context_count": 3}, "sequence"),
        ({"sequence_tokens": 2046}, "sequence"),
        ({"expert_count": 2}, "experts"),
        ({"tensor_count": 16}, "domain"),
        ({"tensor_count": 2, "data_count": 3}, "devices"),
        ({"sharding": "zero3"}, "sharding"),
        ({"shard_group_count": 3}, "sharding"),
        ({"precision": "fp8"}, "precision"),
    ],
)
def test_each_rule_finds_its_contradiction(
    machine: System, make_gpt: Make, changes: dict[str, object], code: str
) -> None:
    assert code in codes(make_gpt(8, 2048, 16), machine, **changes)


def test_experts_must_divide(machine: System, make_gpt: Make) -> None:
    mixture = make_gpt(8, 2048, 16, experts=8)
    assert codes(mixture, machine, expert_count=4) == set()
    assert "experts" in codes(mixture, machine, expert_count=3)
    assert "experts" in codes(mixture, machine, expert_count=16)


def test_a_machine_of_listed_sizes_and_a_limit(machine: System, make_gpt: Make) -> None:
    slices = replace(machine, sizes_count=(8, 64), max_devices_count=64)
    assert "devices" in codes(make_gpt(8, 2048, 16), slices)
    wide = codes(make_gpt(8, 2048, 16), replace(machine, max_devices_count=8))
    assert "devices" in wide


def test_messages_say_what_was_found(machine: System, make_gpt: Make) -> None:
    (problem,) = check_plan(make_gpt(8, 2048, 16), machine, replace(GOOD, global_batch_count=18))
    assert problem.text == "global batch 18 is not a multiple of data degree x micro-batch = 4"
    assert "micro_batch_count" in problem.fields


def test_a_format_for_frozen_weights_needs_frozen_weights(machine: System, make_gpt: Make) -> None:
    model = make_gpt(4, 1024, 16, sequence=1024)
    plan = TrainingPlan(sequence_tokens=1024, frozen_precision="nf4")
    assert [problem.code for problem in check_plan(model, machine, plan)] == ["frozen"]
    assert not check_plan(model, machine, replace(plan, trainable_frac=0.01))
