"""Scores by hand."""

from __future__ import annotations

import json

import pytest

from ridgeline.validation.scores import Report, ScoredRow, spearman, summary


def row(measured: float, predicted: float, *, is_time: bool = False, baseline: float | None = None) -> ScoredRow:
    return ScoredRow(
        id="x-1",
        source="x",
        device="d",
        family="dense",
        metric="step_time_s" if is_time else "tokens_per_s",
        unit="s" if is_time else "1/s",
        measured=measured,
        predicted=predicted,
        low=predicted * 0.9,
        high=predicted * 1.1,
        baseline=baseline,
        is_time=is_time,
    )


def test_errors_are_on_speed_so_that_times_are_inverted() -> None:
    # Predicting 8 s for a measured 10 s is 25 % too fast; predicting 80 tokens/s for 100 is 20 % too slow.
    assert row(10, 8, is_time=True).ratio == pytest.approx(1.25)
    assert row(100, 80).ratio == pytest.approx(0.8)


def test_summary_by_hand() -> None:
    found = summary([row(100, 110, baseline=50), row(100, 95, baseline=150), row(100, 130)])
    assert found["scored"] == 3
    assert found["median_ape"] == pytest.approx(0.10)
    assert found["mean_ape"] == pytest.approx((0.10 + 0.05 + 0.30) / 3)
    assert found["bias"] == pytest.approx(0.10)
    assert found["coverage_80"] == pytest.approx(2 / 3)  # 110 -> 99..121 and 95 -> 85.5..104.5 hold; 130 -> 117.. not
    assert found["baseline"]["median_ape"] == pytest.approx(0.5)


def test_spearman_with_ties() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: scipy.stats.spearmanr gives 0.9486832980505138.
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486832980505138)
    assert spearman([1, 1], [1, 2]) is None


def test_empty_report_is_valid_json_without_nan() -> None:
    report = Report("training", "f.csv", 3)
    report.skip("no batch size")
    report.skip("no batch size")
    text = json.dumps(report.to_dict(), allow_nan=False)
    data = json.loads(text)
    assert data["skipped"] == [{"reason": "no batch size", "count": 2}]
    assert data["median_ape"] is None
    assert data["baseline"] == {"median_ape": None, "p90_ape": None}
