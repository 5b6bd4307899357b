"""Published failure statistics of large training runs, predicted from figures that come from somewhere else.

Daly's own intervals; projections and effective time of Meta's research clusters (Kokolis 2024); Llama 3 405B on 16,384
H100 (Llama 3 herd, section 3.3.4); MegaScale; a checkpoint of ByteCheckpoint. Rates of one operator judge the other.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.core import Interval
from ridgeline.scenario.goodput import reliability_of
from ridgeline.specs import Reliability
from ridgeline.training import RunConditions, estimate_goodput
from ridgeline.training.goodput import between_failures_s, daly_interval_s, effective_time_frac

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
RSC_1, RSC_2, LLAMA_3 = 6.50e-3 / DAY_S, 2.34e-3 / DAY_S, 419 / (2048 * 54 * DAY_S)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def rsc(catalog: Catalog) -> Reliability:
    """A100, whose rate comes from the research clusters."""
    return reliability_of(catalog, catalog.system("dgx-a100"))


@pytest.fixture(scope="module")
def llama(catalog: Catalog) -> Reliability:
    """H100, whose rate comes from the Llama 3 run."""
    return reliability_of(catalog, catalog.system("dgx-h100"))


def run_of(devices: int, parameters: float, days: float) -> RunConditions:
    """A run in bf16 with fp32 states (14 bytes a parameter in a checkpoint), 64 replicas that read the weights."""
    return RunConditions(
        run_s=Interval.exact(days * DAY_S),
        step_s=10.0,
        devices_count=devices,
        devices_per_node_count=8,
        checkpoint_bytes=14 * parameters,
        loaded_bytes=(14 + 63 * 2) * parameters,
        host_oneway_bytes_per_s=25e9,
    )


@pytest.mark.parametrize(("hours", "minutes", "tolerance"), [(24.0, 117, 0.5), (6.0, 57, 0.5), (0.25, 9.1, 0.05)])
def test_daly_prints_these_intervals(hours: float, minutes: float, tolerance: float) -> None:
    """Figures 3 to 5 of Daly 2006: dump of 5 min, mean time between failures of 24 h, 6 h and 15 min."""
    assert daly_interval_s(5.0, 60 * hours) == pytest.approx(minutes, abs=tolerance)


@pytest.mark.parametrize(("devices", "hours", "tolerance"), [(16_384, 1.8, 0.05), (131_072, 0.23, 0.005)])
def test_rsc_1_projections(devices: int, hours: float, tolerance: float) -> None:
    """Kokolis 2024: mean time to failure projected from 6.50 failures a thousand node-days."""
    assert between_failures_s(devices / 8, RSC_1) / HOUR_S == pytest.approx(hours, abs=tolerance)


def test_known_gap_jobs_of_1024_devices_stop_more_often() -> None:
    """Measured 7.9 h; nodes in series give 28.8 h. Smaller jobs stop for reasons that are not in the node rate."""
    assert between_failures_s(128, RSC_1) / HOUR_S / 7.9 == pytest.approx(3.6, abs=0.1)


def test_rsc_1_with_checkpoints_every_five_minutes() -> None:
    """Kokolis 2024: 0.93 expected with a checkpoint every 5 min; the whole 16 k devices, 5 min to restart."""
    between = between_failures_s(2000, RSC_1)
    assert effective_time_frac(5 * MINUTE_S, 0.0, 5 * MINUTE_S, between) == pytest.approx(0.93, abs=0.005)


def test_100_000_devices_need_minutes() -> None:
    """Kokolis 2024: about 2 min each for interval and restart to reach 0.9 at RSC-2's rate; ours is reached there, and
    no more by 4 min (the paper also counts waiting in the queue)."""
    between = between_failures_s(12_500, RSC_2)
    reached = [effective_time_frac(m * MINUTE_S, 0.0, m * MINUTE_S, between) for m in (2, 4)]
    assert reached[0] > 0.9 > reached[1]


@pytest.mark.parametrize("devices", [2048, 4096])
def test_runs_of_rsc_1_from_the_rate_of_llama_3(devices: int, llama: Reliability) -> None:
    """Kokolis 2024: runs of 2,048 to 4,096 devices average over 0.9 at an assumed checkpoint an hour."""
    found = estimate_goodput(run_of(devices, 70e9, 7), replace(llama, interval_s=HOUR_S))
    assert found.ettr_frac.best > 0.9


def test_llama_3_from_the_rates_of_the_research_clusters(rsc: Reliability) -> None:
    """419 unexpected interruptions in 54 days on 16,384 devices, more than 90 % effective time.

    From the A100 rates (RSC-1 and 2 pooled), published restarts and a maker's storage figures: the count lies between
    those of the two clusters, and 0.9 is met within a point, the interval reaching well above it.
    """
    nodes = 2048
    assert 54 * DAY_S / between_failures_s(nodes, RSC_2) < 419 < 54 * DAY_S / between_failures_s(nodes, RSC_1)
    found = estimate_goodput(run_of(16_384, 405e9, 49), rsc)
    assert 54 * DAY_S / found.between_failures_s == pytest.approx(419, rel=0.4)
    assert found.ettr_frac.best > 0.89
    assert found.ettr_frac.high > 0.95


def test_llama_3_from_its_own_rate(llama: Reliability) -> None:
    """One interruption in 3.1 h; restarts, detection and storage still come from elsewhere."""
    found = estimate_goodput(run_of(16_384, 405e9, 49), llama)
    assert found.between_failures_s / HOUR_S == pytest.approx(3.1, abs=0.05)
    assert 0.9 < found.ettr_frac.best < 0.95


def test_megascale(rsc: Reliability) -> None:
    """Jiang 2024: weeks on over 10,000 devices of the A100's generation, over 100 restarts, over 90 % effective."""
    found = estimate_goodput(run_of(12_288, 175e9, 21), rsc)
    assert found.failures_count > 100
    assert found.ettr_frac.best > 0.9


def test_a_checkpoint_of_405b(catalog: Catalog, llama: Reliability) -> None:
    """Wan 2024, table 8: 51 s on 8,960 devices, safe end to end. The maker's storage figure is five times faster: known
    gap (collecting, planning and serialising are not modelled), inside the range of the fact."""
    run = run_of(8960, 405e9, 7)
    best, slow = (run.checkpoint_bytes / (1120 * rate) for rate in (llama.write_node_bytes_per_s.best, 0.1e9))
    assert estimate_goodput(run, llama).write_s == pytest.approx(best)
    assert best < 51 < 1.02 * slow


def test_the_rate_of_llama_3_is_the_fact(llama: Reliability) -> None:
    assert llama.node_failures_per_s.best == pytest.approx(LLAMA_3, rel=1e-3)
