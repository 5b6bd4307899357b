"""One operation on one chip: which law applies, how long it takes, what bounds it and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from ridgeline.core import FrozenMap, quadrature
from ridgeline.device import attention, conv, elementwise, gemm, grouped_gemm
from ridgeline.device.context import STREAM, KernelContext
from ridgeline.device.rates import cache_over_memory, find_law, is_gpu, peak_fact, rate_facts, rates_of
from ridgeline.device.unfused import unfused_parts
from ridgeline.errors import MissingFact
from ridgeline.specs import Calibration, Chip, Law, bytes_per_element
from ridgeline.workload.ops import (
    AttentionDecode,
    AttentionPrefill,
    ComputeOp,
    Convolve,
    Elementwise,
    Gemm,
    GroupedGemm,
)

Bound = Literal["compute", "memory", "latency"]

# Formats that run the same kernels share one law.
LAW_PRECISION: dict[str, str] = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "fp4": "fp4",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    "int8": "int8",
    "tf32": "tf32",
    "fp32": "fp32",
}
# Families of attention kernels that are taken unasked, newest first; older ones only where asked for.
PREFERRED_ATTENTION = ("flashinfer", "fa3", "fa2", "compiled")
_LEVELS = ("device", "architecture", "universal", "published")
# Spread that the law of one precision shows on another (log standard deviation).
_OTHER_PRECISION_SIGMA = 0.15  # src: ridgeline-kernel-laws
# Spread of products with weights stored narrower than they are multiplied: unpacking is not modelled.
_UNPACKING_SIGMA = 0.3  # src: ridgeline-kernel-laws


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """How long one operation takes.

    `compute_s`, `memory_s`, `launch_s` are the roofs under `time_s`; `bound` is the highest. `limiter` is the id of
    the figure that would have to improve. `sigma` is the log standard deviation of the law on measured kernels.
    `model` is the id of the formula, `uses` the facts that it read, `level` how its parameters were come by
    ("device", "architecture", "universal", "published").
    """

    time_s: float
    compute_s: float
    memory_s: float
    launch_s: float
    bound: Bound
    limiter: str
    sigma: float
    model: str
    uses: tuple[str, ...]
    level: str


def op_time(op: ComputeOp, chip: Chip, calibration: Calibration, context: KernelContext = STREAM) -> OpTime:
    """Time of `op` on `chip` with the laws of `calibration`.

    Raises `MissingFact` where the chip lacks a peak of that precision, its bandwidth or what a tile law needs, or
    where the calibration has no law for the operation.
    """
    if isinstance(op, Gemm):
        streamed = 0 < op.m <= context.stream_rows_count
        result = (
            _streamed(op, chip, calibration, context) if streamed else _products(op, chip, calibration, context, "gemm")
        )
    elif isinstance(op, GroupedGemm):
        result = _products(op, chip, calibration, context, "moe")
    elif isinstance(op, AttentionPrefill):
        result = _prefill(op, chip, calibration, context)
    elif isinstance(op, AttentionDecode):
        result = _decode(op, chip, calibration, context)
    elif isinstance(op, Convolve):
        result = _convolution(op, chip, calibration, context)
    else:
        result = _elementwise(op, chip, calibration, context)
    if context.host_launch_s <= 0:
        return result
    return _host_bound(result, kernels_count(op, context), context)


def kernels_count(op: ComputeOp, context: KernelContext = STREAM) -> float:
    """Kernels that the host issues for `op`."""
    if isinstance(op, Elementwise):
        return op.launches_count
    if isinstance(op, AttentionPrefill):
        if context.attention == "unfused" or not op.fused:
            return float(len(unfused_parts(op, context.wide_scores)))
        return 2.0 if op.backward else 1.0
    return 1.0


def _host_bound(result: OpTime, kernels: float, context: KernelContext) -> OpTime:
    floor_s = kernels * context.host_launch_s
    if result.time_s >= floor_s:
        return result
    return replace(result, time_s=floor_s, launch_s=floor_s, bound="latency", limiter="host_launch_s")


def gemm_law(calibration: Calibration, chip: Chip, precision: str, family: str = "gemm") -> tuple[Law, float]:
    """The law for products in `precision` and the sigma to use: wider where another precision's law stands in.

    `family` "moe" asks for the kernels of expert products, for which those of plain products stand in.
    """
    key = LAW_PRECISION.get(precision, precision)
    own = (f"{family}.{key}",)
    # A measured law of another precision goes before "gemm", the flat fractions of parts of which nothing is measured.
    others = (f"{family}.bf16", family, f"gemm.{key}", "gemm.bf16", "gemm")
    found, law = find_law(calibration, chip, (*own, *others), f"a law for {precision} products")
    return law, law.sigma if found in own else quadrature(law.sigma, _OTHER_PRECISION_SIGMA)


def product_of(op: Gemm) -> gemm.Product:
    """Shapes and element bytes of a `Gemm`."""
    return gemm.Product(
        op.m,
        op.n,
        op.k,
        op.batch_count,
        bytes_per_element(op.activation_precision),
        bytes_per_element(op.weight_precision),
        bytes_per_element(op.output_precision),
    )


def gemm_times(
    product: gemm.Product, law: Law, chip: Chip, precision: str, context: KernelContext = STREAM
) -> gemm.GemmTime:
    """The array form: times of many products in one precision on one chip, without records."""
    if "feed_flop_per_byte" in law.parameters:
        rates = rates_of(chip, precision, "time of a matrix product", law.parameters)
        tiles = gemm.tile_law(law)
        own = law.kind.partition(".")[2]
        if own and own != LAW_PRECISION.get(precision, precision) and chip.has_peak(own):
            tiles = gemm.refed(tiles, rates.peak_flop_per_s / chip.peak(own))
        return gemm.tiled_gemm_s(product, tiles, rates, context.weight_copies_count, context.resident_activations)
    return gemm.systolic_gemm_s(
        product, gemm.systolic_law(law), chip.peak(precision), chip.need("memory_bandwidth_bytes_per_s")
    )


def _products(
    op: Gemm | GroupedGemm, chip: Chip, calibration: Calibration, context: KernelContext, family: str
) -> OpTime:
    law, sigma = gemm_law(calibration, chip, op.math_precision, family)
    if bytes_per_element(op.weight_precision) < bytes_per_element(op.activation_precision):
        sigma = quadrature(sigma, _UNPACKING_SIGMA)
    product = product_of(op) if isinstance(op, Gemm) else grouped_gemm.experts_product(op)
    time = gemm_times(product, law, chip, op.math_precision, context)
    tiled = "feed_flop_per_byte" in law.parameters
    limiter = f"{law.fact}.feed_flop_per_byte" if bool(time.feed) else peak_fact(chip, op.math_precision)
    facts = rate_facts(chip, op.math_precision, tiled=tiled)
    return _answer(time, chip, law, sigma, "tiled-gemm" if tiled else "systolic-gemm", facts, limiter)


def _streamed(op: Gemm, chip: Chip, calibration: Calibration, context: KernelContext) -> OpTime:
    """A product of few rows as a stream of its matrix, multiplied on the vector units."""
    stream = Elementwise(name=op.name, kind="residual", bytes=op.bytes, flop=op.flop)
    time = _elementwise(stream, chip, calibration, replace(context, resident_activations=False, fused=False))
    if op.weight_precision == op.activation_precision:
        return time
    return replace(time, sigma=quadrature(time.sigma, _UNPACKING_SIGMA))


def attention_law(calibration: Calibration, chip: Chip, phase: str, family: str, precision: str) -> tuple[str, Law]:
    """Key and law of attention: of the family asked for, else of the family that was measured closest to the chip.

    Closest: on the device before on its architecture before on all; at one distance, the kernels of this precision,
    then the order of `PREFERRED_ATTENTION`.
    """
    narrow = LAW_PRECISION.get(precision, precision)
    ranked = []
    for order, each in enumerate((family,) if family else PREFERRED_ATTENTION):
        for other, key in enumerate((f"attention-{phase}.{each}.{narrow}", f"attention-{phase}.{each}")):
            law = calibration.laws.get(key)
            level = _LEVELS.index(law.level) if law and law.level in _LEVELS and not family else 0
            ranked.append((level, other, order, key))
    keys = [key for *_, key in sorted(ranked)]
    if not family:
        keys.append(f"attention-{phase}")
    return find_law(calibration, chip, keys, f"a law for {phase} attention")


def scores_of(op: AttentionPrefill) -> attention.Scores:
    """Shape of a prefill."""
    window = float("inf") if op.window_tokens is None else float(op.window_tokens)
    if op.selected_tokens is not None:
        window = min(window, float(op.selected_tokens))
    return attention.Scores(
        op.batch_count,
        op.query_tokens,
        op.key_tokens,
        op.heads_count,
        op.kv_heads_count,
        op.key_dim_count,
        op.value_dim_count,
        window,
        op.causal,
        bytes_per_element(op.precision),
    )


def _prefill(op: AttentionPrefill, chip: Chip, calibration: Calibration, context: KernelContext) -> OpTime:
    if context.attention == "unfused" or not op.fused:
        return _unfused(op, chip, calibration, context)
    _, law = attention_law(calibration, chip, "prefill", context.attention, op.precision)
    scores = scores_of(op)
    if "score_cycles" in law.parameters:
        tiles = attention.prefill_law(law)
        rates = rates_of(chip, op.precision, "time of attention", law.parameters)
        time = attention.prefill_s(scores, tiles, rates)
        ratios = (tiles.backward_flop_ratio, tiles.backward_rate_ratio, tiles.smooth_count)
        name, facts = "tiled-attention", rate_facts(chip, op.precision)
    else:
        flat = attention.flat_law(law)
        peak, bandwidth = chip.peak(op.precision), chip.need("memory_bandwidth_bytes_per_s", "time of attention")
        time = attention.flat_attention_s(
            attention.attention_flop(scores), attention.attention_bytes(scores), flat, peak, bandwidth
        )
        ratios = (flat.backward_flop_ratio, flat.backward_rate_ratio, flat.smooth_count)
        name, facts = "flat-attention", rate_facts(chip, op.precision, tiled=False)
    if op.backward:
        time = attention.backward(time, *ratios)
    return _answer(time, chip, law, law.sigma, name, facts, peak_fact(chip, op.precision))


def _unfused(op: AttentionPrefill, chip: Chip, calibration: Calibration, context: KernelContext) -> OpTime:
    parts = [op_time(part, chip, calibration, context) for part in unfused_parts(op, context.wide_scores)]
    time_s = sum(part.time_s for part in parts)
    slowest = max(parts, key=lambda part: part.time_s)
    return OpTime(
        time_s=time_s,
        compute_s=sum(part.compute_s for part in parts),
        memory_s=sum(part.memory_s for part in parts),
        launch_s=sum(part.launch_s for part in parts),
        bound=slowest.bound,
        limiter=slowest.limiter,
        sigma=sum(part.time_s * part.sigma for part in parts) / time_s,
        model="unfused-attention",
        uses=tuple(dict.fromkeys(fact for part in parts for fact in part.uses)),
        level=slowest.level,
    )


def _decode(op: AttentionDecode, chip: Chip, calibration: Calibration, context: KernelContext) -> OpTime:
    law = decode_attention_law(op, chip, calibration, context)
    scores = attention.Scores(
        op.batch_count, 1.0, op.context_tokens, op.heads_count, op.kv_heads_count, op.key_dim_count, op.value_dim_count
    )
    bandwidth = chip.need("memory_bandwidth_bytes_per_s", "time of decode attention")
    stream = ""
    if "feed_bytes_per_cycle" in law.parameters:
        rates = rates_of(chip, op.precision, "time of decode attention", law.parameters)
        resident = not np.isinf(context.weight_copies_count)
        near = op.repeated_frac * (1.0 - 1.0 / cache_over_memory(chip)) if op.repeated_frac > 0 else 0.0
        time = attention.decode_s(scores, op.bytes * (1.0 - near), attention.decode_law(law), rates, resident)
        name, facts = "paged-decode-attention", rate_facts(chip, op.precision)
        if float(time.feed_s) > float(time.memory_s):  # bytes wait for the units to take them in, not for the memory
            time = time._replace(memory_s=time.feed_s)
            stream = f"{law.fact}.feed_bytes_per_cycle"
    else:
        flop = attention.attention_flop(scores._replace(causal=False))
        time = attention.flat_attention_s(flop, op.bytes, attention.flat_law(law), chip.peak(op.precision), bandwidth)
        name, facts = "flat-attention", rate_facts(chip, op.precision, tiled=False)
    return _answer(time, chip, law, law.sigma, name, facts, peak_fact(chip, op.precision), stream)


def decode_attention_law(op: AttentionDecode, chip: Chip, calibration: Calibration, context: KernelContext) -> Law:
    """The law of latent attention (one wide key head, narrower values) where it was measured, else the plain one."""
    latent = op.kv_heads_count == 1 and op.key_dim_count != op.value_dim_count
    for phase in ("decode-latent", "decode") if latent else ("decode",):
        try:
            return attention_law(calibration, chip, phase, context.attention, op.kv_precision)[1]
        except MissingFact:
            if phase == "decode":
                raise
    raise MissingFact(f"{chip.id}.efficiency.attention-decode")


def _elementwise(op: Elementwise, chip: Chip, calibration: Calibration, context: KernelContext) -> OpTime:
    _, law = find_law(calibration, chip, (f"elementwise.{op.kind}", "elementwise"), "a law for element-wise work")
    figures = elementwise.elementwise_law(law, op.kind, context.fused)
    stream = elementwise.Stream(
        chip.need("memory_bandwidth_bytes_per_s", "time of element-wise work"),
        (chip.l2_bytes or 0.0) if context.resident_activations else 0.0,
        (chip.unit_count or 0.0) * (chip.clock_hz or 0.0) if is_gpu(chip) else 0.0,
    )
    moved = elementwise.elementwise_s(op.bytes, op.launches_count, figures, stream)
    flop_s = op.flop / chip.peak("fp32") if op.flop > 0 and chip.has_peak("fp32") else 0.0
    compute_s = max(float(moved.unit_s), flop_s)
    time_s = max(float(moved.time_s), flop_s + float(moved.launch_s)) + op.chain_s
    time = attention.AttentionTime(time_s, compute_s, moved.memory_s, moved.launch_s)
    facts = (chip.fact_id("memory_bandwidth_bytes_per_s"),)
    limiter = f"{law.fact}.{op.kind}" if flop_s < compute_s else chip.fact_id("peak_dense_flop_per_s.fp32")
    return _answer(time, chip, law, law.sigma, "elementwise", facts, limiter)


def _convolution(op: Convolve, chip: Chip, calibration: Calibration, context: KernelContext) -> OpTime:
    """An implicit product; with small groups, direct kernels on the vector units where those are faster."""
    key = LAW_PRECISION.get(op.math_precision, op.math_precision)
    _, own = find_law(calibration, chip, (f"convolution.{key}", "convolution"), "a law for convolutions")
    figures = conv.convolution_law(own)
    # 8-bit products were measured in language-model engines, with their scalings; convolutions run the 16-bit kernels'
    # kind at a higher rate
    wide = "bf16" if key in ("int8", "fp8") else op.math_precision
    law, sigma = gemm_law(calibration, chip, wide)
    if wide != op.math_precision:
        sigma = quadrature(sigma, _OTHER_PRECISION_SIGMA)
    rate = conv.rate_ratio(op, figures)
    time = gemm_times(
        conv.implicit_product(op, figures), law, _slowed(chip, rate, figures.memory_ratio), op.math_precision, context
    )
    tiled = "feed_flop_per_byte" in law.parameters
    facts = (*rate_facts(chip, op.math_precision, tiled=tiled), own.fact)
    sigma = quadrature(sigma, own.sigma)
    if conv.packed_groups(op, figures) > 1 and chip.has_peak("fp32"):
        direct = conv.direct_time(op, figures, chip.peak("fp32"), chip.need("memory_bandwidth_bytes_per_s"))
        if float(direct.time_s) < float(time.time_s):
            limiter = peak_fact(chip, "fp32")
            return _answer(direct, chip, own, sigma, "direct-convolution", (*facts, limiter), limiter)
    return _answer(time, chip, law, sigma, "implicit-gemm", facts, peak_fact(chip, op.math_precision))


@cache
def _slowed(chip: Chip, compute_ratio: float, memory_ratio: float) -> Chip:
    """The chip with its rates scaled by what convolutions achieve over products."""
    peaks = FrozenMap({key: value * compute_ratio for key, value in chip.peak_dense_flop_per_s.items()})
    bandwidth = chip.memory_bandwidth_bytes_per_s
    scaled = None if bandwidth is None else bandwidth * memory_ratio
    return replace(chip, peak_dense_flop_per_s=peaks, memory_bandwidth_bytes_per_s=scaled)


def _answer(
    time: Any,
    chip: Chip,
    law: Law,
    sigma: float,
    model: str,
    facts: tuple[str, ...],
    compute_limiter: str,
    memory_limiter: str = "",
) -> OpTime:
    roofs: dict[Bound, float] = {
        "compute": float(time.compute_s),
        "memory": float(time.memory_s),
        "latency": float(time.launch_s),
    }
    bound = max(roofs, key=roofs.__getitem__)
    limiters = {
        "compute": compute_limiter,
        "memory": memory_limiter or chip.fact_id("memory_bandwidth_bytes_per_s"),
        "latency": f"{law.fact}.launch",
    }
    return OpTime(
        time_s=float(time.time_s),
        compute_s=roofs["compute"],
        memory_s=roofs["memory"],
        launch_s=roofs["latency"],
        bound=bound,
        limiter=limiters[bound],
        sigma=sigma,
        model=model,
        uses=(*facts, law.fact),
        level=law.level,
    )
