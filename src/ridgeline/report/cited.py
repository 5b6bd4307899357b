"""The text of `cite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from ridgeline.report.layout import fact_text, plain, table


def cite_report(cited: Mapping[str, Any]) -> Sequence[RenderableType]:
    """Assumed values with ranges, secondary values, facts by source, formulas."""
    parts: list[RenderableType] = []
    for key, title in (("assumed", "Assumed values"), ("secondary", "Values that are not the maker's")):
        if cited[key]:
            parts += [plain(title, "bold"), _facts(cited[key]), plain("")]
    parts.append(plain("Sources", "bold"))
    for source in cited["sources"]:
        where = source.get("url") or source.get("repository") or source.get("path", "")
        who = "".join(f"{source[name]}. " for name in ("authors", "publisher") if source.get(name))
        date = f" ({source['date']})" if source.get("date") else ""
        parts.append(plain(f"[{source['id']}] {who}{source['title']}{date}. {where}"))
        parts.append(plain(f"    used for: {', '.join(source['used_for'])}"))
    if cited["models"]:
        parts += [plain(""), plain("Formulas", "bold")]
        for formula in cited["models"]:
            parts.append(plain(f"{formula['id']}: {formula['title']} [{', '.join(formula['sources'])}]"))
    return parts


def _facts(facts: Sequence[Mapping[str, Any]]) -> RenderableType:
    lines = table("fact", "value", "range", "why", left=(0, 3), flexible=(3,))
    for fact in facts:
        lines.add_row(fact["id"], fact_text(fact["value"], fact["unit"]), _range(fact), plain(fact.get("why") or ""))
    return lines


def _range(fact: Mapping[str, Any]) -> str:
    low, high = fact.get("low"), fact.get("high")
    if low is None or high is None:
        return ""
    return f"{fact_text(low, fact['unit'])} to {fact_text(high, fact['unit'])}"
