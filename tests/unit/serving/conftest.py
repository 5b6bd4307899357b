"""Small models, machines and engines made by hand, so that the tests of serving read no file."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ridgeline.core import FrozenMap
from ridgeline.serving import ServingJob
from ridgeline.specs import (
    Calibration,
    Chip,
    EngineProfile,
    Law,
    Layer,
    LayerRun,
    Linear,
    Load,
    NetworkLevel,
    ServingPlan,
    SoftmaxAttention,
    Stack,
    System,
    Transformer,
)


@dataclass(frozen=True, kw_only=True)
class Dims:
    """Sizes of a decoder with grouped queries and a gated feed-forward part."""

    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    inner: int = 14336
    vocab: int = 128256
    window: int | None = None
    experts: int = 0
    active: int = 0


def linear(name: str, role: str, inputs: int, outputs: int, split: str = "column", **more: object) -> Linear:
    return Linear(name=name, role=role, inputs_count=inputs, outputs_count=outputs, split=split, **more)


def decoder(dims: Dims = Dims(), *, id: str = "toy") -> Transformer:
    h, d = dims.hidden, dims.head_dim
    wide, narrow = dims.heads * d, dims.kv_heads * d
    role = "expert" if dims.experts else "mlp"
    more = {"experts_count": dims.experts, "active_count": float(dims.active)} if dims.experts else {}
    linears = [
        linear("q", "attention", h, wide, head_count=dims.heads),
        linear("k", "attention", h, narrow, head_count=dims.kv_heads),
        linear("v", "attention", h, narrow, head_count=dims.kv_heads),
        linear("o", "attention", wide, h, "row"),
        *([linear("router", "router", h, dims.experts, "replicated")] if dims.experts else []),
        linear("gate", role, h, dims.inner, **more),
        linear("up", role, h, dims.inner, **more),
        linear("down", role, dims.inner, h, "row", **more),
    ]
    attention = SoftmaxAttention(
        heads_count=dims.heads,
        kv_heads_count=dims.kv_heads,
        key_dim_count=d,
        value_dim_count=d,
        cached_per_token_count=2 * narrow,
        window_tokens=dims.window,
    )
    layer = Layer(
        linears=tuple(linears),
        mixers=(attention,),
        other_parameters_count=2 * h,
        activation_count=dims.inner * max(1, dims.active),
    )
    return Transformer(
        id=id,
        family="toy",
        main=Stack(
            role="decoder",
            hidden_count=h,
            runs=(LayerRun(layer=layer, repeat_count=dims.layers),),
            other_parameters_count=h,
        ),
        hidden_count=h,
        vocab_count=dims.vocab,
        embedding_parameters_count=h * dims.vocab,
        head=linear("head", "head", h, dims.vocab),
    )


def encoder(layers: int = 12, hidden: int = 768, heads: int = 12, inner: int = 3072) -> Transformer:
    linears = (
        linear("q", "attention", hidden, hidden, head_count=heads, bias=True),
        linear("k", "attention", hidden, hidden, head_count=heads, bias=True),
        linear("v", "attention", hidden, hidden, head_count=heads, bias=True),
        linear("o", "attention", hidden, hidden, "row", bias=True),
        linear("up", "mlp", hidden, inner, bias=True),
        linear("down", "mlp", inner, hidden, "row", bias=True),
    )
    attention = SoftmaxAttention(
        heads_count=heads,
        kv_heads_count=heads,
        key_dim_count=hidden // heads,
        value_dim_count=hidden // heads,
        cached_per_token_count=0,
        causal=False,
    )
    layer = Layer(linears=linears, mixers=(attention,), activation_count=inner, gated=False, rope=False)
    return Transformer(
        id="toy-encoder",
        family="bert",
        main=Stack(role="encoder", hidden_count=hidden, runs=(LayerRun(layer=layer, repeat_count=layers),)),
        hidden_count=hidden,
        vocab_count=30522,
        embedding_parameters_count=hidden * 30522,
    )


CHIP = Chip(
    id="toy-chip",
    architecture="hopper",
    peak_dense_flop_per_s=FrozenMap({"bf16": 1e15, "fp8": 2e15, "fp32": 6e13}),
    memory_capacity_bytes=80e9,
    memory_usable_bytes=85.5e9,
    memory_bandwidth_bytes_per_s=3e12,
    unit_count=132,
    clock_hz=1.7e9,
    l2_bytes=50e6,
)
_PRODUCT = {
    "compute_frac": 1.0,
    "memory_frac": 1.0,
    "launch_s": 0.0,
    "smooth_count": 16.0,
    "edge_count": 1.0,
    "row_count": 1.0,
}
_FLAT = {
    "launch_s": 0.0,
    "compute_frac": 1.0,
    "memory_frac": 1.0,
    "backward_flop_ratio": 2.5,
    "backward_rate_ratio": 1.0,
    "smooth_count": 16.0,
}
_SMALL = {
    "default.memory_frac": 1.0,
    "default.unit_bytes_per_cycle": 1e9,
    "default.cached_bytes_per_cycle": 13.0,
    "default.launch_s": 0.0,
}


def _law(kind: str, parameters: dict[str, float]) -> Law:
    return Law(
        kind=kind,
        level="universal",
        parameters=FrozenMap(parameters),
        ape_p50_frac=0.0,
        ape_p90_frac=0.0,
        fact=f"roof.{kind}",
    )


# Laws that are the roofs themselves: times can be worked out by hand.
ROOF = Calibration(
    chip="toy-chip",
    laws=FrozenMap(
        {
            "gemm.bf16": _law("gemm.bf16", _PRODUCT),
            "gemm.fp8": _law("gemm.fp8", _PRODUCT),
            "moe.bf16": _law("moe.bf16", _PRODUCT),
            "attention-prefill.fa3": _law("attention-prefill.fa3", _FLAT),
            "attention-decode.fa3": _law("attention-decode.fa3", _FLAT),
            "elementwise": _law("elementwise", _SMALL),
        }
    ),
)
SYSTEM = System(
    id="toy-system",
    name="toy",
    chip=CHIP,
    devices_per_node_count=8,
    levels=(
        NetworkLevel(
            name="nvlink", kind="switch", link="nvlink4", size_count=8, oneway_bytes_per_s=450e9, latency_s=1e-6
        ),
        NetworkLevel(
            name="rail", kind="fat-tree", link="ib-ndr", size_count=None, oneway_bytes_per_s=50e9, latency_s=5e-6
        ),
    ),
)


def make_job(model: Transformer | None = None, **parts: object) -> ServingJob:
    defaults = {
        "model": model or decoder(),
        "plan": ServingPlan(),
        "system": SYSTEM,
        "calibration": ROOF,
        "engine": EngineProfile(id="bare"),
        "load": Load(input_tokens=1000, output_tokens=100),
    }
    return ServingJob(**(defaults | parts))


@pytest.fixture
def job() -> ServingJob:
    return make_job()


@pytest.fixture
def toy():
    """The makers, for tests that need other sizes."""
    return _Toy()


class _Toy:
    Dims = Dims
    decoder = staticmethod(decoder)
    encoder = staticmethod(encoder)
    job = staticmethod(make_job)
    chip = CHIP
    system = SYSTEM
    roof = ROOF
