"""Bytes and calls of routing, of experts' biases and casts, against counts made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ridgeline.specs import Layer, Linear, SoftwareProfile
from ridgeline.workload.expert_launches import expert_launches_count
from ridgeline.workload.ops import Collective, Elementwise
from ridgeline.workload.training_experts import routing_backward, routing_forward, sent_copies, sum_scores
from ridgeline.workload.training_shapes import LayerShape, projections
from ridgeline.workload.training_streams import cast_forward

H, WIDTH, EXPERTS, TOP, ROWS = 1024, 512, 8, 2.0, 1024.0
WHOLE = SoftwareProfile(id="whole")
APART = replace(WHOLE, fused_expert_bias=False)
SHAPE = LayerShape(sequences_count=2.0, query_tokens=512.0, sequence_tokens=512.0, precision="bf16")


def mixture(bias: bool) -> Layer:
    sizes = (("up", H, WIDTH, "column"), ("down", WIDTH, H, "row"))
    linears = tuple(
        Linear(
            name=name,
            role="expert",
            inputs_count=inputs,
            outputs_count=outputs,
            split=split,
            experts_count=EXPERTS,
            active_count=TOP,
            bias=bias,
        )
        for name, inputs, outputs, split in sizes
    )
    return Layer(linears=linears, activation_count=WIDTH, gated=False, rope=False)


def elementwise(layer: Layer, software: SoftwareProfile, *, backward: bool) -> dict[str, Elementwise]:
    make = routing_backward if backward else routing_forward
    ops = (item.op for item in make(H, projections(layer, SHAPE), SHAPE, software))
    return {op.name: op for op in ops if isinstance(op, Elementwise)}


@pytest.mark.parametrize(("backward", "bytes_each", "launches"), [(False, 2 * 2 + 6 * 4, 2), (True, 5 * 2 + 8 * 4, 5)])
def test_biases_apart_move_fp32_rows_and_are_issued_for_each_expert(
    backward: bool, bytes_each: int, launches: int
) -> None:
    name = "expert biases backward" if backward else "expert biases"
    found = elementwise(mixture(True), APART, backward=backward)[name]
    assert found.bytes == pytest.approx(ROWS * TOP * H * bytes_each)
    assert found.launches_count == launches * EXPERTS


def test_no_biases_where_there_are_none_or_the_product_adds_them() -> None:
    assert "expert biases" not in elementwise(mixture(False), APART, backward=False)
    assert "expert biases" not in elementwise(mixture(True), WHOLE, backward=False)


def test_scores_cost_by_the_number_of_all_experts() -> None:
    spread = replace(SHAPE, expert_count=4)
    here = elementwise(mixture(False), WHOLE, backward=False)["routing"].bytes
    ops = routing_forward(H, projections(mixture(False), spread), spread, WHOLE)
    there = next(item.op.bytes for item in ops if item.op.name == "routing" and isinstance(item.op, Elementwise))
    assert here == there == ROWS * EXPERTS * 9 * 4
    assert sum_scores(ROWS, 2 * EXPERTS, True) == 2 * sum_scores(ROWS, EXPERTS, True)


def test_deduplicated_exchange_sends_one_copy_a_node_by_its_own_kind() -> None:
    software = replace(WHOLE, deduplicated_dispatch=True)
    spread = replace(SHAPE, expert_count=8, domain_count=4)
    assert sent_copies(TOP, spread, WHOLE) == TOP
    assert sent_copies(TOP, spread, software) == pytest.approx(2 * (1 - 0.5**2))
    kinds = {
        item.op.kind
        for item in routing_forward(H, projections(mixture(False), spread), spread, software)
        if isinstance(item.op, Collective)
    }
    assert kinds == {"token_exchange"}


def test_experts_cast_what_was_sorted_for_them() -> None:
    narrow = replace(SHAPE, precision="fp8")
    (op,) = (item.op for item in cast_forward(projections(mixture(False), narrow), narrow, WHOLE))
    assert isinstance(op, Elementwise)
    assert op.bytes == pytest.approx(ROWS * TOP * (H + WIDTH) * (2 + 2 * 1))


def test_four_bit_experts_read_three_times() -> None:
    narrow = replace(SHAPE, precision="nvfp4")
    (op,) = (item.op for item in cast_forward(projections(mixture(False), narrow), narrow, WHOLE))
    assert isinstance(op, Elementwise)
    assert op.bytes == pytest.approx(ROWS * TOP * (H + WIDTH) * (3 * 2 + 2 * narrow.narrow_bytes))


def test_narrow_products_take_more_calls() -> None:
    assert expert_launches_count("fp8") == expert_launches_count("nvfp4") > expert_launches_count("bf16")
