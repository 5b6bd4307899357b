"""Formulas of the training schedule: pipeline bubble, what hides behind what, the slowest of many devices."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from ridgeline.core import model

_BLOM = 0.375  # src: blom-1958
Number = Any
"""A float or a numpy array; the kernels of overlap broadcast."""


@model(id="pipeline-bubble", sources=("narayanan-2021", "huang-2019-gpipe"))
def bubble_s(stage_s: Sequence[float], interleave_count: int) -> float:
    """Time that the slowest stage waits while the pipeline fills and drains.

    `stage_s`: time of one micro-batch, forward and backward, on each stage [s]. Returns [s].

    bubble = (sum of all stages - slowest) / v, so a step of m micro-batches takes m slowest + bubble.

    With equal stages and v = 1 the share of the step is (p - 1)/(m + p - 1), that of GPipe. Assumes that transfers
    are counted elsewhere. Sources: Huang 2019; Narayanan 2021, sections 2.2.1 and 2.2.2.

    >>> bubble_s([1.0] * 4, 1) / (8 * 1.0 + bubble_s([1.0] * 4, 1)) == (4 - 1) / (8 + 4 - 1)
    True
    """
    return (sum(stage_s) - max(stage_s)) / interleave_count


@model(id="bucketed-overlap", sources=("li-2020-ddp",))
def bucketed_exposed_s(exchange_s: Number, window_s: Number, buckets_count: Number) -> Number:
    """What of an exchange in buckets is not hidden by a pass that takes `window_s` and feeds the buckets evenly.

    exposed = C/b + max(0, (C - W)(1 - 1/b)): the last bucket has nothing to hide behind, the others share the pass.
    Returns [s]. Source: Li et al. 2020 (bucketed gradient reduction).

    >>> bucketed_exposed_s(1.0, 10.0, 4.0), bucketed_exposed_s(1.0, 0.0, 4.0)
    (0.25, 1.0)
    """
    last_s = exchange_s / buckets_count
    return last_s + _positive(exchange_s - window_s) * (1.0 - 1.0 / buckets_count)


@model(id="pipelined-overlap", sources=("wang-2023-overlap", "nvidia-te-userbuffers"))
def pipelined_exposed_s(exchange_s: Number, product_s: Number, pieces_count: Number) -> Number:
    """What of a collective is left when it is cut into pieces that run together with the pieces of its GEMM.

    exposed = C/n + max(0, (C - G)(1 - 1/n)): the first (or last) piece stands alone. Returns [s].

    >>> pipelined_exposed_s(8.0, 100.0, 8.0)
    1.0
    """
    return bucketed_exposed_s(exchange_s, product_s, pieces_count)


@model(id="ring-overlap", sources=("wang-2023-overlap", "nvidia-te-userbuffers"))
def ring_exposed_s(exchange_s: Number, product_s: Number, pieces_count: Number) -> Number:
    """What of a collective is left when its pieces pass from neighbour to neighbour beside the pieces of its GEMM.

    exposed = max(0, C - G (n - 1)/n): the piece that a rank already has is worked on while the next one arrives, so
    n - 1 transfers run beside n - 1 of the n products. Returns [s]. Source: Wang et al. 2023, section 5.

    >>> ring_exposed_s(8.0, 8.0, 8.0), ring_exposed_s(7.0, 8.0, 8.0)
    (1.0, 0.0)
    """
    return _positive(exchange_s - product_s * (1.0 - 1.0 / pieces_count))


@model(id="slowest-device", sources=("blom-1958",))
def slowest_excess_frac(spread_sigma_frac: float, devices_count: int) -> float:
    """How much slower than the mean the slowest of n devices is expected to be, as a share.

    sigma times the expected maximum of n standard normals, by Blom: quantile((n - 3/8)/(n + 1/4)). Every step waits
    for the slowest device. Source: Blom 1958.

    >>> slowest_excess_frac(0.01, 1), round(slowest_excess_frac(0.01, 8), 4)
    (0.0, 0.0143)
    """
    if devices_count <= 1 or spread_sigma_frac <= 0:
        return 0.0
    rank = (devices_count - _BLOM) / (devices_count + 1 - 2 * _BLOM)
    return spread_sigma_frac * NormalDist().inv_cdf(rank)


@model(id="layerwise-overlap", sources=("zhao-2023-fsdp",))
def layerwise_exposed_s(exchange_s: Number, compute_s: Number, layers_count: Number, ahead_count: int) -> Number:
    """What is not hidden when each of `layers_count` layers is exchanged while its neighbour computes.

    `exchange_s`, `compute_s`: of one layer. The first layer waits for its own exchange; the others wait for what their
    neighbour's computation does not cover; without prefetch nothing is covered. Returns [s] for all layers.

    >>> layerwise_exposed_s(1.0, 3.0, 10.0, 1), layerwise_exposed_s(1.0, 3.0, 10.0, 0)
    (1.0, 10.0)
    """
    if ahead_count < 1:
        return exchange_s * layers_count
    waits_s = exchange_s + (layers_count - 1.0) * _positive(exchange_s - compute_s)
    whole_s = exchange_s * layers_count
    if isinstance(waits_s, float) and isinstance(whole_s, float):
        return min(whole_s, waits_s)
    return np.minimum(whole_s, waits_s)


def _positive(excess: Number) -> Number:
    """What exceeds nothing, of a float or an array."""
    return max(0.0, excess) if isinstance(excess, float) else np.maximum(0.0, excess)
