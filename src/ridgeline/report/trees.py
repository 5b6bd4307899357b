"""A breakdown tree as an indented table with shares and bars: a waterfall that adds up."""

from __future__ import annotations

from rich.table import Table

from ridgeline.core import Breakdown
from ridgeline.report.layout import bar, table
from ridgeline.units import show

_DIMENSION = {"s": "time", "B": "bytes", "W": "power", "J": "energy", "USD": "money"}
# Parts below this share of the whole are drawn together as "smaller parts".
_SMALL = 0.005


def tree_table(tree: Breakdown, title: str, *, whole: float | None = None, everything: bool = False) -> Table:
    """Every part of `tree` with its value, its share of `whole` (of the tree itself if None) and a bar.

    Parts below half a percent are added up in one line unless `everything`.
    """
    found = table(title, "", "", "", left=(0, 3), gap=1)
    reference = tree.value if whole is None else whole
    for part in tree.parts:
        _add(found, part, reference, 0, everything)
    found.add_row("[bold]total[/]", f"[bold]{_value(tree)}[/]", _share(tree.value, reference), "")
    return found


def _add(found: Table, node: Breakdown, whole: float, depth: int, everything: bool) -> None:
    style = "" if depth else "bold"
    drawn = bar(node.value / whole) if whole and not node.parts else ""
    name = f"{'  ' * depth}{node.name}" + (" (largest of)" if node.how == "max" else "")
    found.add_row(name, _value(node), _share(node.value, whole), drawn, style=style if node.parts else "")
    small = [part for part in node.parts if not everything and whole and abs(part.value) < _SMALL * whole]
    for part in node.parts:
        if len(small) < 2 or part not in small:
            _add(found, part, whole, depth + 1, everything)
    if len(small) >= 2:
        value = sum(part.value for part in small)
        found.add_row(
            f"{'  ' * (depth + 1)}{len(small)} smaller parts", show(value, _dimension(node)), _share(value, whole), ""
        )


def _value(node: Breakdown) -> str:
    return show(node.value, _dimension(node))


def _dimension(node: Breakdown) -> str:
    return _DIMENSION.get(node.unit, "count")


def _share(value: float, whole: float) -> str:
    return f"{100 * value / whole:.1f} %" if whole else ""
