"""The space of layouts: how many there are, which rules they break, and what the search of all of them finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ridgeline.search.exhaustive import HOST_MEMORY, MEMORY, MISSING, search_space
from ridgeline.search.explain import Assumption, explain, net_terms, swings
from ridgeline.search.pareto import front, front_of_sizes
from ridgeline.search.space import Axes, Space, divisors, factorisations
from ridgeline.search.training import REASONS
from ridgeline.specs import Calibration, Host, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training import TrainingJob, check_plan, estimate_step, peak_memory
from ridgeline.training.memory import host_bytes

Make = Callable[..., Transformer]
SOFTWARE = SoftwareProfile(id="plain", attention="unfused", bucket_bytes=4e6, fragmentation_frac=0.05)
AXES = Axes(
    sequence=((False, False), (True, False)),
    tensor_overlap=("none", "ring"),
    recompute=(("none", 1.0), ("full", 0.5)),
    sharding=("none", "zero1", "zero3"),
    data_overlap=("none", "both"),
    offload_weights=(False,),
)


@pytest.fixture
def space(machine: System, make_gpt: Make) -> Space:
    """Four to eight small chips with 3 GB each and a host that holds 0.5 GB for each."""
    chip = replace(machine.chip, memory_capacity_bytes=3e9)
    system = replace(machine, chip=chip, host=Host(memory_bytes=4e9))
    base = TrainingPlan(sequence_tokens=2048, global_batch_count=8)
    return Space(
        model=make_gpt(4, 1024, 8), system=system, software=SOFTWARE, devices_counts=(4, 8), base=base, axes=AXES
    )


def every_plan(space: Space) -> Iterator[TrainingPlan]:
    for shape in space.degrees():
        options = space.axes.options(shape)
        for place in product(*(range(size) for size in options.shape)):
            yield options.plan(shape, *place)


def test_degrees_are_all_that_multiply(space: Space) -> None:
    shapes = list(space.degrees())
    assert {(s.tensor_count, s.pipeline_count, s.data_count) for s in shapes if s.devices_count == 8} == set(
        factorisations(8)
    )
    assert {s.devices_count for s in shapes} == {4, 8}
    # two stages of four layers: one or two virtual stages; two data ranks take 1, 2 or 4 of eight sequences at once
    mine = [s for s in shapes if (s.tensor_count, s.pipeline_count, s.data_count) == (2, 2, 2)]
    assert {(s.interleave_count, s.micro_batch_count) for s in mine} == {(v, m) for v in (1, 2) for m in (1, 2, 4)}


def test_choices_without_a_meaning_are_not_counted(space: Space) -> None:
    plain = TrainingPlan(sequence_tokens=2048, global_batch_count=8)
    assert space.axes.options(plain).shape == (1, 1, 2, 1, 1, 1, 2, 2)
    assert space.axes.options(replace(plain, tensor_count=2)).shape == (2, 2, 2, 1, 1, 1, 2, 2)
    assert space.axes.options(replace(plain, data_count=2)).shape == (1, 1, 2, 3, 2, 1, 2, 2)


def test_the_documented_space_of_gpt3_has_as_many_strategies(machine: System, make_gpt: Make) -> None:
    base = TrainingPlan(sequence_tokens=2048, global_batch_count=4096)
    model = make_gpt(96, 12288, 96)
    space = Space(model=model, system=machine, software=SOFTWARE, devices_counts=(4096,), base=base)
    dividing = sum(
        space.axes.options(shape).count
        for shape in space.degrees()
        if 96 % shape.tensor_count == 0 and 96 % shape.pipeline_count == 0
    )
    assert dividing == 10_405_152  # of 25.6 million: heads and layers divide
    assert dividing > 7_126_368


def test_all_layouts_one_by_one_come_to_the_same(space: Space, calibration: Calibration) -> None:
    found = search_space(space, calibration)
    rejected: Counter[str] = Counter()
    fitting: list[TrainingPlan] = []
    for plan in every_plan(space):
        problems = check_plan(space.model, space.system, plan)
        if problems:
            rejected[problems[0].code] += 1
        elif peak_memory(space.model, plan, SOFTWARE).value > 3e9:
            rejected[MEMORY] += 1
        elif host_bytes(space.model, plan, SOFTWARE) > 0.5e9:
            rejected[HOST_MEMORY] += 1
        else:
            fitting.append(plan)
    assert sum(found.rejected.values()) + found.feasible_count == found.strategies_count == space.count()
    assert found.complete
    assert found.feasible_count == len(fitting) > 0
    assert found.allowed_count == len(fitting) + rejected[MEMORY] + rejected[HOST_MEMORY]
    for code in (MEMORY, HOST_MEMORY, "layers"):
        assert found.rejected[REASONS.get(code, code)] == rejected[code] > 0
    draw = np.random.default_rng(7)
    tried = [fitting[index] for index in draw.choice(len(fitting), 200)]
    steps_s = [estimate_step(job_of(space, calibration, plan)).step_s.best for plan in tried]
    assert found.best is not None
    assert found.best.step_s <= min(steps_s) * (1 + 1e-9)
    for plan, step_s in zip(tried, steps_s, strict=True):
        size = peak_memory(space.model, plan, SOFTWARE).value
        assert any(
            other.step_s <= step_s * (1 + 1e-9)
            and other.memory_bytes <= size * (1 + 1e-9)
            and other.plan.devices_count <= plan.devices_count
            for other in found.front
        )


def job_of(space: Space, calibration: Calibration, plan: TrainingPlan) -> TrainingJob:
    return TrainingJob(
        model=space.model, plan=plan, system=space.system, calibration=calibration, software=space.software
    )


def test_nothing_on_the_front_beats_another(space: Space, calibration: Calibration) -> None:
    items = search_space(space, calibration).front
    for one, other in product(items, items):
        better = one.step_s <= other.step_s and one.memory_bytes <= other.memory_bytes
        assert one is other or not (better and one.plan.devices_count <= other.plan.devices_count)


def test_progress_is_told_and_an_interrupt_keeps_what_was_found(space: Space, calibration: Calibration) -> None:
    whole = search_space(space, calibration)
    told: list[tuple[int, int, float]] = []

    def stop(done: int, total: int, best_s: float) -> None:
        told.append((done, total, best_s))
        if len(told) == 12:
            raise KeyboardInterrupt

    part = search_space(space, calibration, stop)
    assert told[-1][0] == part.searched_count < part.strategies_count == whole.strategies_count
    assert told[-1][2] == part.best.step_s  # type: ignore[union-attr]
    assert not part.complete
    assert part.to_dict()["complete"] is False
    assert set(part.shapes) <= set(whole.shapes)


def test_an_interrupt_before_anything_fits_is_passed_on(space: Space, calibration: Calibration) -> None:
    def stop(done: int, total: int, best_s: float) -> None:
        raise KeyboardInterrupt

    none_fits = replace(space, system=replace(space.system, chip=replace(space.system.chip, memory_capacity_bytes=1.0)))
    with pytest.raises(KeyboardInterrupt):
        search_space(none_fits, calibration, stop)
    nothing = search_space(none_fits, calibration)
    assert nothing.best is None
    assert nothing.front == ()
    assert explain(none_fits, nothing, calibration) is None


def test_a_figure_that_is_missing_is_a_reason(space: Space, calibration: Calibration) -> None:
    blind = replace(space.system, chip=replace(space.system.chip, memory_bandwidth_bytes_per_s=None))
    found = search_space(replace(space, system=blind), calibration)
    assert found.feasible_count == 0
    assert found.rejected[MISSING] > 0
    assert "memory_bandwidth" in found.missing


def test_fronts_by_hand() -> None:
    first, second = np.array([1.0, 2.0, 3.0, 1.0]), np.array([5.0, 5.0, 1.0, 6.0])
    assert front(first, second).tolist() == [0, 2]
    sizes = np.array([16, 8, 16, 16])
    assert sorted(front_of_sizes(first, second, sizes).tolist()) == [0, 1, 2]
    assert divisors(6) == [1, 2, 3, 6]


def test_the_winner_is_explained(space: Space, calibration: Calibration) -> None:
    result = search_space(space, calibration)
    overlap = Assumption(
        fact_id="plain.overlap_slowdown_frac", part="software", field="overlap_slowdown_frac", low=0.0, high=0.5
    )
    memory = Assumption(
        fact_id="chip.memory_bandwidth", part="chip", field="memory_bandwidth_bytes_per_s", low=1e12, high=3e12
    )
    found = explain(space, result, calibration, (overlap, memory))
    assert found is not None
    assert result.best is not None
    assert found.estimate.step_s.best == pytest.approx(result.best.step_s, rel=1e-9)
    assert sum(term.time_s for term in found.terms) == pytest.approx(result.best.step_s)
    assert found.terms[0].time_s == max(term.time_s for term in found.terms)
    widths = [swing.width_s for swing in found.swings]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0
    (slow,) = [swing for swing in found.swings if swing.what == "chip.memory_bandwidth"]
    job = job_of(space, calibration, result.best.plan)
    slower = replace(job.system, chip=replace(job.system.chip, memory_bandwidth_bytes_per_s=1e12))
    assert slow.low_s == pytest.approx(estimate_step(replace(job, system=slower)).step_s.best)
    assert slow.low_s > slow.high_s
    assert found.runner_up is not None
    assert found.runner_up.lost_s == pytest.approx(result.shapes[1].step_s - result.best.step_s, abs=1e-12)
    assert len(found.lines()) == 4
    assert found.to_dict()["binds"]["term"] == found.terms[0].name


def test_levels_of_the_network_can_be_varied(space: Space, calibration: Calibration) -> None:
    plan = TrainingPlan(tensor_count=2, data_count=2, sequence_tokens=2048, global_batch_count=8)
    job = job_of(space, calibration, plan)
    wide = Assumption(
        fact_id="switch.oneway", part="level", field="oneway_bytes_per_s", low=1e10, high=3e11, level="switch"
    )
    (found,) = [swing for swing in swings(job, [wide]) if swing.what == "switch.oneway"]
    assert found.low_s > found.high_s == pytest.approx(estimate_step(job).step_s.best)
    tree = estimate_step(job).time
    assert sum(term.time_s for term in net_terms(tree)) == pytest.approx(tree.value)
