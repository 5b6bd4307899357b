"""Examples that several folders of tests share: a GPT of any size, and a machine made by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.core import FrozenMap
from ridgeline.specs import (
    Calibration,
    Chip,
    Layer,
    LayerRun,
    Linear,
    NetworkLevel,
    SoftmaxAttention,
    Stack,
    System,
    Transformer,
)


@pytest.fixture(scope="session")
def calibration() -> Calibration:
    """Laws of a real chip with the architecture of the one below."""
    return load_catalog(plugins=False).calibration("a100-sxm4-80")


@pytest.fixture(scope="session")
def machine() -> System:
    """Nodes of eight imaginary chips of 300 TFLOP/s and 80 GB on a switch, eight rails between nodes."""
    chip = Chip(
        id="chip",
        architecture="ampere",
        peak_dense_flop_per_s=FrozenMap({"bf16": 300e12, "fp32": 20e12}),
        memory_capacity_bytes=80e9,
        memory_bandwidth_bytes_per_s=2e12,
        unit_count=108,
        clock_hz=1.4e9,
        l2_bytes=40e6,
        host_oneway_bytes_per_s=25e9,
    )
    levels = (
        NetworkLevel(name="switch", kind="switch", link="s", size_count=8, oneway_bytes_per_s=300e9, latency_s=1e-6),
        NetworkLevel(
            name="rail",
            kind="fat-tree",
            link="r",
            size_count=None,
            oneway_bytes_per_s=25e9,
            latency_s=5e-6,
            transport="rdma",
        ),
    )
    return System(id="machine", name="Machine", chip=chip, devices_per_node_count=8, levels=levels)


def gpt(
    layers: int,
    hidden: int,
    heads: int,
    *,
    vocab: int = 51200,
    sequence: int = 2048,
    tied: bool = True,
    experts: int = 0,
) -> Transformer:
    """A GPT as the Megatron papers count it: 12 l h^2 + 13 l h + (v + s) h parameters; or with eight-wide experts."""
    width = hidden // heads

    def matrix(name: str, inputs: int, outputs: int, split: str = "column", head: int | None = None) -> Linear:
        role = "attention" if name in "qkvo" else "mlp"
        return Linear(
            name=name,
            role=role,  # type: ignore[arg-type]
            inputs_count=inputs,
            outputs_count=outputs,
            bias=True,
            split=split,  # type: ignore[arg-type]
            head_count=head,
        )

    attention = (
        *(matrix(name, hidden, hidden, head=heads) for name in "qkv"),
        matrix("o", hidden, hidden, "row"),
    )
    feed = (matrix("up", hidden, 4 * hidden), matrix("down", 4 * hidden, hidden, "row"))
    if experts:
        names = (("up", hidden, 4 * hidden, "column"), ("down", 4 * hidden, hidden, "row"))
        router = Linear(name="router", role="router", inputs_count=hidden, outputs_count=experts, split="replicated")
        feed = (
            router,
            *(
                Linear(
                    name=name,
                    role="expert",
                    inputs_count=inputs,
                    outputs_count=outputs,
                    split=split,  # type: ignore[arg-type]
                    experts_count=experts,
                    active_count=2.0,
                )
                for name, inputs, outputs, split in names
            ),
        )
    scores = SoftmaxAttention(
        heads_count=heads,
        kv_heads_count=heads,
        key_dim_count=width,
        value_dim_count=width,
        cached_per_token_count=2 * hidden,
    )
    layer = Layer(
        linears=(*attention, *feed),
        mixers=(scores,),
        other_parameters_count=4 * hidden,
        activation_count=(8 if experts else 4) * hidden,
        gated=False,
        rope=False,
    )
    stack = Stack(
        role="decoder",
        hidden_count=hidden,
        runs=(LayerRun(layer=layer, repeat_count=layers),),
        other_parameters_count=(sequence + 2) * hidden,
    )
    return Transformer(
        id=f"gpt-{layers}x{hidden}",
        family="gpt",
        main=stack,
        hidden_count=hidden,
        vocab_count=vocab,
        embedding_parameters_count=vocab * hidden,
        head=Linear(name="head", role="head", inputs_count=hidden, outputs_count=vocab),
        tied_embeddings=tied,
    )


@pytest.fixture(scope="session")
def make_gpt() -> Callable[..., Transformer]:
    """Builds a GPT of any size."""
    return gpt
