"""Fixed arrays: time by hand, weights that do not stay, threads and what binds them."""

from __future__ import annotations

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.errors import BadPlan, MissingFact
from ridgeline.serving.array import ArrayWork, estimate_array

CATALOG = load_catalog()


def estimate(device: str, work: ArrayWork, batch: float = 1.0, mode: str = "batch"):  # type: ignore[no-untyped-def]
    return estimate_array(work, CATALOG.chip(device), CATALOG.calibration(device), batch, mode)  # type: ignore[arg-type]


def test_one_thread_on_a_board_by_hand() -> None:
    # 7.7 GOP at 0.69 of 1.23 TOP/s (one of two cores) and 0.3 ms; 224 x 224 pixels at 36 ns on the host.
    work = ArrayWork(ops_count=7.7e9, pixels_count=224.0 * 224)
    found = estimate("zcu104-dpu", work, mode="latency")
    assert found.latency_s.best == pytest.approx(7.7e9 / (0.69 * 1.23e12) + 0.3e-3 + 50176 * 36e-9, rel=1e-3)
    assert found.time.value == pytest.approx(sum(part.value for part in found.time.parts))


def test_threads_use_all_cores_until_host_or_memory_binds() -> None:
    light = ArrayWork(ops_count=7.7e9, pixels_count=224.0 * 224)
    one = estimate("zcu104-dpu", light, mode="one-thread").samples_per_s.best
    many = estimate("zcu104-dpu", light, mode="threads").samples_per_s.best
    assert 1.5 * one < many < 2.6 * one
    heavy = ArrayWork(ops_count=7.7e9, pixels_count=224.0 * 224, moved_bytes=200e6)
    assert estimate("zcu104-dpu", heavy, mode="threads").samples_per_s.best < 0.4 * 19.2e9 / 200e6
    large = ArrayWork(ops_count=7.7e9, pixels_count=4e6)
    assert estimate("zcu104-dpu", large, mode="threads").samples_per_s.best < 4 / (4e6 * 36e-9)


def test_weights_beyond_the_memory_travel_at_every_call() -> None:
    small, large = ArrayWork(ops_count=1e9, weights_bytes=4e6), ArrayWork(ops_count=1e9, weights_bytes=42e6)
    extra = estimate("coral-edge-tpu", large).latency_s.best - estimate("coral-edge-tpu", small).latency_s.best
    assert extra == pytest.approx((42e6 - 7e6) / 0.36e9, rel=1e-6)


def test_the_host_searches_the_scores_of_a_detector() -> None:
    plain, boxes = ArrayWork(ops_count=1e9), ArrayWork(ops_count=1e9, outputs_count=182_000.0)
    times = [estimate("coral-edge-tpu", work, mode="latency").latency_s.best for work in (plain, boxes)]
    extra = times[1] - times[0]
    assert extra == pytest.approx(182_000 * 60e-9, rel=1e-6)


def test_a_cut_graph_gains_from_batches_and_one_in_place_does_not() -> None:
    kept, cut = ArrayWork(ops_count=7e9, weights_bytes=25e6), ArrayWork(ops_count=7e9, weights_bytes=60e6)
    attentive = ArrayWork(ops_count=7e9, weights_bytes=5e6, attention=True)
    gains = [
        estimate("hailo-8", work, 8.0).samples_per_s.best / estimate("hailo-8", work).samples_per_s.best
        for work in (kept, cut, attentive)
    ]
    assert gains[0] == pytest.approx(1.0)
    assert gains[1] > 3
    assert gains[2] > 2


def test_what_has_no_law_or_nothing_to_do() -> None:
    with pytest.raises(MissingFact, match="array"):
        estimate("t4", ArrayWork(ops_count=1e9))
    with pytest.raises(BadPlan):
        estimate("hailo-8", ArrayWork(ops_count=0.0))
