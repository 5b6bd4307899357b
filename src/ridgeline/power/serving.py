"""How busy the chips of a serving system are, for their power."""

from __future__ import annotations

from ridgeline.power.estimate import Activity
from ridgeline.serving import ServingEstimate
from ridgeline.specs import Chip


def serving_activity(chip: Chip, estimate: ServingEstimate) -> Activity:
    """The activity of a chip that serves, from the work and traffic of `estimate`.

    Gaps in which the host prepares a step are shorter than a clock governor reacts in: while there are requests the
    chip is at work, and while it exchanges with other chips its units rest (`waiting_frac`). Raises `MissingFact`
    where the peak or the bandwidth of the chip is not known.
    """
    wanted = estimate.plan.activation_precision
    peak = chip.peak(wanted if chip.has_peak(wanted) else "bf16", "activity of the matrix units")
    bandwidth = chip.need("memory_bandwidth_bytes_per_s", "activity of the memory")
    step = estimate.step
    host_s = max(0.0, step.value_of("host") + step.value_of("hidden behind the device"))
    device_frac = max(1e-9, 1.0 - host_s / step.value)  # src: rl-numerics
    at_work = min(1.0, max(1e-9, estimate.device_busy_frac / device_frac))  # src: rl-numerics
    return Activity(
        compute_frac=min(1.0, estimate.flop_per_s_per_device / at_work / peak),
        memory_frac=min(1.0, estimate.memory_bytes_per_s_per_device / at_work / bandwidth),
        busy_frac=at_work,
        waiting_frac=min(1.0, step.value_of("communication") / step.value),
        serves=True,
    )
