"""Queues with known answers, through the loop that simulates engines: only the step times are those of theory.

A request of one input token takes as many steps as it has output tokens. Where a step takes the same time whatever it
holds, sequences are servers side by side; where it takes as long as there are sequences, they share one server.
Expected values are derived (closed forms); means of replications lie within their own confidence.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.simulation.toys import limits, theory

from ridgeline.simulation.steps import linear_table
from ridgeline.specs.requests import Requests

STEPS = 200  # mean length of a service; a step is 1 / STEPS


def erlang_c(servers: int, load: float) -> float:
    """Chance of waiting in M/M/c at `load` Erlang."""
    top = load**servers / math.factorial(servers) * servers / (servers - load)
    return top / (sum(load**k / math.factorial(k) for k in range(servers)) + top)


def sample(rate: float, lengths: str, count: int, seed: int) -> Requests:
    generator = np.random.default_rng(seed)
    if lengths == "exponential":
        outputs = generator.geometric(1 / STEPS, count)
    elif lengths == "two kinds":
        outputs = np.where(generator.random(count) < 0.9, STEPS // 2, STEPS // 2 * 11)
    else:
        outputs = np.full(count, STEPS)
    arrived = np.cumsum(generator.exponential(1 / rate, count))
    return Requests(arrived_s=arrived, input_tokens=np.ones(count, dtype=np.int64), output_tokens=outputs)


def replicate(rate: float, lengths: str, servers: int, shared: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Mean wait and mean time in the system of six runs, each without its first tenth."""
    table = linear_table(**{"sequence_s" if shared else "step_s": 1.0 / STEPS})
    waits, stays = [], []
    for seed in range(6):
        requests = sample(rate, lengths, 2500, seed)
        trace = theory(table, requests, limits(sequences_count=servers, step_tokens=2**30, chunk_tokens=2**30)).run()
        kept = slice(250, None)
        waits.append(float((trace.started_s - trace.arrived_s)[kept].mean()))
        stays.append(float((trace.finished_s - trace.arrived_s)[kept].mean()))
    return np.array(waits), np.array(stays)


def agrees(found: np.ndarray, expected: float, step: float = 1.5 / STEPS) -> bool:
    """Within three standard errors, a step more for arrivals that wait for the end of one."""
    return abs(found.mean() - expected) < 3 * found.std(ddof=1) / math.sqrt(len(found)) + step


@pytest.mark.parametrize(
    ("servers", "load", "lengths", "wait"),
    [
        (1, 0.7, "exponential", 0.7 / 0.3),  # M/M/1: rho / (1 - rho) services
        (1, 0.7, "constant", 0.7 / (2 * 0.3)),  # M/D/1: half of it
        (4, 3.0, "exponential", erlang_c(4, 3.0) / (4 - 3.0)),  # M/M/c: C / (c - load)
        (1, 0.5, "two kinds", 0.5 / (2 * 0.5) * (0.9 * 0.25 + 0.1 * 5.5**2)),  # M/G/1: rho E[S^2] / 2 (1 - rho)
    ],
)
def test_sequences_are_servers(servers, load, lengths, wait):
    waits, stays = replicate(load, lengths, servers)
    assert agrees(waits, wait)
    assert agrees(stays, wait + 1.0)


@pytest.mark.parametrize("lengths", ["exponential", "constant", "two kinds"])
def test_sequences_share_one_server(lengths):
    """Processor sharing: 1 / (1 - rho) services in the mean, whatever the lengths are."""
    waits, stays = replicate(0.6, lengths, 4096, shared=True)
    assert waits.mean() < 1.5 * 3 / STEPS
    assert agrees(stays, 1 / 0.4, 3 / STEPS)
