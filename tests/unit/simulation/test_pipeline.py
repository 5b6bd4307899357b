"""Pipelines against the bounds of operational analysis, queues by hand, and the conservation of frames."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.core import FrozenMap
from ridgeline.errors import BadPlan, UnknownName
from ridgeline.simulation.pipeline import (
    Pipeline,
    PipeStage,
    PipeStep,
    bottleneck,
    demands_s,
    frame_tree,
    glue_frac,
    rate_bound_per_s,
    thread_alone_s,
)
from ridgeline.simulation.pipeline_run import PipelineRun, run_pipeline


def stage(name: str, unit: str, time_s: float, after: str = "", **more: object) -> PipeStage:
    step = PipeStep(name=name, unit=unit, time_s=time_s)
    return PipeStage(name=name, steps=(step,), after=(after,) if after else (), **more)  # type: ignore[arg-type]


def pipeline(*stages: PipeStage, units: dict[str, int], **more: object) -> Pipeline:
    memories = more.pop("memories", {})
    return Pipeline(stages=stages, units=FrozenMap(units), memories=FrozenMap(memories), **more)  # type: ignore[arg-type]


def run(made: Pipeline, synchronous: bool, frames: int = 400) -> PipelineRun:
    return run_pipeline(made, frames, synchronous, np.random.default_rng(1))


THREE = (
    stage("decode", "video", 0.004),
    stage("resize", "cpu", 0.010, "decode"),
    stage("infer", "gpu", 0.006, "resize"),
)
UNITS = {"video": 1, "cpu": 1, "gpu": 1}


def test_one_thread_takes_the_sum_and_queues_the_largest() -> None:
    made = pipeline(*THREE, units=UNITS)
    # 4 + 10 + 6 ms one after another; side by side the resize of 10 ms sets the pace
    assert run(made, True).frames_per_s == pytest.approx(50, rel=0.01)
    assert run(made, False).frames_per_s == pytest.approx(100, rel=0.01)
    assert bottleneck(demands_s(made, False)) == "cpu"
    assert frame_tree(made).value == pytest.approx(0.020)
    assert frame_tree(made).check() == []


@pytest.mark.parametrize("streams", [1, 2, 3, 8])
@pytest.mark.parametrize("synchronous", [True, False])
def test_the_bounds_of_operational_analysis_hold_and_are_reached(streams: int, synchronous: bool) -> None:
    made = pipeline(*THREE, units={**UNITS, "cpu": 2}, streams_count=streams, buffers_count=3)
    under_way = streams if synchronous else 3 * streams
    bound = rate_bound_per_s(demands_s(made, not synchronous), thread_alone_s(made.stages), under_way)
    found = run(made, synchronous)
    assert found.frames_per_s <= bound * 1.01
    assert found.frames_per_s >= bound * 0.90  # constant times wait for each other little


def test_littles_law_holds() -> None:
    made = pipeline(*THREE, units=UNITS, streams_count=3)
    found = run(made, False, 600)
    assert found.busy_frac["frames under way"] == pytest.approx(found.frames_per_s * found.latency_s.mean(), rel=0.02)


def test_full_queues_hold_the_stage_ahead() -> None:
    """Without the limit 40 buffers would all pile up in front of the slow last stage; with places for 2 they cannot."""
    stages = (stage("fast", "a", 0.001), stage("slow", "b", 0.010, "fast"))
    made = pipeline(*stages, units={"a": 1, "b": 1}, buffers_count=40, queue_count=2)
    found = run(made, False)
    assert found.frames_per_s == pytest.approx(100, rel=0.01)
    # a place at work, two in the queue, one held by the fast worker; the rest waits in front of the first stage
    assert found.latency_s.mean() == pytest.approx(40 * 0.010, rel=0.05)


def test_frames_of_a_camera_are_dropped_when_no_buffer_is_free() -> None:
    made = pipeline(*THREE, units=UNITS, rate_per_s=80.0, buffers_count=2)
    slow, fast = run(made, True), run(made, False)
    # 80 frames/s come, one thread takes 50 of them; queues take all
    assert slow.frames_per_s == pytest.approx(50, rel=0.03)
    assert slow.dropped_count == pytest.approx(400 * 30 / 80, rel=0.05)
    assert fast.dropped_count == 0
    assert fast.latency_s.mean() == pytest.approx(0.020, rel=1e-6)


def test_streams_share_the_bandwidth_of_a_memory() -> None:
    """A copy of 10 MB takes 1 ms alone (10 GB/s); four at once on a memory of 20 GB/s take 2 ms each."""
    copy = PipeStep(name="copy", unit="cpu", time_s=0.001, kind="copy", moved_bytes=10e6, memory="dram")
    made = pipeline(PipeStage(name="copy", steps=(copy,)), units={"cpu": 8}, memories={"dram": 20e9}, streams_count=4)
    found = run(made, True)
    assert found.latency_s.mean() == pytest.approx(0.002, rel=1e-6)
    assert found.frames_per_s == pytest.approx(2000, rel=0.01)
    assert found.busy_frac["dram bandwidth"] == pytest.approx(1.0, rel=0.01)
    lone = pipeline(PipeStage(name="copy", steps=(copy,)), units={"cpu": 8}, memories={"dram": 20e9})
    assert run(lone, True).latency_s.mean() == pytest.approx(0.001)


def test_branches_run_side_by_side_and_join() -> None:
    stages = (
        stage("decode", "video", 0.002),
        stage("left", "a", 0.005, "decode"),
        stage("right", "b", 0.008, "decode"),
        PipeStage(name="join", steps=(PipeStep(name="join", unit="cpu", time_s=0.001),), after=("left", "right")),
    )
    made = pipeline(*stages, units={"video": 1, "a": 1, "b": 1, "cpu": 1}, rate_per_s=20.0)
    # 2 + max(5, 8) + 1 ms with queues, 2 + 5 + 8 + 1 ms on one thread
    assert run(made, False).latency_s.mean() == pytest.approx(0.011, rel=1e-6)
    assert run(made, True).latency_s.mean() == pytest.approx(0.016, rel=1e-6)


def test_batches_form_when_frames_wait() -> None:
    step = PipeStep(name="infer", unit="gpu", time_s=0.004, batch_s=(0.004, 0.005, 0.006, 0.007))
    made = pipeline(
        stage("resize", "cpu", 0.001),
        PipeStage(name="infer", steps=(step,), after=("resize",), batch_count=4),
        units={"cpu": 1, "gpu": 1},
        streams_count=4,
        queue_count=8,
    )
    # 4 frames in 7 ms: 571 a second; one at a time would be 250
    assert run(made, False).frames_per_s == pytest.approx(571, rel=0.03)


def test_glue_is_told_apart_from_work() -> None:
    steps = (
        PipeStep(name="json", unit="cpu", time_s=0.004, kind="serialise"),
        PipeStep(name="infer", unit="gpu", time_s=0.006),
    )
    made = pipeline(PipeStage(name="infer", steps=steps), units={"cpu": 1, "gpu": 1})
    assert glue_frac(made) == pytest.approx(0.4)
    found = run(made, True)
    assert found.held_s["infer: json"] == pytest.approx(0.004)


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(BadPlan, match="comes after resize, which is not ahead of it"):
        run(pipeline(THREE[2], THREE[1], THREE[0], units=UNITS), True)
    with pytest.raises(UnknownName, match="nearest: gpu"):
        run(pipeline(stage("a", "gp", 1.0), units=UNITS), True)
    with pytest.raises(BadPlan, match="must be 1 or more"):
        run(pipeline(*THREE, units=UNITS, buffers_count=0), True)


def test_the_same_seed_gives_the_same_bytes() -> None:
    made = pipeline(*THREE, units=UNITS, rate_per_s=30.0, streams_count=3)
    assert run(made, False).finished_s.tobytes() == run(made, False).finished_s.tobytes()
