"""Goodput: what failures and checkpoints leave of a training run. Formulas; `effective.py` puts them together.

A run repeats a period: work, then a checkpoint that stops the devices for `blocking_s` (all of the write where it is
synchronous). The state is safe once the write of `write_s` is complete. Failures are exponential with the same rate for
every node, in series: one of them stops the job.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.core import model

Number = Any  # a float or an array of floats


@model(id="failures-in-series", sources=("kokolis-2024",), valid={"nodes_count": (1, 1e6)})
def between_failures_s(nodes_count: Number, node_failures_per_s: Number) -> Number:
    """Mean time between failures of a job that stops when any of its nodes does [s].

        M = 1 / (n r)

    Does not model failures that come together (a rack, a switch) nor early ones of new hardware.

    >>> round(between_failures_s(2048, 6.5e-3 / 86400) / 3600, 2)  # the projection of the source for 16,384 devices
    1.8
    """
    return 1.0 / (nodes_count * node_failures_per_s)


@model(id="node-failures-by-devices", sources=("llama-3-herd", "rl-derivation"))
def node_failures_per_s(
    reference_failures_per_s: Number, device_share_frac: Number, devices_count: Number, reference_devices_count: Number
) -> Number:
    """Failures of a node with `devices_count` devices, from those of one with `reference_devices_count` [1/s].

        r' = r (share d/d0 + 1 - share)

    The share that devices cause follows their number; host, network card and software stay with the node.

    >>> round(node_failures_per_s(1e-8, 0.6, 4.0, 8.0), 12)
    7e-09
    """
    devices_frac = device_share_frac * devices_count / reference_devices_count
    return reference_failures_per_s * (devices_frac + 1.0 - device_share_frac)


@model(id="checkpoint-bytes", sources=("rajbhandari-2020-zero",))
def checkpoint_bytes(
    parameters_count: Number, trainable_frac: Number, weight_bytes: Number, state_bytes: Number
) -> Number:
    """Size of a checkpoint [bytes]: weights of all parameters, master weights and moments of those that train.

    `weight_bytes` and `state_bytes` are those of one parameter.

    >>> checkpoint_bytes(405e9, 1.0, 2.0, 12.0) / 1e12
    5.67
    """
    return parameters_count * (weight_bytes + trainable_frac * state_bytes)


@model(id="young-checkpoint-interval", sources=("young-1974",))
def young_interval_s(write_s: Number, between_s: Number) -> Number:
    """Work between two checkpoints that loses the least, to first order [s].

        tau = sqrt(2 delta M)

    Holds where the write takes far less than the time between failures.

    >>> float(young_interval_s(5.0, 250.0))
    50.0
    """
    return np.sqrt(2 * write_s * between_s)


@model(id="daly-checkpoint-interval", sources=("daly-2006",))
def daly_interval_s(write_s: Number, between_s: Number) -> Number:
    """Work between two checkpoints that loses the least, to higher order [s].

        tau = sqrt(2 delta M) (1 + sqrt(delta / 2M) / 3 + (delta / 2M) / 9) - delta    for delta < 2 M, else M

    The time of a restart does not move it.

    >>> round(daly_interval_s(5.0, 24 * 60.0))  # minutes; the source prints 117
    117
    """
    ratio = write_s / (2 * between_s)
    series = 1 + np.sqrt(ratio) / 3 + ratio / 9  # src: daly-2006
    return np.where(ratio < 1, young_interval_s(write_s, between_s) * series - write_s, between_s)[()]


@model(id="effective-time-ratio", sources=("daly-2006", "kokolis-2024"))
def effective_time_frac(period_s: Number, blocking_s: Number, recovery_s: Number, between_s: Number) -> Number:
    """Effective training time ratio: useful steps over elapsed time.

        (period - blocking) / (M exp(R/M) (exp(period/M) - 1))

    `period_s` from one checkpoint to the next, of which `blocking_s` stops the devices; `recovery_s` from a failure to
    the point that the last complete checkpoint had reached: detection, restart, and what had been computed while that
    checkpoint was still being written. Failures may also fall into the recovery. To first order
    (1 - blocking/period) (1 - (R + period/2) / M), the closed form of the second source.

    >>> round(float(effective_time_frac(100.0, 1.0, 0.0, 1e6)), 5)  # hardly any failures: what checkpoints leave
    0.98995
    """
    work = (period_s - blocking_s) / between_s
    return work * np.exp(-(recovery_s + period_s) / between_s) / -np.expm1(-period_s / between_s)


@model(id="time-lost-to-recovery", sources=("daly-2006",))
def recovering_frac(recovery_s: Number, between_s: Number) -> Number:
    """Share of the elapsed time that passes in recoveries: 1 - exp(-R/M).

    A failure during a recovery starts it again, so that each takes M (1 - exp(-R/M)) on average.

    >>> round(float(recovering_frac(600.0, 6000.0)), 4)
    0.0952
    """
    return -np.expm1(-recovery_s / between_s)


@model(id="spares-ready", sources=("erlang-1917",), valid={"spares_count": (0, 1e5)})
def spares_ready_frac(nodes_count: float, node_failures_per_s: float, repair_s: float, spares_count: float) -> float:
    """Share of the time in which the job has all its nodes, with `spares_count` more to take the place of failed ones.

    While the job runs its nodes fail at n r; while it waits for one they do not. Repairs go on side by side, so that
    waiting is Erlang's loss with s + 1 places and the load a = n r T, whatever the repair times look like:

        1 - B(s + 1),    B(0) = 1,  B(k) = a B(k - 1) / (k + a B(k - 1))

    >>> spares_ready_frac(1000, 1e-8, 1e5, 2)
    0.9375
    """
    load = nodes_count * node_failures_per_s * repair_s
    lost = 1.0
    for places in range(1, int(spares_count) + 2):
        lost = load * lost / (places + load * lost)
    return 1.0 - lost


def spares_needed_count(nodes_count: float, node_failures_per_s: float, repair_s: float, ready_frac: float) -> int:
    """Fewest spare nodes with which the job is not short of nodes for `ready_frac` of the time.

    >>> spares_needed_count(1000, 1e-8, 1e5, 0.99)
    4
    """
    load = nodes_count * node_failures_per_s * repair_s
    lost = load / (1.0 + load)
    spares = 0
    while lost > 1.0 - ready_frac:
        spares += 1
        lost = load * lost / (spares + 1 + load * lost)
    return spares
