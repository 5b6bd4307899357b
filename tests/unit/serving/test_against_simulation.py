"""The open loop in closed form against a step-by-step simulation with the same step times and one request length."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.serving import ServingJob, capacity, estimate_max_load, estimate_serving, step_time
from ridgeline.specs import EngineProfile, Load
from ridgeline.workload.engine_step import Step


def simulate(job: ServingJob, rate_per_s: float, requests: int, seed: int) -> dict[str, float]:
    """Continuous batching: each step advances all running requests and reads the prompts that fit the budget."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, requests))
    given, made = job.load.input_tokens, int(job.load.output_tokens)
    room = int(capacity(job).running_count)
    known: dict[tuple[int, int], float] = {}
    now, arrived = 0.0, 0
    waiting: list[int] = []
    running: dict[int, int] = {}
    first, last = np.zeros(requests), np.zeros(requests)
    while arrived < requests or waiting or running:
        while arrived < requests and arrivals[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        if not waiting and not running:
            now = arrivals[arrived]
            continue
        fitting = min(room - len(running), int((job.max_batch_tokens - len(running)) // given))
        reading, waiting = waiting[: max(0, fitting)], waiting[max(0, fitting) :]
        key = (len(running), len(reading))
        if key not in known:
            step = Step(
                decode_count=key[0],
                context_tokens=job.context_tokens,
                prompt_count=key[1],
                prompt_tokens=given,
                finishing_count=key[1],
            )
            known[key] = step_time(job, step).time_s
        now += known[key]
        for request in list(running):
            running[request] -= 1
            if running[request] == 0:
                last[request] = now
                del running[request]
        for request in reading:
            first[request] = now
            running[request] = made - 1
    kept = slice(requests // 5, None)
    ttft, e2e = (first - arrivals)[kept], (last - arrivals)[kept]
    tpot = (last - first)[kept] / (made - 1)
    return {"ttft": float(ttft.mean()), "tpot": float(tpot.mean()), "e2e": float(e2e.mean())}


@pytest.mark.parametrize(
    ("given", "made", "batch", "load", "within"),
    [(300, 300, 64, 0.5, 0.05), (1000, 100, None, 0.5, 0.08), (1000, 100, None, 0.8, 0.2)],
)
def test_means_of_the_open_loop(toy, given, made, batch, load, within):
    """Prompts that take most of the work make waits clump: the closed form is then some per cent too quick."""
    engine = EngineProfile(id="e", max_batch_tokens=8192, max_batch_count=batch)
    job = toy.job(engine=engine, load=Load(input_tokens=given, output_tokens=made))
    rate = load * estimate_max_load(job).requests_per_s.best
    answer = estimate_serving(job.with_load(rate_per_s=rate))
    simulated = simulate(job, rate, 1500, seed=7)
    assert answer.e2e_s.best == pytest.approx(simulated["e2e"], rel=within)
    assert answer.tpot_s.best == pytest.approx(simulated["tpot"], rel=within)
    assert answer.ttft_s.best == pytest.approx(simulated["ttft"], rel=2 * within)


def test_capacity_is_what_the_simulation_can_finish(toy):
    """Below the capacity of the closed form waits stay short, above it they grow without end."""
    engine = EngineProfile(id="e", max_batch_tokens=8192, max_batch_count=64)
    job = toy.job(engine=engine, load=Load(input_tokens=300, output_tokens=150))
    capacity_per_s = estimate_max_load(job).requests_per_s.best
    under = simulate(job, 0.9 * capacity_per_s, 1500, seed=3)
    over = simulate(job, 1.2 * capacity_per_s, 1500, seed=3)
    assert over["ttft"] > 10 * under["ttft"]
