"""Published cases on queues, closed loops and pipelines, asked through the public command `simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.cli import run


def asked(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *sets: str) -> dict[str, Any]:
    path = folder / "case.yaml"
    path.write_text(text)
    words = [word for item in sets for word in ("--set", item)]
    code = run(["simulate", str(path), "--json", *words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    data: dict[str, Any] = json.loads(captured.out)
    return data


R1 = """\
workload:
  model: deepseek-r1
  serve: {input: 1024, output: 1024, concurrency: 8, engine: sglang, tensor: 8, precision: fp8}
candidates:
  - {system: dgx-h200, devices: 8}
simulate: {requests: 1500, warm_up: 0.1}
"""
MISTRAL = """\
workload:
  model: mistral-7b
  serve: {input: 512, output: 128, concurrency: 1, engine: vllm, tensor: 1, precision: bf16, replicas: 1}
candidates:
  - {system: dgx-a100, devices: 1}
simulate: {requests: 1500, warm_up: 0.1}
"""


@pytest.mark.parametrize(
    ("users", "total_a_device", "tpot_s"),
    [(8, 148.6, 0.0128), (16, 225.1, 0.0172), (32, 301.7, 0.0256), (64, 447.2, 0.0346)],
)
def test_case_62_a_closed_loop_obeys_littles_law_as_published_ones_do(
    users: int, total_a_device: float, tpot_s: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R1 on 8 H200, 1k in and out: output rate = users / time per token within 5 % (SemiAnalysisAI/InferenceX#870).

    The published rates are of input and output on each device, so half of eight times them is output.
    """
    published = 8 * total_a_device / 2
    assert users / tpot_s == pytest.approx(published, rel=0.06)
    found = asked(tmp_path, capsys, R1, f"workload.serve.concurrency={users}")["rows"][0]["simulated"]
    stay = found["e2e_s"]["mean"]["best"]
    assert found["requests_per_s"]["best"] * stay == pytest.approx(users, rel=0.05)
    assert found["tpot_s"]["mean"]["best"] == pytest.approx(tpot_s, rel=0.30)


def test_little_exposes_a_load_that_is_not_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A generator that claims 16 users but pauses between requests keeps fewer under way: rate x stay says how many."""
    sets = ("workload.serve.concurrency=16", "workload.serve.traffic.think=2 s")
    found = asked(tmp_path, capsys, MISTRAL, *sets)["rows"][0]["simulated"]
    under_way = found["requests_per_s"]["best"] * found["e2e_s"]["mean"]["best"]
    assert under_way < 0.7 * 16
    assert under_way == pytest.approx(found["present_mean"], rel=0.05)
    assert found["requests_per_s"]["best"] * (found["e2e_s"]["mean"]["best"] + 2.0) == pytest.approx(16, rel=0.06)


def test_case_58_batches_grow_almost_linearly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mistral-7B on one A100: 46, 400, 1,800 tokens/s at 1, 10, 60 at once; the roof at 1 is 141 (llama.cpp#3479)."""
    rates = [
        asked(tmp_path, capsys, MISTRAL, f"workload.serve.concurrency={count}")["rows"][0]["simulated"]
        for count in (1, 10, 60)
    ]
    one, ten, sixty = (item["output_tokens_per_s"]["best"] for item in rates)
    assert 46 < one < 141  # the host of that version took most of a step; later ones hide it
    assert 0.75 * 10 < ten / one < 10
    assert ten == pytest.approx(400, rel=1.0)
    assert sixty == pytest.approx(1800, rel=0.20)


