"""The text of `cite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from ridgeline.report.layout import Keyed, fact_text, plain


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
    rows = [(fact["id"], _value(fact), _range(fact), _why(fact)) for fact in facts]
    return Keyed(("fact", "value", "range", "why"), rows, right=(1, 2))


def _value(fact: Mapping[str, Any]) -> str:
    return "a law" if _is_law(fact) else fact_text(fact["value"], fact["unit"])


def _is_law(fact: Mapping[str, Any]) -> bool:
    """Whether the figure is many: the parameters of a law, too long for a column."""
    return isinstance(fact["value"], (Mapping, list))


def _why(fact: Mapping[str, Any]) -> str:
    """The reason that the catalogue gives, else what it says of the figure, else its sources; of a law, where it is."""
    see = f"see `ridgeline show {fact['record'] or fact['id']}`" if _is_law(fact) else ""
    said = fact.get("why") or fact.get("basis") or fact.get("note") or fact.get("at")
    return "; ".join(text for text in (see, str(said or ", ".join(fact.get("sources") or ()))) if text)


def _range(fact: Mapping[str, Any]) -> str:
    low, high = fact.get("low"), fact.get("high")
    if low is None or high is None:
        return ""
    return f"{fact_text(low, fact['unit'])} to {fact_text(high, fact['unit'])}"
