"""How kernels are run: what surrounds one operation in a running stream, which is not what a benchmark measures."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelContext:
    """The circumstances of a kernel.

    `host_launch_s`: time that the host needs to issue one kernel. 0 where a captured graph, a compiled program or a
    host that runs ahead hides it (training, graph decode); an eager engine that does not keep ahead passes its own
    figure, and no operation is then faster than the launches that it needs.
    `weight_copies_count`: how many other weight matrices pass through the cache before the same one is read again.
    Infinite in a model (each layer has its own, so weights come from memory); a benchmark that cycles a few copies
    finds small ones in the cache (6 in one public collection), and calibration passes that number.
    `resident_activations`: whether an operand that the preceding kernel wrote may still be in the cache.
    `attention`: kernel family of attention ("fa1", "fa2", "fa3", "flashinfer", "unfused", ...); empty takes the one
    that the calibration of the chip prefers.
    `fused`: element-wise work is done by fused training kernels rather than by one kernel an operation.
    `stream_rows_count`: products of up to so many rows are done by kernels of their own that read the matrix once, at
    the rate of other streaming kernels, without the matrix units (0: all products are tiled).
    `wide_scores`: attention without fusion keeps its scores in fp32 between kernels and converts them for its products.
    """

    host_launch_s: float = 0.0
    weight_copies_count: float = math.inf
    resident_activations: bool = True
    attention: str = ""
    fused: bool = False
    stream_rows_count: float = 0.0
    wide_scores: bool = False


STREAM = KernelContext()
