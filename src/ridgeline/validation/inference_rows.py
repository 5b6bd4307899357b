"""Going through the rows of an inference file: what is out of range is told before it is computed."""

from __future__ import annotations

from collections.abc import Callable

from ridgeline.errors import RidgelineError
from ridgeline.validation.corpus import Row
from ridgeline.validation.scores import Report, ScoredRow
from ridgeline.validation.training_rows import Unscored

# Least and most that a stated number can mean; what is no number is read elsewhere ("max load", "Offline").
RANGES: dict[str, tuple[float, float]] = {
    "n_devices": (1, 1e6),
    "tp": (1, 1e4),
    "pp": (1, 1e4),
    "ep": (1, 1e4),
    "batch_or_concurrency": (1, 1e6),
    "batch": (1, 1e6),
    "input_len": (0, 1e8),
    "output_len": (0, 1e8),
}


def check_ranges(row: Row) -> None:
    """`Unscored` where a stated number cannot be.

    >>> check_ranges(Row({"n_devices": "8", "tp": ""}, 2))
    """
    for column, (least, most) in RANGES.items():
        value = row.number(column)
        if value is not None and not least <= value <= most:
            raise Unscored(f"{column} {row.text(column)[:20]!r} is out of range")


def score_each(rows: list[Row], path: str, score: Callable[[Row], ScoredRow]) -> Report:
    """A report of all rows; a row that cannot be scored is counted by its reason and takes no other with it."""
    report = Report("inference", path, len(rows))
    for row in rows:
        try:
            check_ranges(row)
            report.scored.append(score(row))
        except Unscored as reason:
            report.skip(str(reason))
        except RidgelineError as error:
            report.skip(f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
        except (ArithmeticError, ValueError) as error:
            report.skip(f"not computable: {type(error).__name__}: {str(error)[:80]}")
    return report
