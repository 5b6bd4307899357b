"""Formulas of the schedule against hand-worked values."""

from __future__ import annotations

import math

import pytest

from ridgeline.training.schedule import (
    bubble_s,
    bucketed_exposed_s,
    layerwise_exposed_s,
    pipelined_exposed_s,
    slowest_excess_frac,
)


@pytest.mark.parametrize("depth", [1, 2, 4, 16])
@pytest.mark.parametrize("batches", [1, 8, 64])
def test_bubble_of_equal_stages_is_that_of_gpipe(depth: int, batches: int) -> None:
    """Huang 2019: (P - 1)/(M + P - 1) of the step."""
    waiting = bubble_s([0.25] * depth, 1)
    assert waiting / (batches * 0.25 + waiting) == pytest.approx((depth - 1) / (batches + depth - 1))


def test_interleaving_divides_the_bubble() -> None:
    """Narayanan 2021, section 2.2.2: (p - 1)/v of a micro-batch."""
    assert bubble_s([2.0] * 8, 4) == bubble_s([2.0] * 8, 1) / 4 == 7 * 2.0 / 4


def test_uneven_stages_wait_for_the_slowest() -> None:
    assert bubble_s([1.0, 3.0, 1.0], 1) == 2.0


def test_one_bucket_hides_nothing() -> None:
    assert bucketed_exposed_s(3.0, 100.0, 1.0) == 3.0


def test_a_short_pass_hides_what_it_can() -> None:
    # 4 buckets of 1 s behind 2 s: the last stands alone, the other 3 share 2 s in proportion
    assert bucketed_exposed_s(4.0, 2.0, 4.0) == 1.0 + 2.0 * 0.75
    assert pipelined_exposed_s(4.0, 2.0, 4.0) == bucketed_exposed_s(4.0, 2.0, 4.0)


def test_layers_gather_behind_their_neighbours() -> None:
    assert layerwise_exposed_s(2.0, 1.0, 5.0, 1) == 2.0 + 4 * 1.0
    assert layerwise_exposed_s(2.0, 3.0, 5.0, 1) == 2.0
    assert layerwise_exposed_s(2.0, 3.0, 5.0, 0) == 10.0


def test_slowest_of_many() -> None:
    """Expected maximum of n normals: 1.4236 for 8 (exact), Blom's approximation within 1 %; grows with n."""
    assert slowest_excess_frac(1.0, 8) == pytest.approx(1.4236, rel=0.01)
    assert slowest_excess_frac(1.0, 1024) == pytest.approx(3.2, rel=0.02)
    assert slowest_excess_frac(0.0, 8) == 0.0
    found = [slowest_excess_frac(0.02, 2**power) for power in range(12)]
    assert found == sorted(found)
    assert math.isclose(found[1], 0.02 * 0.589, rel_tol=0.01)  # Blom for 2; the exact value is 0.564
