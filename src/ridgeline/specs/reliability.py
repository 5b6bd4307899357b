"""How often machines fail, how long it takes to go on, and what storage takes a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline.core import FrozenMap, Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """What interrupts a training run on one kind of machine, and what each interruption costs.

    `node_failures_per_s`: unplanned interruptions of a job for each node that it holds, whatever their cause, of nodes
    with `reference_devices_count` devices; `device_share_frac` of them come from the devices and follow their number.
    `detect_s`: from the failure to the decision to restart. `restart_s`: from there to the next useful step where
    loading the checkpoint does not take longer by itself. `repair_s`: until a node that was taken out is back.
    `write_node_bytes_per_s` and `read_node_bytes_per_s`: shared storage for each node of the job; `storage_bytes_per_s`
    goes before them where the rate of the whole storage is known (both directions). `blocking_s`: how long an
    asynchronous checkpoint stops the devices beside copying their states to the host. `slow_frac`: share of the run
    lost to devices and links that are slow without failing, beyond the usual spread between devices.

    Decisions: `asynchronous` checkpoints; `interval_s` from one to the next (None: the best one); `spares_count`
    nodes beside those of the job (None: always enough of them).
    """

    id: str
    node_failures_per_s: Interval
    device_share_frac: Interval
    detect_s: Interval
    restart_s: Interval
    repair_s: Interval
    write_node_bytes_per_s: Interval
    read_node_bytes_per_s: Interval
    blocking_s: Interval
    slow_frac: Interval
    reference_devices_count: float
    storage_bytes_per_s: float | None = None
    asynchronous: bool = True
    interval_s: float | None = None
    spares_count: int | None = None
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def fact(self, name: str) -> str:
        """Id of the fact behind a figure; empty where the scenario gave it."""
        return self.facts.get(name, "")
