"""The order of rows and the verdict of limits, the same for training and serving."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ridgeline.core import FrozenMap
from ridgeline.search.result import Infeasible, Row, SearchResult, add_counts
from ridgeline.search.terms import OBJECTIVES, Objective

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


def gathered(rows: Sequence[Row], infeasible: Sequence[Infeasible], tried_count: int) -> SearchResult[Row]:
    """Rows (already in order) and what was infeasible as one result, rejected layouts added up by reason."""
    counts = add_counts([*(row.rejected for row in rows), *(item.rejected for item in infeasible)])
    return SearchResult(rows=tuple(rows), infeasible=tuple(infeasible), rejected=counts, tried_count=tried_count)


def counted(rejected: dict[str, int]) -> FrozenMap[str, int]:
    """Counts of one machine, the most frequent first."""
    return add_counts([rejected])
