"""Which kernels an engine runs on a chip: its own where they were measured, else those that the chip is known with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

from ridgeline.core import FrozenMap
from ridgeline.device import STREAM, KernelContext
from ridgeline.specs import Calibration, EngineProfile
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, ComputeOp, Gemm


@cache
def _streaming(rows_count: int) -> KernelContext:
    return KernelContext(stream_rows_count=rows_count)


@lru_cache(maxsize=256)
def engine_calibration(calibration: Calibration, family: str) -> Calibration:
    """The laws of a chip with expert products taken from the kernels of `family` where it has its own.

    A law filed as "moe.<precision>.<family>" takes the place of "moe.<precision>".
    """
    ending = f".{family}"
    own = {key.removesuffix(ending): law for key, law in calibration.laws.items() if key.endswith(ending) and family}
    products = {key: law for key, law in own.items() if key.startswith("moe.")}
    if not products:
        return calibration
    return replace(calibration, laws=FrozenMap({**calibration.laws, **products}))


def expert_kernels(engine: EngineProfile) -> str:
    """The family that the engine's expert products are known by: that of its release, else of its attention."""
    return engine.expert_family or engine.attention_family


def kernel_context(engine: EngineProfile, calibration: Calibration, op: ComputeOp) -> KernelContext:
    """How the engine runs the kernel `op` on this chip.

    Its own attention family where that is calibrated (a family may have a law of its own for decode with one query
    head a key head, "<family>-mha"), else the one that the calibration prefers. Attention without fusion writes its
    scores to memory in prefill; with one query a sequence there is nothing to fuse.
    """
    if isinstance(op, Gemm) and engine.stream_rows_count:
        return _streaming(engine.stream_rows_count)
    family = engine.attention_family
    if not family or not isinstance(op, (AttentionDecode, AttentionPrefill)):
        return STREAM
    if isinstance(op, AttentionPrefill):
        known = family == "unfused" or f"attention-prefill.{family}" in calibration.laws
        return KernelContext(attention=family, wide_scores=engine.hidden_precision == "fp32") if known else STREAM
    if op.heads_count == op.kv_heads_count and f"attention-decode.{family}-mha" in calibration.laws:
        return KernelContext(attention=f"{family}-mha")
    return KernelContext(attention=family) if f"attention-decode.{family}" in calibration.laws else STREAM
