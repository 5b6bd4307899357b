"""A measured batcher: Triton's own figures in a closed loop, predicted where they were not used.

One user tells the time outside the server and the spread of a call. With 2 b users two batches of b follow each other,
so an even number of users tells the time of a batch of b: T(b) = b / rate. Odd numbers of users, where batches of b and
b + 1 alternate, and all percentiles are predictions.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from ridgeline.simulation.batching import BatchTimes, DynamicBatching, simulate_batching
from ridgeline.simulation.traffic import ClosedLoop, FixedLengths

Measured = dict[int, tuple[float, float]]


def measured() -> dict[tuple[str, str], Measured]:
    """Rate [1/s] and 95th percentile [s] by number of users, for each model and kind of batching."""
    lines = (Path(__file__).parent / "triton_batching.csv").read_text().splitlines()[1:]
    found: dict[tuple[str, str], Measured] = {}
    for row in csv.DictReader(lines):
        figures = (float(row["infer_per_s"]), float(row["p95_us"]) * 1e-6)
        found.setdefault((row["model"], row["batching"]), {})[int(row["users"])] = figures
    return found


ALL = measured()


def predicted(users: int, times: list[float], known: Measured) -> tuple[float, float]:
    """Rate and 95th percentile of a simulation with these times of batches of 1, 2, 3 ..."""
    rate, p95_s = known[1]
    outside_s = 1.0 / rate - times[0]
    spread = (p95_s - outside_s) / times[0] - 1.0
    device_s = np.array(times)
    batch = BatchTimes(host_s=0.0 * device_s, device_s=device_s, cv_frac=spread / 1.645)
    loop = ClosedLoop(
        users_count=users, count=8000, lengths=FixedLengths(input_tokens=1, output_tokens=0), think_s=outside_s
    )
    found = simulate_batching(loop, batch, DynamicBatching(max_batch_count=len(times)), np.random.default_rng(1))
    stay_s = found.finished_s - found.arrived_s
    return len(stay_s) / found.span_s, float(np.quantile(stay_s, 0.95)) + outside_s


@pytest.mark.parametrize("users", [3, 5, 7])
def test_rates_between_those_that_were_used(users: int) -> None:
    known = ALL["inception_graphdef", "dynamic"]
    times = [size / known[2 * size][0] for size in (1, 2, 3, 4)]
    rate, _ = predicted(users, times, known)
    assert rate == pytest.approx(known[users][0], rel=0.05)


@pytest.mark.parametrize("users", range(2, 9))
def test_percentiles_of_dynamic_batching(users: int) -> None:
    known = ALL["inception_graphdef", "dynamic"]
    times = [size / known[2 * size][0] for size in (1, 2, 3, 4)]
    _, p95_s = predicted(users, times, known)
    assert p95_s == pytest.approx(known[users][1], rel=0.12)


@pytest.mark.parametrize("users", [3, 4])
@pytest.mark.parametrize("model", sorted(model for model, batching in ALL if batching == "none"))
def test_without_batching_more_users_wait_longer_for_the_same_rate(model: str, users: int) -> None:
    """Two users tell the time of a call; three and four get no more answers, each N calls late."""
    known = ALL[model, "none"]
    rate, p95_s = predicted(users, [1.0 / known[2][0]], known)
    assert rate == pytest.approx(known[users][0], rel=0.05)
    assert p95_s == pytest.approx(known[users][1], rel=0.16)
