"""Arrivals and lengths: moments by their definitions, the same bytes from the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.errors import BadRequests
from ridgeline.simulation.traffic import (
    EmpiricalLengths,
    FixedLengths,
    LognormalLengths,
    OpenLoop,
    Replay,
    gaps_s,
    lengths_of,
)
from ridgeline.specs.requests import Requests

ONE = FixedLengths(input_tokens=100, output_tokens=10)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_the_mean_and_spread_that_are_asked_for(cv: float) -> None:
    gaps = gaps_s(4.0, cv, 200_000, np.random.default_rng(7))
    # The mean of n gaps strays by cv / sqrt(n); 4 of these are allowed.
    assert gaps.mean() == pytest.approx(0.25, rel=4 * cv / 200_000**0.5 + 1e-12)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03, abs=1e-9)


def test_poisson_counts_have_a_variance_equal_to_their_mean() -> None:
    load = OpenLoop(rate_per_s=50.0, count=100_000, lengths=ONE).draw(np.random.default_rng(3))
    counts = np.bincount(load.arrived_s.astype(np.int64))[1:-1]
    assert counts.var() / counts.mean() == pytest.approx(1.0, rel=0.1)


def test_lognormal_lengths_keep_mean_and_spread_and_are_whole() -> None:
    lengths = LognormalLengths(
        input_mean_tokens=1000,
        output_mean_tokens=200,
        input_cv_frac=1.0,
        output_cv_frac=0.5,
        input_most_tokens=100_000,
        output_most_tokens=100_000,
    )
    inputs, outputs = lengths.draw(200_000, np.random.default_rng(5))
    assert inputs.mean() == pytest.approx(1000, rel=0.01)
    assert inputs.std() == pytest.approx(1000, rel=0.05)
    assert outputs.mean() == pytest.approx(200, rel=0.01)
    assert outputs.std() == pytest.approx(100, rel=0.03)
    assert inputs.min() >= 1
    assert inputs.dtype == np.int64


def test_recorded_pairs_stay_pairs() -> None:
    recorded = Requests.of([0, 1, 2], [10, 20, 30], [1, 2, 3])
    inputs, outputs = lengths_of(recorded).draw(1000, np.random.default_rng(1))
    assert (inputs == 10 * outputs).all()
    assert set(outputs.tolist()) == {1, 2, 3}
    with pytest.raises(BadRequests, match="no recorded requests"):
        lengths_of(Requests.of([], [], []))


def test_the_same_seed_gives_the_same_bytes() -> None:
    loop = OpenLoop(
        rate_per_s=5.0,
        count=1000,
        cv_frac=2.0,
        lengths=EmpiricalLengths(input_tokens=np.arange(1, 50), output_tokens=np.arange(1, 50)),
    )
    first, second = (loop.draw(np.random.default_rng(9)) for _ in range(2))
    assert first.arrived_s.tobytes() == second.arrived_s.tobytes()
    assert first.input_tokens.tobytes() == second.input_tokens.tobytes()
    assert loop.draw(np.random.default_rng(10)).arrived_s.tobytes() != first.arrived_s.tobytes()


def test_a_recording_is_cut_and_stretched() -> None:
    recorded = Requests.of([0.0, 1.0, 3.0, 9.0], [1, 2, 3, 4], [1, 1, 1, 1])
    found = Replay(requests=recorded, rate_per_s=4.0, count=3).draw(np.random.default_rng(0))
    # two gaps of 3 s in all become 2 / 4 s
    assert found.arrived_s.tolist() == pytest.approx([0.0, 1 / 6, 0.5])
    assert found.input_tokens.tolist() == [1, 2, 3]
