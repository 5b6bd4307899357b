"""The few building blocks of text answers: plain tables, bars, numbers with ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ridgeline.core import Interval
from ridgeline.units import show

DAY_S = 86400.0
WIDTH = 120
_WRAPS = 24  # columns of a table that are wider than this may wrap ...
_LEAST = 16  # ... down to this width
_BLOCKS = "▏▎▍▌▋▊▉█"


def table(*columns: str, left: Iterable[int] = (), flexible: Iterable[int] = (), gap: int = 2) -> Table:
    """An unboxed table; columns whose index is in `left` are set to the left, those in `flexible` may wrap."""
    found = Table(box=None, padding=(0, gap, 0, 0), header_style="bold", show_edge=False, pad_edge=False)
    lefts, wrapping = set(left), set(flexible)
    for index, name in enumerate(columns):
        found.add_column(
            escape(name),
            justify="left" if index in lefts else "right",
            no_wrap=index not in wrapping,
            overflow="fold",
            min_width=_LEAST if index in wrapping else None,
        )
    return found


class Keyed:
    """A table whose first column, an id, is never cut; longer texts beside it wrap.

    Where the screen is too narrow for that, each id stands on a line of its own with the rest below it.
    """

    def __init__(self, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> None:
        self.columns = tuple(columns)
        self.rows = [tuple(row) for row in rows]
        self._right = set(right)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or the lines, in the width of `options`."""
        widths = [
            max([cell_len(name), *(cell_len(row[index]) for row in self.rows)])
            for index, name in enumerate(self.columns)
        ]
        wide = [index for index in range(1, len(widths)) if widths[index] > _WRAPS]
        least = sum(_LEAST if index in wide else width for index, width in enumerate(widths)) + 2 * len(widths)
        if least > options.max_width:
            yield from self._lines()
            return
        lefts = [index for index in range(len(widths)) if index not in self._right]
        lines = table(*self.columns, left=lefts, flexible=wide)
        for row in self.rows:
            lines.add_row(*(plain(cell) for cell in row))
        yield lines

    def _lines(self) -> Iterable[RenderableType]:
        for key, *rest in self.rows:
            said = [f"{name}: {cell}" for name, cell in zip(self.columns[1:], rest, strict=True) if cell]
            yield plain(key, "bold")
            if said:
                yield Padding(plain("; ".join(said)), (0, 0, 0, 4))


def plain(text: str, style: str = "") -> Text:
    """Text that is printed as it stands (no markup)."""
    return Text(text, style=style)


def bar(share: float, width: int = 8) -> str:
    """A bar of `share` (0..1) of `width` characters.

    >>> bar(0.5, 4), bar(0.0), bar(1.0, 3)
    ('██', '', '███')
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_BLOCKS[rest - 1] if rest else "")


def ranged(interval: Interval | None, unit: float = 1.0, digits: int = 3) -> str:
    """A number with its 80 % range, in multiples of `unit`.

    >>> ranged(Interval(8.0, 10.0, 12.5))
    '10.0 (8.00-12.5)'
    """
    if interval is None:
        return "-"
    best, low, high = (significant(value / unit, digits) for value in (interval.best, interval.low, interval.high))
    return best if low == high else f"{best} ({low}-{high})"


def significant(number: float, digits: int = 3) -> str:
    """`number` with so many significant digits, thousands grouped.

    >>> significant(12345.6), significant(0.012345), significant(0)
    ('12,346', '0.0123', '0')
    """
    if number == 0:
        return "0"
    if abs(number) >= 1e9 or abs(number) < 1e-4:
        return f"{number:.{digits}g}"
    decimals = 0
    scaled = abs(number)
    while scaled < 10 ** (digits - 1) and decimals < 8:
        scaled *= 10
        decimals += 1
    return f"{number:,.{decimals}f}"


def scale_of(values: Iterable[float | None], steps: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of `steps` in which the largest of `values` is at least 1; the last one where none is."""
    top = max((abs(value) for value in values if value is not None), default=0.0)
    for unit, name in steps:
        if top >= unit:
            return unit, name
    return steps[-1]


MONEY_STEPS = ((1e6, "MUSD"), (1e4, "kUSD"), (1.0, "USD"))
MONEY_UNIT = {"MUSD": 1e6, "kUSD": 1e3, "USD": 1.0}
RUN_STEPS = ((2 * DAY_S, "days"), (7200.0, "hours"), (0.0, "minutes"))
RUN_UNIT = {"days": DAY_S, "hours": 3600.0, "minutes": 60.0}
ENERGY_STEPS = ((3.6e12, "GWh"), (3.6e9, "MWh"), (3.6e6, "kWh"))


_DIMENSION = {"s": "time", "B": "bytes", "W": "power", "J": "energy", "USD": "money", "B/s": "bandwidth"}


def fact_text(value: object, unit: str) -> str:
    """A figure of the catalogue for screens, in a unit of readable size.

    >>> fact_text(0.0015, "s"), fact_text(0.45, ""), fact_text("HBM3", "")
    ('1.50 ms', '0.45', 'HBM3')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if unit == "USD/s":
        return f"{value * 3600:.4g} USD/h"
    if unit in _DIMENSION:
        return show(float(value), _DIMENSION[unit])
    return f"{value:,.6g} {unit}".strip()


def counted(number: float, word: str) -> str:
    """A number with its word.

    >>> counted(1, "layout"), counted(1500, "layout")
    ('1 layout', '1,500 layouts')
    """
    return f"{number:,.0f} {word}{'' if number == 1 else 's'}"


def large(number: float) -> str:
    """A count of parameters or tokens as people say it.

    >>> large(70_553_706_496), large(1e12), large(512)
    ('70.6 B', '1 T', '512')
    """
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:,.0f}"


def time_text(seconds: float | None) -> str:
    """A time for screens."""
    return show(seconds, "time")
