"""What is said of simulated runs beside their figures."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.simulation.results import Limits, Served, measure, steadiness


@pytest.mark.parametrize(("slow_count", "told"), [(4, False), (8, True)])
def test_a_limit_that_more_than_a_twentieth_breaks_is_told(slow_count: int, told: bool) -> None:
    count = 100
    arrived = np.arange(count, dtype=float)
    lasted = np.where(np.arange(count) < count - slow_count, 0.5, 3.0)
    ones = np.ones(count, dtype=np.int64)
    run = Served(
        arrived_s=arrived,
        started_s=arrived,
        first_token_s=arrived + 0.1,
        finished_s=arrived + lasted,
        input_tokens=ones,
        output_tokens=2 * ones,
        answered=ones > 0,
    )
    measured = measure([run], Limits(e2e_s=1.0), 0.0)
    assert measured.within_frac["e2e_s"] == pytest.approx(1 - slow_count / count)
    found = [note for note in steadiness(measured) if "keep the limit of e2e" in note.text]
    assert bool(found) is told
