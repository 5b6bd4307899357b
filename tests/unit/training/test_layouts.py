"""Enumeration of layouts, and what an unstated plan is filled with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ridgeline.core import FrozenMap
from ridgeline.errors import BadPlan
from ridgeline.specs import Calibration, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training import (
    LayoutRequest,
    PlanDraft,
    Setting,
    candidates,
    check_plan,
    complete_plan,
    layouts,
    least_recompute,
    peak_memory,
)

Make = Callable[..., Transformer]
SOFTWARE = SoftwareProfile(id="s", attention="fa2", sharding="zero1", context_bytes=1e9)


def request(model: Transformer, system: System, devices: int = 32, **pins: int | str | bool) -> LayoutRequest:
    return LayoutRequest(
        model=model,
        system=system,
        software=SOFTWARE,
        devices_count=devices,
        base=TrainingPlan(sequence_tokens=2048, global_batch_count=64),
        pins=FrozenMap(pins),
    )


def test_layouts_keep_every_rule_fit_and_use_all_devices(machine: System, make_gpt: Make) -> None:
    model = make_gpt(48, 8192, 64)
    asked = request(model, machine)
    rejected: dict[str, int] = {}
    found = list(layouts(asked, rejected))
    assert found
    assert len(set(found)) == len(found)
    for plan in found:
        assert plan.devices_count == 32
        assert check_plan(model, machine, plan) == []
        assert peak_memory(model, plan, SOFTWARE).value <= 80e9
    assert len(found) + sum(rejected.values()) == len(list(candidates(asked)))
    assert rejected["memory"] > 0


def test_pinned_fields_stay(machine: System, make_gpt: Make) -> None:
    found = list(candidates(request(make_gpt(8, 2048, 16), machine, tensor_count=2, sharding="zero3", data_count=16)))
    assert {(plan.tensor_count, plan.data_count, plan.sharding) for plan in found} == {(2, 16, "zero3")}


def test_least_recompute_is_none_where_it_fits_and_nothing_where_nothing_does(machine: System, make_gpt: Make) -> None:
    small, large = make_gpt(8, 2048, 16), make_gpt(96, 12288, 96)
    plan = TrainingPlan(sequence_tokens=2048, global_batch_count=8, micro_batch_count=1)
    fitted = least_recompute(small, machine, SOFTWARE, plan)
    assert fitted is not None
    assert fitted.recompute == "none"
    assert least_recompute(large, machine, SOFTWARE, plan) is None
    middle = replace(plan, micro_batch_count=56, global_batch_count=56)
    fitted = least_recompute(small, machine, SOFTWARE, middle)
    assert fitted is not None
    assert fitted.recompute == "full"
    lighter = replace(fitted, recompute_layers_frac=fitted.recompute_layers_frac - 0.25)
    assert peak_memory(small, lighter, SOFTWARE).value > 80e9


@pytest.fixture
def setting(machine: System, calibration: Calibration, make_gpt: Make) -> Setting:
    return Setting(model=make_gpt(24, 6144, 48), system=machine, calibration=calibration, software=SOFTWARE)


def test_a_stated_plan_is_taken_as_it_is(setting: Setting) -> None:
    draft = PlanDraft(
        devices_count=32,
        sequence_tokens=2048,
        tensor_count=8,
        pipeline_count=2,
        interleave_count=1,
        micro_batch_count=2,
        global_batch_count=64,
        precision="bf16",
        sequence_parallel=False,
        sharding="none",
        recompute="full",
    )
    plan, notes = complete_plan(draft, setting)
    assert notes == ()
    assert (plan.data_count, plan.recompute, plan.sharding, plan.sequence_parallel) == (2, "full", "none", False)


def test_every_fill_is_noted(setting: Setting) -> None:
    plan, notes = complete_plan(PlanDraft(devices_count=32, sequence_tokens=2048, global_batch_count=64), setting)
    text = " | ".join(note.text for note in notes)
    assert all(note.kind == "fill" for note in notes)
    for word in ("precision", "degrees", "sharding", "micro-batch", "recompute"):
        assert word in text
    assert check_plan(setting.model, setting.system, plan) == []
    assert peak_memory(setting.model, plan, setting.software).value <= 80e9


def test_interleaving_is_the_fastest_that_divides(setting: Setting) -> None:
    draft = PlanDraft(
        devices_count=32,
        sequence_tokens=2048,
        tensor_count=8,
        pipeline_count=4,
        global_batch_count=16,
        recompute="full",
    )
    plain, _ = complete_plan(draft, setting)
    folded = replace(setting, software=replace(SOFTWARE, interleaved=True, pipeline_overlap=True))
    plan, notes = complete_plan(draft, folded)
    assert plain.interleave_count == 1
    assert plan.interleave_count > 1
    assert 24 % (4 * plan.interleave_count) == 0
    assert any("interleaving" in note.text for note in notes)


def test_default_recompute_of_the_framework_goes_first(setting: Setting) -> None:
    draft = PlanDraft(devices_count=8, sequence_tokens=2048, tensor_count=8, micro_batch_count=1)
    plan, notes = complete_plan(draft, replace(setting, software=replace(SOFTWARE, recompute="full")))
    assert plan.recompute == "full"
    assert any("the default of" in note.text for note in notes)
    assert plan.global_batch_count == 1


def test_no_batch_and_degrees_that_do_not_multiply_are_refused(setting: Setting) -> None:
    with pytest.raises(BadPlan, match="no batch size"):
        complete_plan(PlanDraft(devices_count=8, sequence_tokens=2048, tensor_count=8), setting)
    with pytest.raises(BadPlan, match="do not divide 8 devices"):
        complete_plan(PlanDraft(devices_count=8, sequence_tokens=2048, tensor_count=3), setting)


def test_full_sharding_is_taken_where_the_default_cannot_fit(setting: Setting, make_gpt: Make) -> None:
    draft = PlanDraft(
        devices_count=64, sequence_tokens=2048, tensor_count=1, global_batch_count=64, micro_batch_count=1
    )
    wide = replace(setting, model=make_gpt(60, 8192, 64))  # 48 billion parameters: weights alone take 96 GB
    plan, notes = complete_plan(draft, wide)
    assert plan.sharding == "zero3"
    assert any("does not fit even with full recompute" in note.text for note in notes)
    stated, _ = complete_plan(replace(draft, sharding="zero1"), wide)
    assert stated.sharding == "zero1"
