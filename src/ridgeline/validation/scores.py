"""Statistics of predictions against measurements, the same for every kind of validation.

Errors are on speed (rates as they are, times inverted) or on the quantity itself (memory, power): with
r = predicted / measured, `ape` is |r - 1| and `bias` is median(r) - 1, so a positive bias is too fast or too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Rank agreement is only meaningful within a set that has so many rows (corpus convention).
MIN_SPEARMAN_ROWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRow:
    """One row of the corpus with its prediction; `measured`, `predicted`, `low`, `high` and `baseline` are in `unit`.

    `is_time` rows are inverted before errors are taken. `baseline` is None where no naive figure can be made.
    """

    id: str
    source: str
    device: str
    family: str
    metric: str
    unit: str
    measured: float
    predicted: float
    low: float
    high: float
    baseline: float | None = None
    is_time: bool = False
    fills: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Predicted over measured, on speed."""
        return self.measured / self.predicted if self.is_time else self.predicted / self.measured

    @property
    def baseline_ratio(self) -> float | None:
        """The same for the naive figure."""
        if self.baseline is None or self.baseline <= 0:
            return None
        return self.measured / self.baseline if self.is_time else self.baseline / self.measured

    @property
    def covered(self) -> bool:
        """Whether the measurement lies in the 80 % interval."""
        return self.low <= self.measured <= self.high


@dataclass(slots=True)
class Report:
    """What one validation run found: scored rows and the counted reasons of the others."""

    kind: str
    file: str
    rows_count: int
    scored: list[ScoredRow] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        """Count one row that was not scored."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def to_dict(self) -> dict[str, Any]:
        """The object that `ridgeline validate --json` prints."""
        reasons = sorted(self.skipped.items(), key=lambda item: (-item[1], item[0]))
        return {
            "kind": self.kind,
            "file": self.file,
            "schema_version": 1,
            "rows": self.rows_count,
            "skipped": [{"reason": reason, "count": count} for reason, count in reasons],
            **summary(self.scored),
            "by": {
                "source": grouped(self.scored, lambda row: row.source),
                "device": grouped(self.scored, lambda row: row.device),
                "family": grouped(self.scored, lambda row: row.family),
            },
        }


def grouped(rows: Sequence[ScoredRow], key: Callable[[ScoredRow], str]) -> dict[str, Any]:
    """`summary` of each group of rows, by name."""
    groups: dict[str, list[ScoredRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: summary(groups[name]) for name in sorted(groups)}


def summary(rows: Sequence[ScoredRow]) -> dict[str, Any]:
    """Count, errors, bias, coverage, rank agreement and baseline of some rows; null where there is nothing."""
    errors = [abs(row.ratio - 1) for row in rows]
    base = [abs(ratio - 1) for row in rows if (ratio := row.baseline_ratio) is not None]
    return {
        "scored": len(rows),
        "median_ape": _quantile(errors, 0.5),
        "mean_ape": float(np.mean(errors)) if errors else None,
        "p90_ape": _quantile(errors, 0.9),
        "bias": _minus_one(_quantile([row.ratio for row in rows], 0.5)),
        "coverage_80": float(np.mean([row.covered for row in rows])) if rows else None,
        "spearman": spearman_by_set(rows),
        "baseline": {"median_ape": _quantile(base, 0.5), "p90_ape": _quantile(base, 0.9)},
    }


def spearman_by_set(rows: Iterable[ScoredRow]) -> float | None:
    """Rank correlation within each (source, metric) set of enough rows, averaged by rows; None without any."""
    sets: dict[tuple[str, str], list[ScoredRow]] = {}
    for row in rows:
        sets.setdefault((row.source, row.metric), []).append(row)
    weighted, weight = 0.0, 0
    for members in sets.values():
        if len(members) < MIN_SPEARMAN_ROWS:
            continue
        rho = spearman([row.measured for row in members], [row.predicted for row in members])
        if rho is not None:
            weighted += rho * len(members)
            weight += len(members)
    return weighted / weight if weight else None


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation with mean ranks for ties; None where one side does not vary.

    >>> spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    a, b = _ranks(first), _ranks(second)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.round(np.corrcoef(a, b)[0, 1], 12))


def _ranks(values: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = np.asarray(values, dtype=float)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: np.ndarray[Any, np.dtype[np.float64]] = (ends - (counts - 1) / 2.0)[inverse]
    return means


def _quantile(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None


def _minus_one(value: float | None) -> float | None:
    return None if value is None else value - 1
