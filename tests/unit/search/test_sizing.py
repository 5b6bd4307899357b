"""Sizing: fewest devices by exhaustive count, pools of two kinds, the wait for a pool against a simulation."""

from __future__ import annotations

import heapq
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

import ridgeline
from ridgeline.catalog import load_catalog
from ridgeline.scenario import load_scenario
from ridgeline.scenario.planning import _machines, serving_request, terms_of
from ridgeline.search.disaggregated import (
    busiest_frac,
    cache_transfer_s,
    decode_engine,
    fewest_for,
    most_of,
    pool_wait_s,
    prefill_engines,
    transfer,
)
from ridgeline.search.sizing_front import BreakEven, FrontPoint, break_even_count, pareto_front
from ridgeline.search.sizing_result import Simulated, Sizing
from ridgeline.search.sizing_search import order, size_serving, sized_values
from ridgeline.search.sizing_workers import Axes, Rejected, Worker, curve_of, growing, workers
from ridgeline.serving import estimate_serving


@lru_cache(maxsize=1)
def catalog():
    return load_catalog(plugins=False)


def asked(model="llama-3.1-8b", system="dgx-h100", devices=16, objective="devices", **serve):
    load = {"input": 1024, "output": 256, "ttft_p95": "1 s", "tpot_p95": "25 ms", **serve}
    scenario = load_scenario(
        {
            "workload": {"model": model, "serve": load},
            "candidates": [{"system": system, "devices": devices}],
            "site": {"electricity": "0.1 USD/kWh"},
            "objective": objective,
        },
        catalog=catalog(),
    )
    machines = [machine for item in scenario.candidates for machine in _machines(item, scenario, [])]
    return serving_request(scenario), machines, terms_of(scenario)


def sized(axes=None, **more) -> Sizing:
    request, machines, terms = asked(**more)
    return size_serving(request, machines, terms, axes)


def fitting(**more) -> list[Worker]:
    request, machines, _ = asked(**more)
    return list(workers(request, machines[0], Axes(), Rejected()))


AGGREGATED = Axes(modes=("aggregated",))


@pytest.mark.parametrize("rate", [3.0, 12.0, 35.0])
def test_no_smaller_number_of_the_same_engines_keeps_the_load(rate: float) -> None:
    """The answer is the least that the full estimate accepts: every smaller number of any layout breaks a limit."""
    request, machines, terms = asked(rate=f"{rate} 1/s")
    best = size_serving(request, machines, terms, AGGREGATED).best("aggregated")
    assert best is not None
    for worker in workers(request, machines[0], AGGREGATED, Rejected()):
        for replicas in range(1, 17):
            plan = replace(worker.plan, replica_count=replicas)
            if plan.devices_count >= best.devices_count:
                break
            estimate = estimate_serving(replace(worker.job, plan=plan, load=request.load))
            assert not estimate.feasible, plan.label()
    assert estimate_serving(replace(worker.job, plan=best.pools[0].plan, load=request.load)).feasible


def test_more_load_never_needs_fewer_devices_and_tighter_limits_never_either() -> None:
    for mode in ("aggregated", "disaggregated"):
        by_rate = [sized(rate=f"{rate} 1/s").best(mode).devices_count for rate in (2, 30, 110)]  # type: ignore[union-attr]
        assert by_rate == sorted(by_rate)
        assert by_rate[0] < by_rate[-1]
    by_limit = [sized(rate="20 1/s", tpot_p95=limit).best("aggregated") for limit in ("60 ms", "15 ms", "9 ms")]
    counts = [item.devices_count for item in by_limit if item is not None]
    assert counts == sorted(counts)


