"""What an engine adds around products: conversions, expanded weights, unfused traffic. Bytes worked out by hand."""

from __future__ import annotations

import pytest

from ridgeline.specs import EngineProfile, ServingPlan, Stack, Transformer
from ridgeline.workload.engine_step import Setting, Step, expand_ops, quantise_ops, small_kernel
from ridgeline.workload.ops import Elementwise, Gemm

MODEL = Transformer(
    id="m",
    family="toy",
    main=Stack(role="decoder", hidden_count=8, runs=()),
    hidden_count=8,
    vocab_count=1,
    embedding_parameters_count=0,
)


def setting(engine: EngineProfile, activation: str = "fp16") -> Setting:
    step = Step(decode_count=1.0)
    plan = ServingPlan(weight_precision="q4_0", activation_precision=activation)
    return Setting(model=MODEL, plan=plan, engine=engine, whole=step, group=step)


def product(rows: float, weight: str = "q4_0") -> Gemm:
    return Gemm(
        name="p",
        m=rows,
        n=64.0,
        k=32.0,
        math_precision="fp16",
        weight_precision=weight,
        activation_precision="fp16",
        output_precision="fp16",
    )


@pytest.mark.parametrize(("rows", "expanded"), [(32.0, False), (33.0, True)])
def test_many_rows_write_narrow_weights_out_first(rows: float, expanded: bool) -> None:
    found = [op for op, _ in expand_ops(product(rows), setting(EngineProfile(id="e", expand_rows_count=32)))]
    if not expanded:
        assert found == [product(rows)]
        return
    cast, wide = found
    assert isinstance(cast, Elementwise)
    assert cast.bytes == 64 * 32 * (4.5 / 8 + 2)  # q4_0 holds 4.5 bits an element, fp16 two bytes
    assert wide == product(rows, "fp16")


def test_wide_weights_and_engines_that_expand_on_the_fly_are_left_alone() -> None:
    engine = EngineProfile(id="e", expand_rows_count=32)
    assert [op for op, _ in expand_ops(product(512.0, "fp16"), setting(engine))] == [product(512.0, "fp16")]
    assert [op for op, _ in expand_ops(product(512.0), setting(EngineProfile(id="e")))] == [product(512.0)]


def test_hidden_states_in_another_format_are_converted_before_products() -> None:
    engine = EngineProfile(id="e", hidden_precision="fp32", fused_quantisation=False)
    (cast,) = [op for op, _ in quantise_ops(100.0, "fp16", setting(engine))]
    assert cast.bytes == 100 * (4 + 2)
    assert list(quantise_ops(100.0, "fp16", setting(EngineProfile(id="e", fused_quantisation=False)))) == []


def test_unfused_kernels_move_more_in_more_launches() -> None:
    engine = EngineProfile(id="e", traffic_frac=1.5, launches_frac=2.0)
    kernel = small_kernel("norm", "norm", 100.0, 1.0, setting(engine))
    assert (kernel.bytes, kernel.launches_count) == (150.0, 2.0)
