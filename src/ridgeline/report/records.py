"""The text of `list` and `show`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from ridgeline.report.generic import data_report
from ridgeline.report.layout import Keyed, fact_text, plain, table


def list_report(listed: Mapping[str, Any]) -> Sequence[RenderableType]:
    """Ids with names and aliases."""
    rows = [(item["id"], item["name"], ", ".join(item["aliases"])) for item in listed["records"]]
    return [Keyed(("id", "name", "aliases"), rows), plain(f"{len(listed['records'])} {listed['kind']}")]


def show_report(shown: Mapping[str, Any]) -> Sequence[RenderableType]:
    """Figures of a record with kind and source of each, prices, then the rest."""
    parts: list[RenderableType] = [plain(f"{shown['id']}  {shown.get('name', '')}  ({shown['record']})", "bold")]
    skip = {"record", "id", "name", "facts", "missing", "schema_version"}
    if shown["record"] != "prices":  # a price record lists its own prices, as data
        skip.add("prices")
    parts += data_report({key: value for key, value in shown.items() if key not in skip})
    if shown.get("missing"):
        parts.append(plain(f"no source gives: {', '.join(shown['missing'])}"))
    if shown.get("facts"):
        parts += [plain(""), _facts(shown["facts"])]
    if shown.get("prices") and "prices" in skip:
        parts += [plain(""), _prices(shown["prices"])]
    return parts


def _facts(facts: Sequence[Mapping[str, Any]]) -> RenderableType:
    lines = table("fact", "value", "kind", "source", "note", left=(0, 1, 2, 3, 4), flexible=(1, 3, 4))
    for fact in facts:
        plain_year = fact["key"].endswith("year")  # no thousands in a year
        text = f"{fact['value']:.0f}" if plain_year else fact_text(fact["value"], fact.get("unit", ""))
        written = str(fact.get("written") or text)
        note = fact.get("note") or fact.get("why") or ""
        lines.add_row(fact["key"], plain(written), fact["kind"], plain(fact.get("source", "")), plain(note))
    return lines


def _prices(prices: Sequence[Mapping[str, Any]]) -> RenderableType:
    lines = table("price a device", "", "provider", "date", "note", left=(0, 2, 3, 4), flexible=(4,))
    for price in prices:
        amount = f"{price['usd_per_hour']:.4g} USD/h" if price["usd"] is None else f"{price['usd']:,.0f} USD"
        lines.add_row(price["kind"], amount, plain(price["provider"]), price["date"], plain(price["note"]))
    return lines