def test_answers_keep_their_limits_and_carry_their_load() -> None:
    for more in ({"rate": "20 1/s"}, {"concurrency": 200}, {}):
        request, machines, terms = asked(**more)
        answer = size_serving(request, machines, terms)
        assert {option.mode for option in answer.options} == {"aggregated", "disaggregated"}
        for option in answer.options:
            assert option.latencies.ttft_p95_s <= request.load.ttft_p95_s
            assert option.latencies.tpot_p95_s <= request.load.tpot_p95_s
            assert option.devices_count == sum(pool.plan.devices_count for pool in option.pools) <= 16
            if "rate" in more:
                assert option.requests_per_s.best == pytest.approx(20.0)
            for pool in option.pools:
                assert sum(part.value for part in pool.memory.parts) == pytest.approx(pool.memory_available_bytes)
                assert 0 < pool.activity.busy_frac <= 1


def test_pools_give_every_request_to_both_kinds() -> None:
    """What the prefill engines read is what the decode engines finish, and neither is more than fully busy."""
    option = sized(rate="25 1/s").best("disaggregated")
    assert option is not None
    reading, making = option.pools
    assert reading.role == "prefill"
    assert reading.activity.busy_frac <= 1
    # Little's law for the decode pool: requests in service = rate x further tokens x time per token.
    inside = making.plan.replica_count * making.running_count
    assert inside == pytest.approx(25.0 * 255 * option.latencies.tpot_s.best, rel=0.03)


def test_the_cache_of_a_prompt_moves_byte_for_byte() -> None:
    """Llama-3.1-8B: 32 layers x 8 heads x 128 x 2 x 2 B = 131,072 B a token; 1,024 tokens over one 400 Gb/s card."""
    worker = fitting()[0]
    prefill, decode = next(prefill_engines(worker)), decode_engine(worker)
    assert decode is not None
    moved = transfer(prefill, decode, worker.job.system, 16)
    assert moved.whole_bytes == 1024 * 131_072
    assert moved.level == "rail"
    assert moved.time_s == pytest.approx(1024 * 131_072 / 50e9 + 2.7e-6, rel=1e-3)
    inside = transfer(prefill, decode, worker.job.system, 8)
    assert inside.level == "nvlink"
    assert inside.time_s < moved.time_s / 5
    assert cache_transfer_s(2e9, 1e9, 1e9, 0.5) == 2.5


def test_a_slow_link_between_pools_is_told_and_bounds_the_rate() -> None:
    worker = fitting()[0]
    slow = tuple(
        replace(level, oneway_bytes_per_s=0.05e9) if level.name == "rail" else level
        for level in worker.job.system.levels
    )
    system = replace(worker.job.system, levels=slow)
    prefill, decode = next(prefill_engines(worker)), decode_engine(worker)
    assert decode is not None
    free = most_of(prefill, decode, worker.job.system, 16)
    assert free is not None
    held = most_of(prefill, decode, system, 16)
    assert held is None or held.requests_per_s < free.requests_per_s / 2


