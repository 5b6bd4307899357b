"""Questions about training time and what costs utilisation, beside those that are arithmetic of a model alone."""

from __future__ import annotations

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.specs import Calibration, SoftwareProfile, System, TrainingPlan
from ridgeline.training import TrainingJob, estimate_step
from ridgeline.workload.flop import six_n_flop_per_token

DAY_S = 86400.0


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(plugins=False)


def test_three_months_of_rwkv(catalog: Catalog) -> None:
    """BlinkDL/RWKV-LM#32: 14 B, 332 B tokens, 64 A100 for three months: 18 %."""
    work = six_n_flop_per_token(14.1e9) * 332e9
    assert work / (64 * catalog.chip("a100-sxm4-40").peak("bf16") * 91 * DAY_S) == pytest.approx(0.18, abs=0.005)


def test_faster_products_speed_up_their_share_alone() -> None:
    """NVIDIA/Megatron-LM#396: 0.34 s to 0.24 s with products twice as fast: they were 59 % of the step."""
    share = 2 * (1 - 0.24 / 0.34)
    assert 1 / ((1 - share) + share / 2) == pytest.approx(0.34 / 0.24)
    assert share == pytest.approx(0.588, abs=0.001)


def test_full_recompute_and_a_deep_pipeline_cost_utilisation(
    machine: System, calibration: Calibration, make_gpt: object
) -> None:
    """NVIDIA/Megatron-LM#1031: TP8 PP8 DP2 with full recompute runs at 0.70 of TP8 PP2 DP48 without.

    Full recompute alone is worth 3/4 (one more forward pass); the pipeline and the smaller batch the rest. The model
    of the case (70B) is taken at half of its depth, the machine is that of the tests: the direction and its size are
    what is checked.
    """
    model = make_gpt(40, 8192, 64, sequence=4096)  # type: ignore[operator]
    software = SoftwareProfile(id="x", attention="best", data_overlap=True)

    def utilisation(**plan: object) -> float:
        job = TrainingJob(
            model=model,
            plan=TrainingPlan(sequence_tokens=4096, tensor_count=8, **plan),  # type: ignore[arg-type]
            system=machine,
            calibration=calibration,
            software=software,
        )
        return estimate_step(job).mfu_frac

    light = utilisation(pipeline_count=2, data_count=48, global_batch_count=1536)
    heavy = utilisation(pipeline_count=8, data_count=2, global_batch_count=128, recompute="full")
    assert 0.65 < heavy / light < 0.78
