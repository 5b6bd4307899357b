"""Confidence of percentiles: ranges hold the truth as often as they say, dependence of neighbours is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ridgeline.simulation.percentiles import distribution, student_t_975, warm_up_count


def test_student_t_against_tables() -> None:
    # tables: 4 -> 2.7764, 9 -> 2.2622, 19 -> 2.0930, 60 -> 2.0003
    for freedom, value in ((4, 2.7764), (9, 2.2622), (19, 2.0930), (60, 2.0003)):
        assert student_t_975(freedom) == pytest.approx(value, rel=3e-3)


def test_ranges_of_independent_samples_hold_the_truth_in_most_runs() -> None:
    generator = np.random.default_rng(11)
    truth = {"mean": 1.0, "p50": math.log(2), "p90": math.log(10), "p95": math.log(20), "p99": math.log(100)}
    hits = dict.fromkeys(truth, 0)
    for _ in range(200):
        found = distribution([generator.exponential(1.0, 4000)])
        assert found is not None
        for name, value in truth.items():
            hits[name] += getattr(found, name).contains(value)
    # 95 % of 200 runs are 190 with a deviation of 3
    assert all(count >= 178 for count in hits.values()), hits
    assert hits["mean"] <= 199


def test_neighbours_that_depend_on_each_other_widen_the_range() -> None:
    """An autoregressive chain with coefficient 0.95 has (1 + r) / (1 - r) = 39 times the variance of its mean."""
    generator = np.random.default_rng(2)
    noise = generator.normal(size=40_000)
    chain = np.zeros(40_000)
    for i in range(1, len(chain)):
        chain[i] = 0.95 * chain[i - 1] + noise[i]
    shuffled = generator.permutation(chain)
    wide, narrow = distribution([chain]), distribution([shuffled])
    assert wide is not None
    assert narrow is not None
    ratio = (wide.mean.high - wide.mean.low) / (narrow.mean.high - narrow.mean.low)  # type: ignore[operator]
    assert 3.0 < ratio < 12.0  # sqrt(39) = 6.2 with 20 batches each


def test_too_few_samples_have_no_range() -> None:
    found = distribution([np.arange(20.0)])
    assert found is not None
    assert (found.p99.low, found.p99.high) == (None, None)
    assert found.p50.best == 9.5
    assert distribution([np.zeros(0)]) is None


def test_replications_are_used_where_there_are_five() -> None:
    runs = [np.full(3, float(level)) for level in (1, 2, 3, 4, 5)]
    found = distribution(runs)
    assert found is not None
    # standard error of 1..5 around 3: sqrt(10 / 4 / 5) = 0.7071, times 2.776
    assert found.mean.high == pytest.approx(3 + 2.776 * math.sqrt(0.5), rel=3e-3)


def test_the_start_of_a_run_is_found() -> None:
    generator = np.random.default_rng(4)
    level = np.concatenate([np.linspace(0, 10, 500), np.full(4500, 10.0)]) + generator.normal(size=5000)
    assert 400 <= warm_up_count(level) <= 700
    assert warm_up_count(generator.normal(size=5000)) < 1500
    assert warm_up_count(np.arange(20.0)) == 0