def simulated_waits(rate: float, servers: int, count: int = 200_000) -> tuple[float, float]:
    """Mean and 95th percentile of the wait of Poisson arrivals for servers of one second each, one line."""
    arrivals = np.cumsum(np.random.default_rng(7).exponential(1.0 / rate, count))
    free = [0.0] * servers
    waits = np.empty(count)
    for index, arrival in enumerate(arrivals):
        start = max(arrival, heapq.heappop(free))
        waits[index] = start - arrival
        heapq.heappush(free, start + 1.0)
    kept = waits[count // 10 :]
    return float(kept.mean()), float(np.quantile(kept, 0.95))


@pytest.mark.parametrize(("servers", "share"), [(1, 0.5), (1, 0.8), (4, 0.8), (12, 0.9)])
def test_the_wait_for_a_pool_is_that_of_a_simulation(servers: int, share: float) -> None:
    mean_s, tail_s = pool_wait_s(share * servers, 1.0, servers)
    mean, tail = simulated_waits(share * servers, servers)
    assert mean_s == pytest.approx(mean, rel=0.12)
    assert tail_s == pytest.approx(tail, rel=0.15, abs=0.05)


def test_the_busiest_share_is_the_inverse_of_the_wait() -> None:
    for servers in (1, 3, 20):
        share = busiest_frac(0.7, 0.25, servers)
        assert pool_wait_s(share * servers / 0.25, 0.25, servers)[1] == pytest.approx(0.7, rel=0.02)
    assert busiest_frac(-0.1, 0.25, 4) == 0.0
    assert pool_wait_s(4.0, 1.0, 4) == (np.inf, np.inf)


def test_large_pools_are_split_as_well_as_by_trying_every_ratio() -> None:
    worker = fitting()[0]
    prefill, decode = next(prefill_engines(worker)), decode_engine(worker)
    assert decode is not None
    devices = 600
    found = most_of(prefill, decode, worker.job.system, devices)
    assert found is not None
    patience_s = worker.job.load.ttft_p95_s - prefill.step_s - found.transfer.time_s
    rates = [
        min(
            ones * prefill.rate_per_s * busiest_frac(patience_s, 1.0 / prefill.rate_per_s, ones),
            (devices - ones) * decode.rate_at(decode.most_count),
        )
        for ones in range(1, devices)
    ]
    assert found.requests_per_s == pytest.approx(max(rates), rel=1e-6)


def test_the_break_even_is_fixed_time_over_time_a_request() -> None:
    counts = np.array(growing(512.0))
    assert break_even_count(counts, 8.0 + 0.25 * counts) == pytest.approx(32.0, rel=0.02)
    assert break_even_count(counts, np.ones_like(counts)) == 0.0
    assert break_even_count(counts[:1], counts[:1]) == 0.0


def test_points_of_the_front_beat_each_other_in_one_figure_only() -> None:
    front = sized().front
    users = [point.user_tokens_per_s for point in front]
    devices = [point.device_tokens_per_s for point in front]
    assert len(front) > 4
    assert users == sorted(users, reverse=True)
    assert devices == sorted(devices)
    assert pareto_front(()) == ()
    worse = FrontPoint(**{**{name: getattr(front[0], name) for name in front[0].__slots__}, "device_tokens_per_s": 0.1})
    assert worse not in pareto_front([*front, worse])


def test_batching_below_the_break_even_is_nearly_free() -> None:
    answer = sized()
    (point,) = answer.break_evens
    assert isinstance(point, BreakEven)
    curve = curve_of(next(worker for worker in fitting() if worker.plan.label() == point.layout))
    alone = curve.rate_at(1.0)
    assert curve.rate_at(2.0) > 1.7 * alone
    if point.found:
        wide = curve.rate_at(min(2 * point.running_count, curve.counts[-1]))
        assert wide < 1.5 * curve.rate_at(point.running_count)


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        ({"tpot_p95": "500 us"}, "time per output token at batch 1", "at any batch"),
        ({"ttft_p95": "1 ms"}, "time to first token", "at any batch"),
        ({"rate": "5000 1/s"}, "more devices than there are", "need at least"),
        ({"model": "llama-3.1-405b", "devices": 1}, "weights do not fit", "do not fit"),
        (
            {"input": 100_000, "devices": 1, "system": "rtx-4090-2"},
            "no room for one request",
            "too small for one request",
        ),
    ],
)
def test_what_cannot_be_says_what_binds(more: dict[str, object], code: str, text: str) -> None:
    answer = sized(**more)
    assert answer.options == ()
    assert any(code in name for name in answer.rejected), dict(answer.rejected)
    assert text in answer.none[0].reason


def test_formats_of_weights_and_cache_are_axes() -> None:
    """8-bit weights and cache never need more devices than 16-bit ones, and the answer names its format."""
    wide = sized(rate="40 1/s").options[0]
    both = sized(Axes(precisions=("bf16", "fp8"), kv_precisions=("bf16", "fp8")), rate="40 1/s").options[0]
    assert both.devices_count <= wide.devices_count
    assert "fp8" in both.layout


