"""Step times of Narayanan et al. 2021 (arXiv 2104.04473), tables 1 and 2: A100-80GB, full recompute, fp16.

Published: FLOP/s a device by the paper's formula 96 B s l h^2 (1 + s/6h + V/16lh), recompute included; step times
follow from it. Nothing in the product is fitted to these rows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.specs import Transformer
from ridgeline.training import PlanDraft, Setting, TrainingEstimate, TrainingJob, complete_plan, estimate_step

SEQUENCE, VOCAB = 2048, 51200
Make = Callable[..., Transformer]


@dataclass(frozen=True)
class Case:
    id: str
    measured_s: float
    estimate: TrainingEstimate

    @property
    def error(self) -> float:
        return self.estimate.step_s.best / self.measured_s - 1


def rows() -> list[dict[str, str]]:
    with (Path(__file__).parent / "training_sc21.csv").open() as stream:
        return list(csv.DictReader(stream))


def paper_flop(batch: int, layers: int, hidden: int) -> float:
    """Equation 3 of the paper."""
    square = 1 + SEQUENCE / (6 * hidden) + VOCAB / (16 * layers * hidden)
    return 96 * batch * SEQUENCE * layers * hidden**2 * square


@pytest.fixture(scope="module")
def cases(make_gpt: Make) -> list[Case]:
    catalog = load_catalog(plugins=False)
    system = catalog.system("dgx-a100")
    software = catalog.software("Megatron-LM", "2021")
    found = []
    for row in rows():
        layers, hidden, devices = (int(row[name]) for name in ("layers", "hidden", "devices"))
        model = make_gpt(layers, hidden, int(row["heads"]), vocab=VOCAB, sequence=SEQUENCE)
        setting = Setting(
            model=model, system=system, calibration=catalog.calibration(system.chip.id), software=software
        )
        draft = PlanDraft(
            devices_count=devices,
            sequence_tokens=SEQUENCE,
            tensor_count=int(row["tensor"]),
            pipeline_count=int(row["pipeline"]),
            interleave_count=int(row["interleave"]) if row["interleave"] else None,
            micro_batch_count=int(row["micro_batch"]),
            global_batch_count=int(row["global_batch"]),
            precision="fp16",
            recompute="full",
        )
        plan, _ = complete_plan(draft, setting)
        job = TrainingJob(model=model, plan=plan, system=system, calibration=setting.calibration, software=software)
        flop = paper_flop(int(row["global_batch"]), layers, hidden)
        measured_s = flop / (float(row["tflop_per_s"]) * 1e12 * devices)
        found.append(Case(row["id"], measured_s, estimate_step(job)))
    return found


def test_six_rows_of_table_2_within_6_percent_on_average(cases: list[Case]) -> None:
    errors = {case.id: case.error for case in cases if case.id.startswith("t2")}
    assert len(errors) == 6
    assert fmean(abs(error) for error in errors.values()) < 0.06, errors


def test_ten_rows_of_table_1(cases: list[Case]) -> None:
    errors = {case.id: case.error for case in cases if case.id.startswith("t1")}
    assert len(errors) == 10
    assert fmean(abs(error) for error in errors.values()) < 0.06, errors
    assert max(abs(error) for error in errors.values()) < 0.15, errors


def test_the_runs_fitted_in_memory_and_trees_add_up(cases: list[Case]) -> None:
    for case in cases:
        assert case.estimate.fits, case.id
        assert case.estimate.time.check() == []
        assert case.estimate.memory.check() == []


def test_most_measurements_lie_in_the_80_percent_interval(cases: list[Case]) -> None:
    inside = sum(case.estimate.step_s.contains(case.measured_s) for case in cases)
    assert inside / len(cases) >= 0.8


def test_more_data_ranks_are_faster_and_less_efficient(cases: list[Case]) -> None:
    """The trend of table 2: fewer micro-batches a pipeline, a larger share of bubble and of gradient sums."""
    for prefix in ("t2-174.6B", "t2-529.6B"):
        steps = [case.estimate for case in cases if case.id.startswith(prefix)]
        assert [e.step_s.best for e in steps] == sorted((e.step_s.best for e in steps), reverse=True)
        assert [e.mfu_frac for e in steps] == sorted((e.mfu_frac for e in steps), reverse=True)
