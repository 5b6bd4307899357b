"""Keys of a training job beyond degrees and batches: what they do to an answer, and what is said of wrong ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import ridgeline
from ridgeline.catalog import load_catalog
from ridgeline.errors import BadPlan, RidgelineError
from ridgeline.scenario import load_scenario
from ridgeline.scenario.searching import search_layouts

JOB: dict[str, Any] = {
    "workload": {
        "model": "llama-2-7b",
        "train": {"tokens": 1e9, "sequence": 4096, "global_batch": 64, "tensor": 1, "pipeline": 1, "sharding": "zero3"},
    },
    "candidates": [{"system": "dgx-h100", "devices": 8}],
}


def job(candidate: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    made = copy.deepcopy(JOB)
    made["workload"]["train"].update(train)
    made["candidates"][0].update(candidate or {})
    return made


def row(candidate: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    found: dict[str, Any] = ridgeline.plan(job(candidate, **train)).rows[0].to_dict()
    return found


def part(found: dict[str, Any], name: str) -> float:
    return sum(float(item["value"]) for item in found["time"]["parts"] if item["name"] == name)


def test_packing_counts_real_tokens_and_shortens_attention() -> None:
    whole, packed, padded = row(), row(packing={"document": 512}), row(packing={"document": 512, "real": 0.5})
    assert packed["step_s"]["best"] < whole["step_s"]["best"]
    assert padded["step_s"]["best"] == packed["step_s"]["best"]
    assert (whole["steps"], packed["steps"]) == (padded["steps"] // 2, padded["steps"] // 2)
    assert padded["days"]["best"] == pytest.approx(2 * packed["days"]["best"], rel=1e-3)


def test_input_that_is_too_slow_is_a_line_of_the_waterfall() -> None:
    free = row()
    host = row(input={"rate": 64 / free["step_s"]["best"] / 2})
    files = row(input={"sample": "1 MB", "storage": f"{64e6 / free['step_s']['best'] / 4} B/s"})
    assert host["step_s"]["best"] == pytest.approx(2 * free["step_s"]["best"])
    assert files["step_s"]["best"] == pytest.approx(4 * free["step_s"]["best"])
    # all layouts that are fast enough are as good now
    assert part(files, "waiting for input") == pytest.approx(3 * free["step_s"]["best"], rel=0.05)
    assert "input-roof" in host["models"]


def test_adapters_follow_from_their_rank_and_place() -> None:
    every, some = row(adapter_rank=16), row(adapter_rank=16, adapter_targets="qkv")
    # rank 16 beside seven matrices of 32 layers: 16 x 32 x (8 x 4096 + 3 x (4096 + 11008)) of 6.74 B
    pairs = 16 * 32 * (8 * 4096 + 3 * (4096 + 11008))
    assert every["plan"]["trainable_frac"] == pytest.approx(pairs / 6.738e9, rel=1e-3)
    assert some["plan"]["trainable_frac"] < every["plan"]["trainable_frac"]
    assert some["step_s"]["best"] < every["step_s"]["best"] < row()["step_s"]["best"]
    assert "rank-16" in every["layout"]


def test_schedules_and_ends_are_kept() -> None:
    degrees = {"pipeline": 4, "tensor": 2, "sharding": "zero1", "micro_batch": 1, "interleave": 1}
    plain, split = row(**degrees), row(**degrees, schedule="zb-h1")
    assert part(split, "pipeline bubble") < part(plain, "pipeline bubble")
    folded = row(**{**degrees, "interleave": 2}, schedule="zb-v")
    assert "zb-v" in folded["layout"]
    # 32 layers as 7 and 5 at the ends of two stages of 10
    assert "ends-7-5" in row(**degrees, first_layers=7, last_layers=5)["layout"]
    chosen = {key: value for key, value in degrees.items() if key != "interleave"}
    assert row(**chosen, schedule="zb-v")["plan"]["interleave_count"] == 2


def test_the_slowest_link_is_the_pace() -> None:
    system = {"system": "a40-8"}
    even = row({**system, "links": ["25 GB/s"] * 8})
    one = row({**system, "links": ["25 GB/s"] * 7 + ["6.3 GB/s"]})
    every = row({**system, "links": ["6.3 GB/s"] * 8})
    assert one["step_s"]["best"] > 1.2 * even["step_s"]["best"]
    assert one["step_s"]["best"] == every["step_s"]["best"]


@pytest.mark.parametrize(
    ("candidate", "train", "said"),
    [
        ({}, {"packing": {"document": 8192}}, "packing.document: got 8192, longer than the sequence of 4096"),
        ({}, {"input": {"sample": "1 MB"}}, "`sample` and `storage` belong together"),
        ({}, {"packing": {"real": 0}}, "workload.train.packing.real: got 0, allowed above 0 to 1"),
        ({}, {"packing": {"documents": 1}}, "unknown key 'documents'; nearest: document"),
        ({"links": ["25 GB/s"] * 3}, {}, "candidates.0.links: got 3 rates, a node of dgx-h100 has 8 links"),
        ({"links": ["25"]}, {}, "candidates.0.links.0"),
        ({}, {"schedule": "zb-h3"}, "nearest: zb-h"),
        ({}, {"schedule": "zb-h1"}, "there is none"),
        ({}, {"adapter_targets": "mlp"}, "allowed all, qkv"),
        ({}, {"adapter_rank": 8, "trainable": 1}, "adapters beside trained matrices"),
    ],
)
def test_wrong_keys_are_told(candidate: dict[str, Any], train: dict[str, Any], said: str) -> None:
    with pytest.raises(RidgelineError) as caught:
        row(candidate, **train)
    assert said in str(caught.value)


@pytest.mark.parametrize("train", [{"schedule": "zb-h2"}, {"input": {"rate": 3}}])
def test_the_search_of_all_layouts_says_what_it_does_not_know(train: dict[str, Any]) -> None:
    with pytest.raises(BadPlan, match="--layouts does not know"):
        search_layouts(load_scenario(job(**train), catalog=load_catalog()))