def test_objectives_order_the_answers() -> None:
    for objective in ("devices", "cost", "energy", "time"):
        request, machines, terms = asked(rate="10 1/s", objective=objective)
        answer = size_serving(request, machines, terms)
        values = [sized_values(option, request.load)[objective] for option in answer.options]
        assert values == sorted(values)
    quick, few = (sized(rate="10 1/s", objective=name).options[0] for name in ("time", "devices"))
    assert quick.devices_count > few.devices_count
    assert quick.latencies.e2e_p95_s < few.latencies.e2e_p95_s


def test_pinned_parts_of_the_layout_hold() -> None:
    for option in sized(rate="10 1/s", tensor=4).options:
        assert all(pool.plan.tensor_count == 4 for pool in option.pools)
    for option in sized(rate="10 1/s", max_batch=8).options:
        assert all(pool.batch_limit_count <= 8 for pool in option.pools)


def test_encoders_are_sized_without_pools() -> None:
    answer = sized(
        model="bert-base-uncased", system="t4-8", devices=8, input=128, output=0, rate="2000 1/s",
        ttft_p95=None, tpot_p95=None, latency_p95="50 ms", precision="fp16",
    )  # fmt: skip
    assert [option.mode for option in answer.options] == ["aggregated"]
    assert answer.options[0].latencies.e2e_p95_s <= 0.05


def test_a_request_of_one_token_has_nothing_to_decode() -> None:
    assert {option.mode for option in sized(output=1, tpot_p95=None).options} == {"aggregated"}


def test_pools_for_a_rate_are_the_fewest_of_either_kind() -> None:
    """One engine less of either kind is over its capacity or breaks a limit."""
    worker = fitting()[0]
    loaded = Worker(job=worker.job.with_load(rate_per_s=25.0), room=worker.room)
    prefill, decode = next(prefill_engines(worker)), decode_engine(loaded)
    assert decode is not None
    found = fewest_for(prefill, decode, worker.job.system, 64)
    assert found is not None
    fewer = replace(found, prefill_count=found.prefill_count - 1)
    assert fewer.prefill_count == 0 or fewer.ttft_p95_s > worker.job.load.ttft_p95_s
    assert (found.decode_count - 1) * decode.rate_at(decode.most_count) < 25.0 * 1.25


def test_what_breaks_in_the_simulation_comes_last() -> None:
    request, _, _ = asked(rate="10 1/s")
    few, more = sized(rate="10 1/s").options[0], sized(rate="40 1/s").options[0]
    broken = Simulated(
        requests_count=400, share_frac=1.0, ttft_p95_s=9.0, tpot_p95_s=0.01, e2e_p95_s=9.0, requests_per_s=10.0,
        broken=("ttft_s",),
    )  # fmt: skip
    assert order(few, request.load, "devices") < order(more, request.load, "devices")
    assert order(replace(few, simulated=broken), request.load, "devices") > order(more, request.load, "devices")


def test_the_call_of_python_answers_as_the_verb() -> None:
    load = {"input": 512, "output": 64, "rate": "5 1/s", "sizing": {"simulate": False}}
    scenario = {
        "workload": {"model": "llama-3.1-8b", "serve": load},
        "candidates": [{"system": "dgx-h100", "devices": 8}],
        "objective": "devices",
    }
    answer = ridgeline.size(scenario).to_dict()
    assert answer["rows"]
    assert answer["sizing"]["options"][0]["devices"] == 1
    assert answer["sizing"]["options"][0]["simulated"] is None


def test_an_interrupt_leaves_what_was_sized() -> None:
    request, machines, terms = asked(rate="5 1/s", devices=8)
    _, others, _ = asked(rate="5 1/s", system="dgx-a100", devices=8)

    def stop(text: str) -> None:
        if "a100" in text:
            raise KeyboardInterrupt

    answer = size_serving(request, [*machines, *others], terms, progress=stop)
    assert {option.system.id for option in answer.options} == {"dgx-h100"}
    assert answer.unsearched == ("dgx-a100 x 8",)
    with pytest.raises(KeyboardInterrupt):
        size_serving(request, others, terms, progress=stop)
