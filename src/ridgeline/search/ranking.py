"""The order of rows and the verdict of limits, the same for training and serving."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ridgeline.core import FrozenMap, Interval, Note
from ridgeline.errors import MissingFact
from ridgeline.facility import FacilityEstimate, energy_at_meter
from ridgeline.power import PowerEstimate
from ridgeline.search.result import Infeasible, Row, SearchResult, add_counts
from ridgeline.search.terms import OBJECTIVES, Machine, Objective
from ridgeline.specs import Site, System

Found = TypeVar("Found")


def ordered(rows: Iterable[Row], objective: Objective, keys: Callable[[Row], dict[Objective, float]]) -> list[Row]:
    """Rows from best to worst under `objective`; ties by the other objectives, then by name and size.

    `keys` gives the value of each objective for a row, infinite where it is not known: such rows come last.
    """
    order: Sequence[Objective] = (
        objective,
        *(name for name in OBJECTIVES if name != objective),
    )

    def key(row: Row) -> tuple[float | str | int, ...]:
        values = keys(row)
        numbers: list[float] = [values[name] if math.isfinite(values[name]) else math.inf for name in order]
        return (*numbers, row.system.id, row.devices_count, row.plan.label())

    return sorted(rows, key=key)


def energy_of(
    power: Callable[[], PowerEstimate], time_s: Interval, site: Site
) -> tuple[PowerEstimate | None, FacilityEstimate | None, str]:
    """Power and energy; None for both and the id of the fact where a figure that power needs is missing."""
    try:
        found = power()
    except MissingFact as error:
        return None, None, error.fact_id
    return found, energy_at_meter(found.total_w, time_s, site), ""


def power_note(system: System, missing: str) -> tuple[Note, ...]:
    """What is left out where power is not known."""
    if not missing:
        return ()
    text = f"power of {system.id} is not known (missing fact {missing}): energy and the cost of owning are left out"
    return (Note("missing", text, (missing,)),)


def gathered(
    rows: Sequence[Row], infeasible: Sequence[Infeasible], tried_count: int, unsearched: Sequence[str] = ()
) -> SearchResult[Row]:
    """Rows (already in order) and what was infeasible as one result, rejected layouts added up by reason."""
    counts = add_counts([*(row.rejected for row in rows), *(item.rejected for item in infeasible)])
    return SearchResult(
        rows=tuple(rows),
        infeasible=tuple(infeasible),
        rejected=counts,
        tried_count=tried_count,
        unsearched=tuple(unsearched),
    )


def until_stopped(machines: Sequence[Machine], search: Callable[[Machine], None]) -> list[str]:
    """Search each machine; on an interrupt the names of those that were not finished. Nothing found: the interrupt."""
    for index, machine in enumerate(machines):
        try:
            search(machine)
        except KeyboardInterrupt:
            if index == 0:
                raise
            return [f"{left.system.id} x {left.devices_count}" for left in machines[index:]]
    return []


def counted(rejected: dict[str, int]) -> FrozenMap[str, int]:
    """Counts of one machine, the most frequent first."""
    return add_counts([rejected])
