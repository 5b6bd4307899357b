"""Scoring peak memory: the rows of a memory file say the measured peak of training rows, by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ridgeline.catalog import Catalog
from ridgeline.core import Breakdown, Interval, quadrature
from ridgeline.errors import ScenarioError
from ridgeline.training.memory import CONTEXT, SLACK, STATES
from ridgeline.validation.corpus import Row, read_rows
from ridgeline.validation.each_row import Unscored, check_ranges, score_each
from ridgeline.validation.scores import Report, ScoredRow
from ridgeline.validation.training import FILL_SIGMA, estimate_of

UNITS_BYTES = {"GB": 1e9, "GiB": 2.0**30, "MB": 1e6, "MiB": 2.0**20, "B": 1.0}
# Spread of what an allocator holds above what a plan needs: two caching allocators' reserved over allocated peaks
# in published runs lie between 1.0 and 1.3: assumed.
ALLOCATOR_SIGMA = 0.10
# Parts of the tree that a reading of what the allocator has reserved, or of "allocated" tensors, does not see.
OUTSIDE_RESERVED = (CONTEXT,)
OUTSIDE_ALLOCATOR = (CONTEXT, SLACK)


def score_memory(path: str, catalog: Catalog, training: str | None = None) -> Report:
    """Predicted peaks for every row of a memory file whose training row is found and states enough.

    `training`: the file with those rows; `training.csv` beside `path` where None.
    """
    rows = read_rows(path, "memory")
    beside = Path(training) if training else Path(path).parent / "training.csv"
    if not beside.exists():
        raise ScenarioError(f"{beside}: no such file; name the training rows of {path} with --training FILE")
    by_id = {row.id: row for row in read_rows(beside, "training")}
    return score_each("memory", rows, path, lambda row: score_row(row, by_id, catalog))


def score_row(row: Row, by_id: dict[str, Row], catalog: Catalog) -> ScoredRow:
    """One row with its prediction."""
    run = by_id.get(row.id)
    if run is None:
        raise Unscored("no training row of this id")
    check_ranges(run)
    scale, peak = UNITS_BYTES.get(row.text("unit")), row.number("peak_mem")
    if scale is None or not peak:
        raise Unscored("no value")
    estimate, fills = estimate_of(run, catalog)
    predicted = seen_bytes(estimate.memory, row.text("kind"))
    interval = Interval.from_sigma(predicted, quadrature(ALLOCATOR_SIGMA, *(FILL_SIGMA for _ in fills)))
    states = sum(estimate.memory.value_of(name) for name in STATES)
    return ScoredRow(
        id=row.id,
        source=row.source,
        device=run.text("device"),
        family=run.text("family") or "llm",
        metric="peak_memory_bytes",
        unit="B",
        measured=peak * scale,
        predicted=interval.best,
        low=interval.low,
        high=interval.high,
        baseline=states or None,
        fills=tuple(fills),
        notes=tuple(note.text for note in estimate.notes),
    )


def seen_bytes(memory: Breakdown, kind: str) -> float:
    """What a reading of this kind sees: the driver everything, the allocator not the context, tensors no reserve."""
    hidden: Sequence[str] = ()
    if "reserved" in kind:
        hidden = OUTSIDE_RESERVED
    elif "allocated" in kind or kind == "peak":
        hidden = OUTSIDE_ALLOCATOR
    return memory.value - sum(memory.value_of(name) for name in hidden)
