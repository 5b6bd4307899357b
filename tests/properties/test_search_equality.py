"""The arrays of the search against the scalar path: the same time and memory for any layout of a space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ridgeline.search.space import Axes, Space
from ridgeline.search.space_memory import MemoryArrays
from ridgeline.search.space_time import TimeArrays
from ridgeline.specs import Calibration, Host, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training import TrainingJob, check_plan, estimate_step
from ridgeline.training.clock import clock_for
from ridgeline.training.memory import host_bytes

Make = Callable[..., Transformer]
COPY = SoftwareProfile(
    id="copy",
    attention="unfused",
    dropout=True,
    bucket_bytes=4e6,
    pipeline_overlap=True,
    overlap_slowdown_frac=0.1,
    spread_sigma_frac=0.01,
    host_launch_s=1e-6,
    context_bytes=1e9,
    fragmentation_frac=0.05,
)
SHARDS = SoftwareProfile(
    id="shards",
    attention="fa2",
    states="master-only",
    flat_gradients=True,
    prefetch_layers_count=1,
    prefetch_backward=False,
    overlap_slowdown_frac=0.1,
    cheap_recompute=True,
)
PLANS_COUNT = 150


def a_space(name: str, machine: System, make_gpt: Make) -> Space:
    """A dense model with tied tables, one whose layers divide only with both ends, one of experts; two softwares."""
    system = replace(machine, host=Host(memory_bytes=1e12, memory_bandwidth_bytes_per_s=160e9))
    base = TrainingPlan(sequence_tokens=2048, global_batch_count=96)
    if name == "dense":
        return Space(model=make_gpt(12, 3072, 24), system=system, software=COPY, devices_counts=(16, 32), base=base)
    if name == "uneven":
        counted = replace(
            COPY, bucket_bytes=0.0, bucket_parameters_count=2_000_000, rank_bucket_parameters_count=100_000
        )
        model = make_gpt(14, 2048, 16, tied=False)
        return Space(
            model=model,
            system=system,
            software=replace(counted, tensor_overlap="backward"),
            devices_counts=(16,),
            base=base,
        )
    axes = Axes(contexts=(1, 2), experts=(1, 4)) if name == "experts" else Axes(sharding=("zero3", "zero2", "none"))
    model = make_gpt(8, 2048, 16, experts=8) if name == "experts" else make_gpt(8, 2048, 16)
    return Space(model=model, system=system, software=SHARDS, devices_counts=(16,), base=base, axes=axes)


@pytest.mark.parametrize("name", ["dense", "uneven", "experts", "sharded"])
def test_arrays_equal_the_scalar_path(name: str, machine: System, calibration: Calibration, make_gpt: Make) -> None:
    space = a_space(name, machine, make_gpt)
    memory = MemoryArrays(space)
    time = TimeArrays(space, clock_for(space.system, calibration, space.software))
    draw = np.random.default_rng(20260301)
    degrees = [shape for shape in space.degrees() if not space.broken(shape)]
    checked = {"offload": 0, "pipeline": 0, "zero3": 0, "ring": 0, "host": 0}
    seen = 0
    while seen < PLANS_COUNT:
        shape = degrees[draw.integers(len(degrees))]
        options = space.axes.options(shape)
        place = tuple(int(draw.integers(size)) for size in options.shape)
        plan = options.plan(shape, *place)
        codes, _ = space.broken_choices(shape)
        allowed = np.broadcast_to(codes, options.shape)[place] == 0
        assert allowed == (check_plan(space.model, space.system, plan) == [])
        if not allowed:
            continue
        seen += 1
        job = TrainingJob(
            model=space.model, plan=plan, system=space.system, calibration=calibration, software=space.software
        )
        scalar = estimate_step(job)
        wanted = np.zeros(options.shape, dtype=bool)
        wanted[place] = True
        grid = memory.grid(shape, options)
        step_s = np.broadcast_to(time.step_s(shape, options, wanted), options.shape)[place]
        assert step_s == pytest.approx(scalar.step_s.best, rel=1e-9), plan
        device = np.broadcast_to(grid.device_bytes, options.shape)[place]
        host = np.broadcast_to(grid.host_bytes, options.shape)[place]
        assert device == pytest.approx(scalar.memory.value, rel=1e-9), plan
        assert host == pytest.approx(host_bytes(space.model, plan, space.software), rel=1e-9), plan
        checked["offload"] += plan.offload_weights or plan.offload_activations
        checked["pipeline"] += plan.pipeline_count > 1
        checked["zero3"] += plan.sharding == "zero3"
        checked["ring"] += plan.tensor_overlap == "ring"
        checked["host"] += host > 0
    assert checked["offload"] > 0
    assert checked["host"] > 0
    assert checked["ring"] > 0
    assert checked["zero3" if name == "sharded" else "pipeline"] > 0
