"""How busy the chips of a serving system are, for their power."""

from __future__ import annotations

from ridgeline.power.estimate import Activity
from ridgeline.serving import ServingEstimate
from ridgeline.specs import Chip


def serving_activity(chip: Chip, estimate: ServingEstimate) -> Activity:
    """The activity of a chip that serves without a pause, from the work and traffic of `estimate`.

    Gaps in which the host prepares a step are shorter than a clock governor reacts in, so that the chip is at work all
    the time; while it exchanges with other chips its units rest (`waiting_frac`). Raises `MissingFact` where the peak
    or the bandwidth of the chip is not known.
    """
    wanted = estimate.plan.activation_precision
    peak = chip.peak(wanted if chip.has_peak(wanted) else "bf16", "activity of the matrix units")
    bandwidth = chip.need("memory_bandwidth_bytes_per_s", "activity of the memory")
    step_s = estimate.step.value
    exchanged = estimate.step.value_of("communication") / step_s if step_s > 0 else 0.0
    return Activity(
        compute_frac=min(1.0, estimate.flop_per_s_per_device / peak),
        memory_frac=min(1.0, estimate.memory_bytes_per_s_per_device / bandwidth),
        waiting_frac=min(1.0, exchanged),
    )
