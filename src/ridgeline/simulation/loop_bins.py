"""State over time in a bounded number of intervals, and the distribution of times between tokens.

Levels (waiting, running, blocks, replicas) are kept as changes and their moments, so that a change costs the same
however long the level then lasts; flows (steps, busy time, tokens) are spread over the intervals that a run covers.
When time outgrows the intervals, neighbours are merged.
"""

from __future__ import annotations

from typing import Any

from ridgeline.des.compiled import compiled
from ridgeline.simulation import loop_law as law
from ridgeline.simulation.loop_layout import (
    BIN,
    BINS,
    FLOWS,
    FLOWS_COUNT,
    GAPS,
    LEVELS_COUNT,
    REPLICA,
    RUN_END,
    RUN_START,
    X_BINS,
    X_GAPS,
    X_REPLICA,
)

_FIRST = 2 * LEVELS_COUNT
_cell = law.cell


@compiled
def reach(x: Any, n: Any, time_s: float) -> None:
    """Merge intervals until the last one ends after `time_s`."""
    base, count = n[X_BINS], n[BINS]
    while time_s >= x[base] * count:
        width = x[base]
        for j in range(count):
            to, one, two = base + 1 + j * BIN, base + 1 + 2 * j * BIN, base + 1 + (2 * j + 1) * BIN
            for k in range(BIN):
                if 2 * j >= count:
                    x[to + k] = 0.0
                elif LEVELS_COUNT <= k < _FIRST:
                    x[to + k] = x[one + k] + x[one + k - LEVELS_COUNT] * width + x[two + k]
            for k in range(BIN):
                if 2 * j < count and not LEVELS_COUNT <= k < _FIRST:
                    x[to + k] = x[one + k] + x[two + k]
        x[base] = 2.0 * width


@compiled
def add_level(x: Any, n: Any, level: int, time_s: float, change: float) -> None:
    """Change a level at `time_s`."""
    reach(x, n, time_s)
    width = x[n[X_BINS]]
    j = int(time_s / width)
    at = 1 + j * BIN + level
    x[n[X_BINS] + at] += change
    x[n[X_BINS] + at + LEVELS_COUNT] += change * ((j + 1) * width - time_s)


@compiled
def add_run(x: Any, n: Any, r: int) -> None:
    """Spread the flows of the run of replica `r` over the intervals that it covers, and clear them."""
    at = n[X_REPLICA] + r * REPLICA
    start_s, end_s = x[at + RUN_START], x[at + RUN_END]
    reach(x, n, end_s)
    width = x[n[X_BINS]]
    first, last = int(start_s / width), int(end_s / width)
    if first == last or end_s <= start_s:
        for k in range(FLOWS_COUNT):
            x[n[X_BINS] + 1 + last * BIN + _FIRST + k] += x[at + FLOWS + k]
            x[at + FLOWS + k] = 0.0
        return
    each = 1.0 / (end_s - start_s)
    for j in range(first, last + 1):
        share = (min(end_s, (j + 1) * width) - max(start_s, j * width)) * each
        for k in range(FLOWS_COUNT):
            x[n[X_BINS] + 1 + j * BIN + _FIRST + k] += share * x[at + FLOWS + k]
    for k in range(FLOWS_COUNT):
        x[at + FLOWS + k] = 0.0


@compiled
def add_gap(x: Any, n: Any, gap_s: float, count: float) -> None:
    """Count `count` times of `gap_s` between two tokens of a request."""
    edges = n[GAPS]
    at = n[X_GAPS]
    x[at + edges + _cell(x, at, edges, gap_s)] += count
