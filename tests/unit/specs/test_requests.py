"""Requests as arrays: checks by hand-made cases, rescaling keeps shapes of gaps."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.errors import BadRequests
from ridgeline.specs.requests import Requests


def test_rescaled_gaps_keep_their_proportions() -> None:
    load = Requests.of([2.0, 3.0, 5.0, 5.0, 10.0], [1] * 5, [1] * 5)
    # 4 gaps over 8 s are 0.5/s; 2/s divides every gap by 4
    assert load.rate_per_s == 0.5
    assert load.rescaled(2.0).arrived_s.tolist() == [0.0, 0.25, 0.75, 0.75, 2.0]


@pytest.mark.parametrize(
    ("arrived", "inputs", "outputs", "told"),
    [
        ([0, 2, 1], [1, 1, 1], [1, 1, 1], "request 2 arrives before"),
        ([0, 1], [1, 0], [1, 1], "input_tokens of request 1 is 0"),
        ([0, 1], [1, 1], [1, -3], "output_tokens of request 1 is -3"),
        ([0, float("nan")], [1, 1], [1, 1], "arrived_s of request 1 is not a number"),
        ([-1, 0], [1, 1], [1, 1], "before the start"),
        ([0, 1], [1], [1, 1], "input_tokens has 1 values"),
        ([0, 1], [1.5, 1], [1, 1], "whole numbers"),
    ],
)
def test_what_cannot_be_is_named(arrived: list[float], inputs: list[float], outputs: list[int], told: str) -> None:
    with pytest.raises(BadRequests, match=told):
        Requests.of(arrived, inputs, outputs)


def test_prefixes_longer_than_the_input_and_wrong_offsets_are_refused() -> None:
    with pytest.raises(BadRequests, match="prefix of request 1 is longer"):
        Requests.of([0, 1], [100, 10], [1, 1], prefixes=[[(1, 64)], [(1, 64)]])
    with pytest.raises(BadRequests, match="prefix_offsets"):
        Requests(
            arrived_s=np.array([0.0]),
            input_tokens=np.array([9]),
            output_tokens=np.array([1]),
            prefix_ids=np.array([1]),
            prefix_tokens=np.array([4]),
            prefix_offsets=np.array([0, 2]),
        )


def test_arrays_cannot_be_changed_and_the_first_requests_keep_their_prefixes() -> None:
    load = Requests.of([0, 1], [100, 100], [1, 1], prefixes=[[(1, 64), (2, 8)], [(1, 64)]])
    with pytest.raises(ValueError, match="read-only"):
        load.arrived_s[0] = 5.0
    part = load.first(1)
    assert (part.count, part.prefix_of(0)) == (1, [(1, 64), (2, 8)])
    assert load.rescaled(3.0).prefix_of(1) == [(1, 64)]
    assert Requests.of([], [], []).count == 0