def test_case_88_first_tokens_of_a_closed_loop_are_several_times_later_than_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2.8 to 14.4 times the time alone, because users who start together stay together (aiconfigurator PR#1510).

    And the inclusive time per token is (TTFT + TPOT (out - 1)) / out (redhat-performance/configiq#8).
    """
    alone, loaded = (
        asked(tmp_path, capsys, MISTRAL, f"workload.serve.concurrency={users}")["rows"][0]["simulated"]
        for users in (1, 32)
    )
    assert 2.8 <= loaded["ttft_s"]["mean"]["best"] / alone["ttft_s"]["mean"]["best"] <= 14.4
    ttft, tpot, e2e = (loaded[name]["mean"]["best"] for name in ("ttft_s", "tpot_s", "e2e_s"))
    assert (ttft + tpot * 127) / 128 == pytest.approx(e2e / 128, rel=1e-6)
    assert e2e / 128 > tpot


LOADER = """\
workload:
  pipeline:
    system: a100-pcie-8
    cores: 8
    shared_memory: true
    stages:
      - {name: load, kind: work, time: 786 ms, workers: 1}
      - {name: step, kind: work, on: accelerator, time: 101 ms}
simulate: {requests: 200}
"""


def test_case_82_a_loader_of_one_process_leaves_the_accelerator_idle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """786 ms in the loader are 88.6 % of a step, so the accelerator works 11.4 % (MLforHealth/ClinicalDG#2)."""
    found = asked(tmp_path, capsys, LOADER)
    assert found["synchronous"]["busy_frac"]["accelerator"] == pytest.approx(0.114, rel=0.02)
    assert found["asynchronous"]["frames_per_s"] == pytest.approx(1 / 0.786, rel=0.02)
    assert found["asynchronous"]["bottleneck"] == "workers of load"
    eight = asked(tmp_path, capsys, LOADER, "workload.pipeline.stages.0.workers=8", "workload.pipeline.buffers=12")[
        "asynchronous"
    ]
    assert eight["frames_per_s"] == pytest.approx(1 / 0.101, rel=0.02)  # 786 / 8 = 98 ms: just enough
    assert eight["bottleneck"] == "accelerator"


CAMERAS = """\
workload:
  pipeline:
    system: t4-8
    cores: 8
    streams: 4
    stages:
      - {name: decode, kind: decode}
      - {name: resize, kind: resize, on: cpu, width: 224, height: 224}
      - {name: classify, kind: model, model: resnet50, precision: fp16}
      - {name: boxes, kind: work, time: 1 ms}
simulate: {requests: 400}
"""


def test_glue_is_a_large_share_and_the_form_of_messages_decides_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON between processes costs more than the network itself; arrays in one memory hardly anything."""
    shares = {}
    for way in ("json", "base64", "protobuf", "shared"):
        found = asked(tmp_path, capsys, CAMERAS, f"workload.pipeline.stages.2.transport={way}")
        shares[way] = found["glue_frac"]["best"]
        assert found["frame"]["value"] == pytest.approx(sum(part["value"] for part in found["frame"]["parts"]))
        assert found["by_kind_s"]["work"] / found["frame"]["value"] == pytest.approx(1 - shares[way])
    assert shares["json"] > shares["base64"] > shares["protobuf"] > shares["shared"]
    assert shares["json"] > 0.4
    board = asked(tmp_path, capsys, CAMERAS, "workload.pipeline.system=jetson-agx-orin-64-1")
    assert "copy" not in board["by_kind_s"]  # one memory: nothing is copied


def test_both_ways_keep_the_bounds_and_littles_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(tmp_path, capsys, CAMERAS, "workload.pipeline.streams=1")
    for way in (found["synchronous"], found["asynchronous"]):
        assert way["frames_per_s"] <= way["bound_per_s"]["best"] * 1.01
        under_way = way["frames_per_s"] * way["latency_s"]["mean"]["best"]
        assert under_way == pytest.approx(way["busy_frac"]["frames under way"], rel=0.03)
    assert found["queues_gain"] > 1.2
    live = asked(tmp_path, capsys, CAMERAS, "workload.pipeline.rate=30")
    assert live["synchronous"]["dropped"] == 0
    assert live["synchronous"]["frames_per_s"] == pytest.approx(120, rel=0.02)


def test_streams_contend_for_the_memory_that_they_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Work that moves 100 MB in 10 ms (10 GB/s) on a memory of 204.8 GB/s: 16 streams fit, 40 get half the speed."""
    text = """\
workload:
  pipeline:
    system: jetson-agx-orin-64-1
    cores: 64
    streams: 16
    stages:
      - {name: filter, kind: work, time: 10 ms, moves: 100 MB}
simulate: {requests: 50}
"""
    few = asked(tmp_path, capsys, text)["synchronous"]
    many = asked(tmp_path, capsys, text, "workload.pipeline.streams=41")["synchronous"]
    assert few["latency_s"]["mean"]["best"] == pytest.approx(0.010, rel=1e-6)
    assert many["latency_s"]["mean"]["best"] == pytest.approx(41 * 100e6 / 204.8e9, rel=0.02)
    assert many["busy_frac"]["host memory bandwidth"] == pytest.approx(1.0, rel=0.02)


def test_what_does_not_fit_together_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(CAMERAS)
    for setting, told in (
        ("workload.pipeline.stages.1.width=640", "resnet50 takes 224 x 224, the stage ahead hands on 640 x 224"),
        ("workload.pipeline.stages.2.model=resnet51", "unknown model 'resnet51'"),
        ("workload.pipeline.stages.1.after=[decod]", "no stage 'decod' ahead of this one; nearest: decode"),
        ("workload.pipeline.stages.0.on=accelerator", "a stage of kind decode runs on video or cpu"),
        ("workload.pipeline.system=t5-8", "unknown system 't5-8'"),
        ("workload.pipeline.stages.3.time=null", "time: is missing"),
    ):
        assert run(["simulate", str(path), "--set", setting]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert told in captured.err


TWO_PARTS = """\
workload:
  pipeline:
    system: t4-8
    cores: 8
    stages:
      - {name: decode, kind: decode}
      - {name: shrink, kind: resize, on: cpu, width: 224, height: 224}
      - {name: detect, kind: model, model: resnet50, precision: int8, system: hailo-8-1}
      - {name: crop, kind: work, time: 200 us}
      - {name: embed, kind: model, model: efficientnet-b0, precision: fp16, items: 5, after: [shrink, crop]}
simulate: {requests: 300}
"""


def test_models_on_two_parts_meet_in_the_memory_of_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A detector on an edge part, five crops of each frame on a card: data go by way of the host, branches join."""
    found = asked(tmp_path, capsys, TWO_PARTS)
    held = found["synchronous"]["held_s"]
    assert {"accelerator", "accelerator of hailo-8-1", "link", "link of hailo-8-1"} <= set(found["units"])
    # a frame of 224 x 224 x 3 bytes over PCIe 3 x4 (3.9 GB/s) and the start of the copy
    assert held["detect: copy to the device"] == pytest.approx(224 * 224 * 3 / 3.94e9 + 10e-6, rel=0.02)
    one = asked(tmp_path, capsys, TWO_PARTS, "workload.pipeline.stages.4.items=1")["synchronous"]["held_s"]
    assert one["embed: efficientnet-b0"] < held["embed: efficientnet-b0"] < 5 * one["embed: efficientnet-b0"]
    assert run(["simulate", str(tmp_path / "case.yaml"), "--set", "workload.pipeline.stages.1.system=hailo-8-1"]) == 2
    assert "give `on: accelerator` beside it" in capsys.readouterr().err
