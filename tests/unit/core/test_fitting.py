"""Least squares with a prior: truth is recovered, outliers are not followed, and without points nothing moves."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.core.fitting import fit_shifts

SHAPE = np.random.default_rng(1).uniform(0.0, 1.0, (40, 3))
SPREAD = np.array([0.5, 0.5, 0.5])


def test_truth_is_recovered_through_noise_and_outliers() -> None:
    truth = np.array([0.4, -0.3, 0.2])
    noise = np.random.default_rng(2).normal(0.0, 0.03, 40)
    noise[:4] += 2.0  # four of forty points are seven times too slow
    found = fit_shifts(lambda x: SHAPE @ x, SHAPE @ truth + noise, SPREAD, 0.03)
    assert found.shift == pytest.approx(truth, abs=0.08)
    assert found.scale < 0.08
    assert np.median(np.abs(found.left_out_residual)) < 0.06
    assert np.all(found.sigma < SPREAD)


def test_parameters_that_no_point_depends_on_stay() -> None:
    shape = SHAPE.copy()
    shape[:, 2] = 0.0
    found = fit_shifts(lambda x: shape @ x, shape @ np.array([0.3, 0.3, 0.9]), SPREAD, 0.03)
    assert found.shift[2] == 0.0
    assert found.sigma[2] == pytest.approx(0.5)


def test_a_point_left_out_does_not_help_itself() -> None:
    """One point alone moves the fit towards itself, and its own prediction without it is the prior's."""
    found = fit_shifts(lambda x: x[:1], np.array([0.5]), np.array([0.5]), 0.1)
    assert abs(found.residual[0]) < 0.5
    assert found.left_out_residual[0] == pytest.approx(-0.5, abs=1e-3)
