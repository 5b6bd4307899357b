"""Which layouts there are, why one cannot be, and the best of them."""

from __future__ import annotations

import pytest

from ridgeline.errors import BadPlan, NoFeasiblePlan
from ridgeline.serving import (
    best_layout,
    fewest_devices,
    layout_problems,
    precisions_on,
    serving_layouts,
    try_layouts,
)
from ridgeline.specs import Chip, EngineProfile, ServingPlan


def labels(plans):
    return [(p.tensor_count, p.pipeline_count, p.replica_count) for p in plans]


def test_layouts_divide_the_devices(toy):
    plans = list(serving_layouts(toy.decoder(), toy.system, 8))
    assert labels(plans) == [(1, 1, 8), (2, 1, 4), (4, 1, 2), (8, 1, 1)]
    assert all(not layout_problems(toy.decoder(), plan, toy.system) for plan in plans)


def test_pins_hold(toy):
    plans = list(serving_layouts(toy.decoder(), toy.system, 8, pins={"tensor_count": 4}))
    assert labels(plans) == [(4, 1, 2)]
    with pytest.raises(BadPlan, match="tensor_count"):
        list(serving_layouts(toy.decoder(), toy.system, 8, pins={"tensor_cnt": 4}))


def test_mixtures_spread_their_experts_too(toy):
    model = toy.decoder(toy.Dims(experts=8, active=2, inner=2048))
    found = {(p.tensor_count, p.expert_count, p.attention_data_count) for p in serving_layouts(model, toy.system, 8)}
    assert {(8, 1, 1), (8, 8, 1), (8, 8, 8), (1, 1, 1)} <= found


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (ServingPlan(tensor_count=3), "heads do not divide"),
        (ServingPlan(tensor_count=2, expert_count=2), "experts do not divide"),
        (ServingPlan(pipeline_count=64), "more stages than layers"),
        (ServingPlan(weight_precision="nvfp4", activation_precision="nvfp4"), "precision unsupported by the chip"),
        (ServingPlan(tensor_count=4, attention_data_count=3), "groups do not divide"),
    ],
)
def test_problems_have_names(toy, plan, code):
    assert code in [problem.code for problem in layout_problems(toy.decoder(), plan, toy.system)]


def test_precisions_follow_checkpoint_and_chip(toy):
    model = toy.decoder()
    assert precisions_on(model, toy.chip) == ("bf16", "bf16", "bf16")
    assert precisions_on(model, toy.chip, "fp8") == ("fp8", "fp8", "bf16")
    assert precisions_on(model, toy.chip, "int4") == ("int4", "bf16", "bf16")
    assert precisions_on(model, toy.chip, "fp8", "", "fp8")[2] == "fp8"
    old = Chip(id="old", peak_dense_flop_per_s={"fp16": 1e14})
    assert precisions_on(model, old, "fp8") == ("fp8", "bf16", "bf16")  # bf16 and fp16 stand in for each other


def test_best_layout_and_reasons(toy):
    job = toy.job(toy.decoder(toy.Dims(layers=80, hidden=8192, heads=64, inner=28672)))
    tried = try_layouts(job, serving_layouts(job.model, job.system, 8))
    assert tried.rejected == {"weights do not fit": 1}
    best = best_layout(job, 8)
    assert best.fits
    assert best.plan.devices_count == 8
    with pytest.raises(NoFeasiblePlan, match="weights do not fit") as caught:
        best_layout(job, 1)
    assert caught.value.rejected == {"weights do not fit": 1}


def test_fewest_devices_that_keep_a_rate(toy):
    job = toy.job(engine=EngineProfile(id="e", max_batch_count=64)).with_load(rate_per_s=100.0)
    found = fewest_devices(job, [1, 2, 4, 8])
    assert found.feasible
    with pytest.raises(NoFeasiblePlan):
        best_layout(job, found.devices_count // 2)
    with pytest.raises(NoFeasiblePlan, match="rate above capacity"):
        fewest_devices(job.with_load(rate_per_s=1e6), [1, 2])
