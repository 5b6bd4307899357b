"""Device counts to try on one system: whole nodes, slices that exist, no more than the system can have."""

from __future__ import annotations

from ridgeline.errors import BadPlan
from ridgeline.scenario.quantities import Sizes
from ridgeline.specs import System


def expand(sizes: Sizes, system: System, where: str) -> tuple[int, ...]:
    """The counts of devices that `sizes` means on `system`, in order.

    A range gives doublings in whole nodes (of the slices that exist where only some do). A single count is
    taken as it stands if it is part of one node, a whole number of nodes, or a slice that exists; `BadPlan` otherwise.
    """
    if sizes.doubling:
        return _doublings(sizes.values[0], sizes.values[-1], system, where)
    for count in sizes.values:
        _check(count, system, where)
    return sizes.values


def _doublings(low: int, high: int, system: System, where: str) -> tuple[int, ...]:
    limit = min(high, system.max_devices_count or high)
    if system.sizes_count:
        counts = [count for count in sorted(system.sizes_count) if low <= count <= limit]
    else:
        counts = []
        count = low if low < system.devices_per_node_count else _whole_nodes(low, system)
        while count <= limit:
            counts.append(count)
            doubled = 2 * count
            count = doubled if doubled < system.devices_per_node_count else _whole_nodes(doubled, system)
    if not counts:
        raise BadPlan(
            f"{where}: no size of {system.id} lies in {low}..{high} ({_sizes_text(system, low)})",
        )
    return tuple(counts)


def _check(count: int, system: System, where: str) -> None:
    top = system.max_devices_count
    if top is not None and count > top:
        raise BadPlan(f"{where}: got {count} devices, {system.id} has at most {top}")
    if system.sizes_count:
        if count not in system.sizes_count and count > system.devices_per_node_count:
            raise BadPlan(f"{where}: {system.id} has no slice of {count} devices ({_sizes_text(system, count)})")
        return
    node = system.devices_per_node_count
    if count > node and count % node:
        raise BadPlan(f"{where}: got {count} devices, not whole nodes of {node} ({_sizes_text(system, count)})")


def _sizes_text(system: System, count: int) -> str:
    if system.sizes_count:
        near = sorted(system.sizes_count, key=lambda size: (abs(size - count), size))[:3]
        return f"nearest sizes: {', '.join(str(size) for size in sorted(near))}"
    node = system.devices_per_node_count
    below, above = count // node * node, _whole_nodes(count, system)
    near_counts = sorted({size for size in (below, above) if size > 0})
    top = f", at most {system.max_devices_count}" if system.max_devices_count else ""
    return f"nearest sizes: {', '.join(str(size) for size in near_counts)}{top}"


def _whole_nodes(count: int, system: System) -> int:
    node = system.devices_per_node_count
    return -(-count // node) * node
