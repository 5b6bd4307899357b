"""The clock that power leaves under a steady stream of equal steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline.core import model as formula
from ridgeline.device import OpTime
from ridgeline.device.settled import sustained_clock_frac
from ridgeline.serving.job import ServingJob
from ridgeline.serving.work import op_flop
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, ComputeOp, Elementwise


@dataclass(slots=True)
class Heat:
    """Work of the matrix units in a step: seconds at peak by precision, and the time of kernels that they bound."""

    busy_s: dict[str, float] = field(default_factory=dict)
    bound_s: float = 0.0

    def add(self, op: ComputeOp, count: float, kernel: OpTime, job: ServingJob) -> None:
        """Count `count` kernels."""
        if isinstance(op, Elementwise):
            return
        precision = op.precision if isinstance(op, (AttentionDecode, AttentionPrefill)) else op.math_precision
        self.busy_s[precision] = self.busy_s.get(precision, 0.0) + count * op_flop(op) / job.system.chip.peak(precision)
        if kernel.bound == "compute":
            self.bound_s += count * kernel.time_s

    def slower_s(self, device_s: float, job: ServingJob) -> float:
        """What the lower clock adds to a step that takes `device_s` at the full one."""
        busy_s = sum(self.busy_s.values())
        if busy_s <= 0 or self.bound_s <= 0:
            return 0.0
        chip = job.system.chip
        kept = sum(part * sustained_clock_frac(job.calibration, chip, name) for name, part in self.busy_s.items())
        return lower_clock_s(self.bound_s, busy_s / device_s, kept / busy_s)


@formula(id="sustained-clock", sources=("ridgeline-kernel-laws", "rl-derivation"))
def lower_clock_s(bound_s: float, busy_frac: float, kept_frac: float) -> float:
    """Time that kernels bound by the matrix units (`bound_s`) lose to the power cap under a steady stream of steps.

    The power controller sees the mean of a step: with the matrix units busy for a share u of it (at peak rate), the
    clock falls as in an endless product of that share, 1 + u^2 (1 / kept - 1), where `kept_frac` is the share of the
    clock left under endless products. Steps that wait for memory, exchange or host are not slowed.

    >>> round(lower_clock_s(1.0, 0.5, 0.8), 4)
    0.0625
    """
    return bound_s * busy_frac**2 * (1.0 / kept_frac - 1.0)
