"""Central 80 % intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ridgeline.core import Interval, combine_correlated, combine_independent, sigma_of_residuals


def test_interval_holds_80_percent_of_a_log_normal() -> None:
    interval = Interval.from_sigma(50.0, 0.2)
    draws = 50.0 * np.exp(np.random.default_rng(1).normal(0.0, 0.2, 200_000))
    inside = np.mean([(draws >= interval.low) & (draws <= interval.high)])
    assert inside == pytest.approx(0.8, abs=0.005)


def test_sigma_of_residuals_matches_its_own_quantiles() -> None:
    # A log-normal of sigma 0.1 has a median |ln r| of 0.06745 and a 90th percentile of 0.16449.
    assert sigma_of_residuals(math.expm1(0.06745), math.expm1(0.16449)) == pytest.approx(0.1)
    assert sigma_of_residuals(0.05, 0.60) > 0.28  # a heavy tail widens


def test_sums_of_independent_terms_are_narrower_than_of_correlated_ones() -> None:
    terms = [(1.0, 0.1), (3.0, 0.2)]
    assert combine_independent(terms) == pytest.approx(math.hypot(0.1, 0.6) / 4)
    assert combine_correlated(terms) == pytest.approx(0.7 / 4)


def test_inverting_a_time_gives_the_rate() -> None:
    rate = Interval(2.0, 4.0, 5.0).inverted(100.0)
    assert (rate.low, rate.best, rate.high) == (20.0, 25.0, 50.0)
