"""Going through the rows of a file: what cannot be is told before it is computed, and no row takes another with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeline.errors import RidgelineError
from ridgeline.validation.corpus import Row
from ridgeline.validation.scores import Report, ScoredRow

# Least and most that a stated number can mean; what is no number is read elsewhere ("max load", "32,64").
COUNTS: dict[str, tuple[float, float]] = {
    "layers": (1, 1e4),
    "hidden": (1, 1e6),
    "heads": (1, 1e4),
    "kv_heads": (1, 1e4),
    "ffn_hidden": (1, 1e7),
    "vocab": (1, 1e8),
    "seq_len": (1, 1e8),
    "experts": (1, 1e5),
    "topk": (1, 1e5),
    "n_devices": (1, 1e6),
    "devices_per_node": (1, 1e4),
    "tp": (1, 1e4),
    "pp": (1, 1e4),
    "vpp": (1, 1e3),
    "dp": (1, 1e6),
    "ep": (1, 1e4),
    "cp": (1, 1e4),
    "micro_batch": (1, 1e6),
    "global_batch": (1, 1e8),
    "n_gpus": (1, 1e6),
    "accelerators_per_node": (1, 1e4),
}
RANGES: dict[str, tuple[float, float]] = {
    **COUNTS,
    "params_b": (1e-6, 1e6),
    "batch_or_concurrency": (1, 1e6),
    "batch": (1, 1e6),
    "batch_size": (1, 1e6),
    "input_len": (0, 1e8),
    "output_len": (0, 1e8),
    "value": (1e-12, 1e15),
    "peak_mem": (1e-6, 1e18),
}


class Unscored(Exception):
    """A row that cannot be scored, with the reason under which it is counted."""


def check_ranges(row: Row) -> None:
    """`Unscored` where a stated number cannot be.

    >>> check_ranges(Row({"n_devices": "8", "tp": ""}, 2))
    """
    for column, (least, most) in RANGES.items():
        value = row.number(column)
        if value is None:
            if _is_no_finite_number(row.text(column)):
                raise Unscored(f"{column} {row.text(column)[:20]!r} is out of range")
        elif not least <= value <= most:
            raise Unscored(f"{column} {row.text(column)[:20]!r} is out of range")
        elif column in COUNTS and value != int(value):
            raise Unscored(f"{column} {row.text(column)[:20]!r} is no whole number")


def _is_no_finite_number(text: str) -> bool:
    """Whether `text` is a number that no cell can mean: nan, or beyond all bounds."""
    try:
        return not abs(float(text)) < float("inf")
    except ValueError:
        return False


def score_each(kind: str, rows: Sequence[Row], path: str, score: Callable[[Row], ScoredRow]) -> Report:
    """A report of all rows; a row that cannot be scored is counted by its reason."""
    report = Report(kind, path, len(rows))
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
