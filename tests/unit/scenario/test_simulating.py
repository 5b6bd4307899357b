"""`simulate` through the public command: encoders behind a dynamic batcher, traces, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.cli import run

SCENARIO = """\
workload:
  model: bert-base-uncased
  serve:
    input: 128
    output: 0
    rate: 300 1/s
    latency_p95: 5 ms
    precision: fp16
    batching: {max: 16, preferred: [4, 8, 16], delay: 2 ms}
candidates:
  - {system: t4-8, devices: 1}
simulate: {requests: 4000, seed: 3}
"""


def simulated(folder: Path, capsys: pytest.CaptureFixture[str], *sets: str, text: str = SCENARIO) -> dict[str, Any]:
    path = folder / "s.yaml"
    path.write_text(text)
    words = [word for item in sets for word in ("--set", item)]
    code = run(["simulate", str(path), "--json", *words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    data: dict[str, Any] = json.loads(captured.out)
    return data


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *sets: str) -> str:
    path = folder / "s.yaml"
    path.write_text(SCENARIO)
    words = [word for item in sets for word in ("--set", item)]
    assert run(["simulate", str(path), *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_batcher_answers_every_request_and_obeys_littles_law(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = simulated(tmp_path, capsys)
    assert answer["schema_version"] == 1
    (row,) = answer["rows"]
    found = row["simulated"]
    assert row["mode"] == "dynamic batching"
    assert found["answered_count"] == found["measured_count"]
    # requests in the system = rate x stay; over a window both ends cut a few
    assert found["present_mean"] == pytest.approx(found["offered_per_s"] * found["e2e_s"]["mean"]["best"], rel=0.02)
    assert sum(int(size) * count for size, count in row["batching"]["batches"].items()) == 4000
    assert max(map(int, row["batching"]["batches"])) <= 16
    for name in ("p50", "p90", "p95", "p99"):
        level = found["e2e_s"][name]
        assert level["low"] <= level["best"] <= level["high"]
    assert row["ranges"]["e2e_p95_s"]["low"] < found["e2e_s"]["p95"]["best"] < row["ranges"]["e2e_p95_s"]["high"]
    assert len(row["timeline"]["machine_w"]) == 60


def test_a_delay_makes_larger_batches_and_later_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = simulated(tmp_path, capsys, "workload.serve.batching={max: 16}")["rows"][0]
    patient = simulated(tmp_path, capsys, "workload.serve.batching={max: 16, delay: 10 ms}")["rows"][0]
    assert patient["batching"]["mean_batch"] > 1.5 * prompt["batching"]["mean_batch"]
    assert patient["simulated"]["e2e_s"]["p50"]["best"] > prompt["simulated"]["e2e_s"]["p50"]["best"]
    assert patient["batching"]["device_busy_frac"] < prompt["batching"]["device_busy_frac"]


def test_users_are_asked_for_no_more_than_the_system_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(
        tmp_path,
        capsys,
        "workload.serve.rate=null",
        "workload.serve.concurrency=32",
        "workload.serve.traffic.think=50 ms",
        "workload.serve.latency_p95=null",
    )["rows"][0]["simulated"]
    stay = found["e2e_s"]["mean"]["best"] + 0.05
    assert found["requests_per_s"]["best"] * stay == pytest.approx(32, rel=0.03)


def test_overload_is_said_and_a_queue_limit_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ("workload.serve.latency_p95=null", "workload.serve.batching={max: 1, queue: 20}")
    row = simulated(tmp_path, capsys, *sets, "workload.serve.rate=800 1/s")["rows"][0]
    assert row["batching"]["refused"] > 100
    assert row["simulated"]["goodput_per_s"] < 0.9 * row["simulated"]["offered_per_s"]
    assert row["simulated"]["queue_mean"] <= 20
    open_ended = simulated(tmp_path, capsys, sets[0], "workload.serve.batching={max: 1}", "workload.serve.rate=800 1/s")
    assert any("the queue grows" in note["text"] for note in open_ended["rows"][0]["notes"])


def test_replications_use_other_seeds_and_the_same_seed_gives_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = simulated(tmp_path, capsys, "simulate.replications=5", "simulate.requests=500")
    again = simulated(tmp_path, capsys, "simulate.replications=5", "simulate.requests=500")
    assert first == again
    assert first["rows"][0]["simulated"]["runs_count"] == 5
    assert first["rows"][0]["simulated"]["requests_count"] == 2500


def test_a_trace_gives_lengths_and_arrivals_in_either_spelling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps = [0.0, 0.004, 0.0041, 0.02, 0.05] * 40
    times = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    (tmp_path / "a.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{t:.7f},128,1\n" for t in times)
    )
    (tmp_path / "b.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "".join(f"2023-11-16 18:15:{t:010.7f},128,1\r\n" for t in times)
    )
    text = SCENARIO.replace("    input: 128\n", "").replace("    rate: 300 1/s\n", "")
    answers = [
        simulated(tmp_path, capsys, f"workload.serve.traffic.trace={name}", "simulate.requests=null", text=text)
        for name in ("a.csv", "b.csv")
    ]
    assert answers[0]["rows"] == answers[1]["rows"]
    assert answers[0]["traffic"]["requests"] == 200
    rescaled = simulated(
        tmp_path, capsys, "workload.serve.traffic.trace=a.csv", "workload.serve.rate=100", text=SCENARIO
    )
    assert rescaled["rows"][0]["simulated"]["offered_per_s"] == pytest.approx(100, rel=0.1)


def test_what_contradicts_itself_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(tmp_path, capsys, "workload.serve.traffic={think: 1 s}")
    assert "workload.serve.traffic.think: users think in a closed loop only" in told
    assert "beyond the max 16" in refused(tmp_path, capsys, "workload.serve.batching.preferred=[32]")
    assert "no such file" in refused(tmp_path, capsys, "workload.serve.traffic.trace=missing.csv")
    assert "unknown key 'threads'" in refused(tmp_path, capsys, "simulate={threads: 2}")
    assert "leave one of them out" in refused(tmp_path, capsys, "workload.serve.traffic={trace: a, input_cv: 1}")


def test_the_text_names_latencies_batches_and_power(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO)
    assert run(["simulate", str(path)]) == 0
    out = capsys.readouterr().out
    for words in ("whole request", "goodput:", "mean batch", "J a request", "over time", "within limits"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 120


LLM = """\
workload:
  model: llama-3.1-8b
  serve: {input: 512, output: 64, rate: 3 1/s, ttft_p95: 300 ms, tpot_p95: 30 ms, engine: vllm}
