"""What a layout may decide beyond degrees: overlaps, gathered inputs that stay, what lies in the host's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ridgeline.specs import Calibration, Host, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training import TrainingEstimate, TrainingJob, check_plan, estimate_step, peak_memory
from ridgeline.training.host import host_memory_bytes, host_oneway_bytes_per_s
from ridgeline.training.memory import host_bytes
from ridgeline.training.schedule import bucketed_exposed_s, layerwise_exposed_s, ring_exposed_s

Make = Callable[..., Transformer]
PLAIN = SoftwareProfile(id="plain", attention="fa2", gradient_precision="same", reduce_precision="same")
BASE = TrainingPlan(tensor_count=4, data_count=4, global_batch_count=32, sequence_tokens=2048)


@pytest.fixture
def model(make_gpt: Make) -> Transformer:
    return make_gpt(8, 2048, 16)


@pytest.fixture
def estimate(machine: System, calibration: Calibration, model: Transformer) -> Callable[..., TrainingEstimate]:
    def run(software: SoftwareProfile = PLAIN, **plan: object) -> TrainingEstimate:
        job = TrainingJob(
            model=model,
            plan=replace(BASE, **plan),  # type: ignore[arg-type]
            system=machine,
            calibration=calibration,
            software=software,
        )
        return estimate_step(job)

    return run


Estimate = Callable[..., TrainingEstimate]


def test_an_overlap_of_the_plan_is_that_of_a_software_which_has_it(estimate: Estimate) -> None:
    for overlap in ("none", "backward", "pipelined"):
        chosen = estimate(tensor_overlap=overlap).step_s.best
        assert chosen == estimate(replace(PLAIN, tensor_overlap=overlap)).step_s.best  # type: ignore[arg-type]
    lazy = replace(PLAIN, bucket_bytes=25e6)
    eager = replace(lazy, data_overlap=True, gather_overlap=True)
    steps_s = {name: estimate(lazy, data_overlap=name).step_s.best for name in ("none", "gradients", "both")}
    assert steps_s["both"] == estimate(eager).step_s.best
    assert steps_s["both"] < steps_s["gradients"] < steps_s["none"]
    assert estimate(eager, data_overlap="none").step_s.best == steps_s["none"] == estimate(lazy).step_s.best


def test_a_ring_hides_exchanges_and_pays_with_products_in_pieces(estimate: Estimate) -> None:
    plain, ring = estimate(tensor_overlap="none"), estimate(tensor_overlap="ring")
    forward, before = ring.time.find("forward"), plain.time.find("forward")
    hidden_s = -forward.value_of("tensor exchange hidden") - forward.value_of("tensor exchange late hidden")
    assert hidden_s > 0
    slowed_s = forward.value_of("slowed by exchange")
    pieces_s = forward.value_of("products in pieces")
    assert pieces_s > 0
    assert forward.value == pytest.approx(before.value - hidden_s + slowed_s + pieces_s)


def test_gathered_inputs_that_stay_cost_memory_and_save_an_exchange(estimate: Estimate, model: Transformer) -> None:
    shards, whole = estimate(), estimate(keep_gathered=True)
    # the inputs of q+k+v and of the first MLP matrix: 2 x 2048 tokens x 2048 x 2 B, three quarters of them more
    more = 8 * 2 * 2048 * 2048 * 2 * 0.75
    gained = whole.memory.value_of("activations") - shards.memory.value_of("activations")
    assert gained == pytest.approx(more)
    late = [e.time.find("backward").value_of("tensor exchange late") for e in (shards, whole)]
    assert late[1] < late[0]


def test_offloaded_activations_cross_the_link_twice(estimate: Estimate) -> None:
    kept, away = estimate(), estimate(offload_activations=True)
    size = kept.memory.value_of("activations")
    crossed_s = sum(part.value_of("host transfers") for part in (away.time.find("forward"), away.time.find("backward")))
    assert crossed_s == pytest.approx(8 * 2 * size / 25e9)  # eight micro-batches, up and down at 25 GB/s
    assert away.memory.value_of("activations") == pytest.approx(size * 2 / 8)  # two layers of eight
    assert away.step_s.best > kept.step_s.best


def test_offloaded_weights_leave_two_layers(estimate: Estimate) -> None:
    kept, away = estimate(), estimate(offload_weights=True)
    layer = (12 * 2048**2 + 2048 * 7) / 4 + 6 * 2048  # matrices and split biases over 4; norms and two biases whole
    gone = (kept.memory.value_of("weights") - away.memory.value_of("weights")) / 2
    assert gone == pytest.approx(6 * layer, rel=1e-3)
    assert "host transfers" in {node.name for node in away.time.walk()}


def test_the_host_holds_what_is_offloaded(model: Transformer) -> None:
    plan = replace(BASE, offload_activations=True, offload_weights=True, offload_optimizer=True)
    here = peak_memory(model, replace(BASE, offload_optimizer=False), PLAIN)
    there = peak_memory(model, plan, PLAIN)
    parts = ("weights", "master weights", "optimizer moments", "activations")
    moved = sum(here.value_of(name) - there.value_of(name) for name in parts)
    assert host_bytes(model, plan, PLAIN) == pytest.approx(moved)
    assert host_bytes(model, BASE, PLAIN) == 0


def test_host_figures_are_shares_of_a_node(machine: System) -> None:
    assert host_oneway_bytes_per_s(machine) == 25e9
    assert host_memory_bytes(machine) is None
    slow = replace(machine, host=Host(memory_bytes=1e12, memory_bandwidth_bytes_per_s=80e9))
    assert host_oneway_bytes_per_s(slow) == 10e9
    assert host_memory_bytes(slow) == 125e9


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"keep_gathered": True, "sequence_parallel": False}, "sequence"),
        ({"tensor_overlap": "ring", "sequence_parallel": False}, "overlap"),
        ({"tensor_overlap": "backward", "tensor_count": 1, "data_count": 16}, "overlap"),
        ({"data_overlap": "gradients", "data_count": 1}, "overlap"),
        ({"data_overlap": "both", "sharding": "none"}, "overlap"),
        ({"data_overlap": "gradients", "sharding": "zero3"}, "overlap"),
    ],
)
def test_choices_that_contradict_are_named(
    machine: System, model: Transformer, changes: dict[str, object], code: str
) -> None:
    assert [p.code for p in check_plan(model, machine, replace(BASE, **changes))] == [code]  # type: ignore[arg-type]


def test_offloading_needs_a_link_that_is_known(machine: System, model: Transformer) -> None:
    blind = replace(machine, chip=replace(machine.chip, host_oneway_bytes_per_s=None))
    assert [p.code for p in check_plan(model, blind, replace(BASE, offload_weights=True))] == ["offload"]


def test_formulas_of_overlap_broadcast() -> None:
    work_s = np.array([0.5, 1.0, 2.0])
    assert list(bucketed_exposed_s(1.0, work_s, 4.0)) == [bucketed_exposed_s(1.0, w, 4.0) for w in (0.5, 1.0, 2.0)]
    assert list(ring_exposed_s(1.0, work_s, 4.0)) == [ring_exposed_s(1.0, w, 4.0) for w in (0.5, 1.0, 2.0)]
    assert list(layerwise_exposed_s(1.0, work_s, 9.0, 1)) == [layerwise_exposed_s(1.0, w, 9.0, 1) for w in work_s]
