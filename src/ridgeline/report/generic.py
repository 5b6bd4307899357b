"""Any plain data as text: nested mappings as indented lines, lists of mappings as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding

from ridgeline.report.layout import plain, significant, table
from ridgeline.units import show

_MAX_COLUMNS = 9


def data_report(data: Mapping[str, Any], indent: int = 0) -> Sequence[RenderableType]:
    """`data` as lines `key: value`; numbers with four digits, what is empty left out."""
    parts: list[RenderableType] = []
    for key, value in data.items():
        parts += _entry(str(key), value, indent)
    return parts


def _entry(key: str, value: Any, indent: int) -> list[RenderableType]:
    if isinstance(value, Mapping):
        if value and all(_is_record(item) for item in value.values()):
            rows = [{key: name, **_flat(item)} for name, item in value.items()]
            return [plain(""), Padding(_table(rows), (0, 0, 0, indent))]
        return [_line(key, indent), *data_report(value, indent + 2)] if value else []
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return [_line(key, indent), Padding(_table(value), (0, 0, 0, indent + 2))]
    if value in ("", [], None):
        return []
    text = _text(value)
    if key.endswith("_bytes") and isinstance(value, (int, float)) and abs(value) >= 1e6:
        text += f"  ({show(value, 'bytes')})"
    return [_line(f"{key}: {text}", indent)]


def _is_record(data: Any) -> bool:
    """Whether `data` is a mapping with figures of its own, not only further mappings."""
    return isinstance(data, Mapping) and any(not isinstance(item, Mapping) for item in data.values())


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by blanks."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key} ")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _line(text: str, indent: int) -> RenderableType:
    return Padding(plain(text), (0, 0, 0, indent))


def _table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Rows with one column a key; text to the left and wrapped, figures to the right."""
    names = list(dict.fromkeys(name for row in rows for name in row))[:_MAX_COLUMNS]
    texts = [index for index, name in enumerate(names) if any(isinstance(row.get(name), str) for row in rows)]
    lines = table(*names, left=texts, flexible=texts)
    for row in rows:
        lines.add_row(*(plain(_text(row.get(name))) for name in names))
    return lines


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return "-" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else significant(value, 4)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    return str(value)
