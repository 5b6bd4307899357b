"""Open and closed loop in closed form against a step-by-step simulation with the same step times."""

from __future__ import annotations

import numpy as np
import pytest

from ridgeline.serving import ServingJob, capacity, estimate_max_load, estimate_serving, step_time
from ridgeline.specs import EngineProfile, Load
from ridgeline.workload.engine_step import Step


def mixed_step_s(job: ServingJob, decoding: int, reading: int, known: dict[tuple[int, int], float]) -> float:
    """Time of a step in which some requests advance by a token and some prompts are read whole."""
    key = (decoding, reading)
    if key not in known:
        step = Step(
            decode_count=decoding,
            context_tokens=job.context_tokens,
            prompt_count=reading,
            prompt_tokens=job.load.input_tokens,
            finishing_count=reading,
        )
        known[key] = step_time(job, step).time_s
    return known[key]


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
        now += mixed_step_s(job, len(running), len(reading), known)
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


def simulate_clients(job: ServingJob, clients: int, requests: int, seed: int) -> dict[str, float]:
    """So many clients, each of which sends again when its answer ends; answers are half to one and a half as long."""
    rng = np.random.default_rng(seed)
    given, made = job.load.input_tokens, job.load.output_tokens
    known: dict[tuple[int, int], float] = {}
    now, waiting = 0.0, [0.0] * clients
    running: list[tuple[float, float, int, int]] = []  # sent, first token, tokens left, tokens in all
    done: list[tuple[float, float, float]] = []
    while len(done) < requests:
        fitting = max(0, int((job.max_batch_tokens - len(running)) // given))
        reading, waiting = waiting[:fitting], waiting[fitting:]
        now += mixed_step_s(job, len(running), len(reading), known)
        advanced = [(sent, first, left - 1, whole) for sent, first, left, whole in running]
        ended = [request for request in advanced if request[2] == 0]
        done += [(first - sent, now - sent, (now - first) / (whole - 1)) for sent, first, _, whole in ended]
        waiting += [now] * len(ended)
        lengths = rng.uniform(0.5 * made, 1.5 * made, len(reading)).round().astype(int)
        started = [(sent, now, int(whole) - 1, int(whole)) for sent, whole in zip(reading, lengths, strict=True)]
        running = [request for request in advanced if request[2] > 0] + started
    ttft, e2e, tpot = np.array(done[requests // 5 :]).mean(axis=0)
    return {"ttft": float(ttft), "e2e": float(e2e), "tpot": float(tpot)}


@pytest.mark.parametrize(
    ("given", "made", "clients"), [(1000, 100, 8), (1000, 100, 128), (4000, 100, 32), (300, 300, 32)]
)
def test_means_of_the_closed_loop(toy, given, made, clients):
    """Prompts are read as they come, in steps that also advance the others: first tokens do not wait for a queue."""
    engine = EngineProfile(id="e", max_batch_tokens=8192, max_batch_count=256)
    job = toy.job(engine=engine, load=Load(input_tokens=given, output_tokens=made))
    answer = estimate_serving(job.with_load(concurrency_count=clients))
    simulated = simulate_clients(job, clients, 2000, seed=5)
    assert answer.e2e_s.best == pytest.approx(simulated["e2e"], rel=0.02)
    assert answer.tpot_s.best == pytest.approx(simulated["tpot"], rel=0.05)
    assert simulated["ttft"] < answer.ttft_s.best < 2 * simulated["ttft"]