candidates:
  - {system: hgx-a100-8, devices: 1}
simulate: {requests: 1500}
"""


def test_an_engine_agrees_with_its_closed_form_at_a_moderate_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = simulated(tmp_path, capsys, text=LLM)["rows"][0]
    found, closed = row["simulated"], row["closed_form"]
    assert row["mode"] == "continuous batching"
    assert found["ttft_s"]["mean"]["best"] == pytest.approx(closed["ttft_s"]["best"], rel=0.15)
    assert found["tpot_s"]["mean"]["best"] == pytest.approx(closed["tpot_s"]["best"], rel=0.10)
    assert found["present_mean"] == pytest.approx(found["offered_per_s"] * found["e2e_s"]["mean"]["best"], rel=0.05)
    # e2e = ttft + (out - 1) tpot, exactly, request by request
    whole = found["ttft_s"]["mean"]["best"] + 63 * found["tpot_s"]["mean"]["best"]
    assert found["e2e_s"]["mean"]["best"] == pytest.approx(whole, rel=1e-6)
    assert found["itl_s"]["mean"]["best"] == pytest.approx(found["tpot_s"]["mean"]["best"], rel=0.05)
    assert found["itl_s"]["p99"]["best"] > found["tpot_s"]["p99"]["best"]  # single gaps hold whole prompts
    assert 0.9 < found["within_frac"]["all"] <= 1.0


def test_users_of_an_engine_obey_littles_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = LLM.replace("rate: 3 1/s, ttft_p95: 300 ms, tpot_p95: 30 ms", "concurrency: 16, traffic: {think: 500 ms}")
    found = simulated(tmp_path, capsys, text=text)["rows"][0]["simulated"]
    stay = found["e2e_s"]["mean"]["best"] + 0.5
    assert found["requests_per_s"]["best"] * stay == pytest.approx(16, rel=0.05)


def test_shared_beginnings_of_a_trace_are_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"timestamp": 200 * i, "input_length": 1030, "output_length": 8, "hash_ids": [1, 2, 100 + i]} for i in range(50)
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, lines)))
    text = LLM.replace(
        "input: 512, output: 64, rate: 3 1/s, ttft_p95: 300 ms, tpot_p95: 30 ms", "traffic: {trace: m.jsonl}"
    ).replace("requests", "seed")
    kept = simulated(tmp_path, capsys, text=text)["rows"][0]
    cold = simulated(tmp_path, capsys, "workload.serve.scheduler.prefix_cache=false", text=text)["rows"][0]
    # all but the first find 2 x 512 of their 1030 tokens
    assert kept["engine"]["prefix_hit_frac"] == pytest.approx(49 * 1024 / (50 * 1030), rel=0.03)
    assert cold["engine"]["prefix_hit_frac"] == 0
    assert kept["simulated"]["ttft_s"]["p50"]["best"] < 0.7 * cold["simulated"]["ttft_s"]["p50"]["best"]


def test_layered_networks_run_behind_the_batcher_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SCENARIO.replace("bert-base-uncased", "efficientnet-b0").replace("input: 128", "input: 1")
    text = text.replace(
        "  - {system: t4-8, devices: 1}\n", "  - {system: t4-8, devices: 1}\n  - {system: l4-8, devices: 2}\n"
    )
    sets = ("workload.serve.precision=int8", "candidates=[{system: hailo-8-1, devices: 1}]")
    (array,) = simulated(tmp_path, capsys, *sets, text=text)["rows"]
    assert array["layout"] == "int8, fixed array"
    assert array["simulated"]["answered_count"] == array["simulated"]["measured_count"]
    answer = simulated(tmp_path, capsys, text=text)
    assert answer["model"]["id"] == "efficientnet-b0"
    assert [row["rank"] for row in answer["rows"]] == [1, 2]
    assert {row["batching"]["devices"] for row in answer["rows"]} == {1, 2}
    for row in answer["rows"]:
        times = [row["batching"]["batch_s"][size] for size in sorted(row["batching"]["batch_s"], key=int)]
        assert times == sorted(times)
        assert row["simulated"]["answered_count"] == row["simulated"]["measured_count"]
        assert row["power"]["meter_w"]["best"] > 0


def test_traces_without_times_and_traces_that_come_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "once.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "5,128,1\n" * 40)
    (tmp_path / "bare.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + "128,1\n64,1\n" * 20)
    told = refused(tmp_path, capsys, "workload.serve.traffic.trace=once.csv")
    assert "all requests of once.csv arrive at once, which no rate can stretch" in told
    sets = ("workload.serve.rate=null", "workload.serve.latency_p95=null", "simulate.requests=null")
    burst = simulated(tmp_path, capsys, "workload.serve.traffic.trace=once.csv", *sets)
    assert burst["traffic"]["text"] == "40 requests of once.csv, at once"
    # the fourth fills a preferred size, so four go at once; 36 find the instance at work: 16, 16 and 4
    assert burst["rows"][0]["batching"]["batches"] == {"4": 2, "16": 2}
    drawn = simulated(tmp_path, capsys, "workload.serve.traffic.trace=bare.csv", "simulate.requests=500")
    assert "lengths drawn from bare.csv" in drawn["traffic"]["text"]
    assert drawn["traffic"]["requests"] == 500


def test_short_runs_say_what_they_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(tmp_path, capsys, "simulate.requests=1")["rows"][0]["simulated"]
    assert found["e2e_s"]["p99"]["low"] is None
    assert found["requests_per_s"]["best"] == pytest.approx(1 / found["e2e_s"]["mean"]["best"])


@pytest.mark.parametrize("text", [LLM, SCENARIO])
def test_power_agrees_with_the_closed_form(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = simulated(tmp_path, capsys, "workload.serve.batching={}", text=text)["rows"][0]
    assert run(["plan", str(tmp_path / "s.yaml"), "--json", "--set", "workload.serve.batching={}"]) == 0
    planned = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["power"]["meter_w"]["best"] == pytest.approx(planned["power"]["meter_w"]["best"], rel=0.06)
    made = row["timeline"]["machine_w"]
    assert sum(made) / len(made) == pytest.approx(row["power"]["machine_w"]["best"], rel=0.05)


def test_schedulers_change_what_their_names_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = LLM.replace("hgx-a100-8, devices: 1", "hgx-a100-8, devices: 4").replace("rate: 3", "rate: 12")
    text = text.replace("engine: vllm", "engine: vllm, tensor: 1, replicas: 4").replace(
        "requests: 1500", "requests: 600"
    )
    named = {
        "plain": "{}",
        "static": "{batching: static}",
        "drafts": "{draft_tokens: 3, accepted: 0.8}",
        "pools": "{prefill_replicas: 1}",
    }
    sets = ("workload.serve.ttft_p95=null", "workload.serve.tpot_p95=null")
    found = {
        name: simulated(tmp_path, capsys, *sets, f"workload.serve.scheduler={keys}", text=text)["rows"][0]["simulated"]
        for name, keys in named.items()
    }
    ttft, tpot = ({name: item[key]["mean"]["best"] for name, item in found.items()} for key in ("ttft_s", "tpot_s"))
    assert ttft["static"] > 3 * ttft["plain"]  # whoever comes waits for the batch to end
    assert tpot["drafts"] < 0.6 * tpot["plain"]  # 1 + .8 + .64 + .51 = 2.95 tokens a step
    assert tpot["pools"] < tpot["plain"]  # no prompts between the steps of decoding
    told = "workload.serve.scheduler.draft_tokens: needs accepted beside it"
    path = tmp_path / "s.yaml"
    assert run(["simulate", str(path), "--set", "workload.serve.scheduler={draft_tokens: 3}"]) == 2
    assert told in capsys.readouterr().err
    assert run(["simulate", str(path), "--set", "workload.serve.scheduler={prefill_replicas: 4}"]) == 2
    assert "got 4, but there are 4 replicas in all and some must decode" in capsys.readouterr().err
