"""One-off conversion of a collected price table into catalogue YAML: `import_prices.py FOLDER [--data DIR]`.

FOLDER holds prices.csv and tariffs.yaml. Rows of one instance type become one file in prices/; egress, electricity,
PUE and colocation rows and the tariffs become free records in tariffs/. Run after import_facts.py.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml
from import_facts import DATA, USED, as_list, cite, clean, fact_line, scalar, write_sources

HERE = Path(__file__).parent
RULES: dict[str, Any] = yaml.safe_load((HERE / "import_price_rules.yaml").read_text())
TERMS = {"on_demand": "on-demand", "reserved_1yr": "reserved-1y", "reserved_3yr": "reserved-3y", "spot": "spot"}
Row = dict[str, str]


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def dated(row: Row) -> dict[str, Any]:
    return {"date": row["date"]} if row["date"] else {}


def base_instance(row: Row) -> str:
    return re.sub(r" \((capacity block|flex-start|calendar)\)", "", row["instance"])


def count_of(row: Row) -> int:
    found = re.match(r"(\d+)x ", row["device"], re.IGNORECASE)
    return int(found.group(1)) if found else int(row["count"] or 0)


def entries(row: Row) -> list[dict[str, Any]]:
    """The prices of one row, each a fact with its term."""
    cited = cite(row["source"])
    note = clean(row["note"])
    found = []
    for column, term in TERMS.items():
        value = row[column]
        if not value:
            continue
        if row["kind"] == "purchase":
            term = "purchase"
        elif term == "on-demand" and ("capacity block" in row["instance"] or "Capacity Block" in note):
            term = "capacity-block"
        elif term == "reserved-1y" and "term not stated" in note:
            term = "reserved"
        extra = re.search(r"\((flex-start|calendar)\)", row["instance"])
        remarks = [x for x in (extra.group(1) if extra else "", note, "" if row["date"] else "date not stated") if x]
        unit = "USD" if term == "purchase" else "USD/h"
        fact: dict[str, Any] = {"term": term, **amount(value, unit), **cited, **dated(row)}
        if remarks:
            fact["note"] = "; ".join(remarks)
        found.append(fact)
    return found


def amount(value: str, unit: str) -> dict[str, str]:
    """A figure, or the middle of a range with its ends."""
    if "-" in value:
        low, high = (float(part) for part in value.split("-"))
        return {"v": f"{(low + high) / 2:g} {unit}", "lo": f"{low:g} {unit}", "hi": f"{high:g} {unit}"}
    return {"v": f"{float(value):.10g} {unit}"}


def write_prices(rows: list[Row], data: Path) -> None:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] in ("cloud", "purchase"):
            groups[row["provider"], base_instance(row)].append(row)
    for (provider, instance), group in groups.items():
        first = group[0]
        record: dict[str, Any] = {"id": slug(f"{provider} {instance}")}
        system = RULES["systems"].get(instance, slug(instance))
        if (data / "systems" / f"{system}.yaml").exists():
            record["system"] = system
        record["instance"] = instance
        device = RULES["devices"].get(f"{provider}/{instance}") or RULES["labels"].get(first["device"])
        if device:
            record["device"] = device
        count = max(count_of(row) for row in group)
        if count > 1:
            record["devices"] = count
        record["provider"] = provider
        if "us-east-1" in first["note"] + first["source"]:
            record["region"] = "us-east-1"
        if instance in RULES["notes"]:
            record["note"] = RULES["notes"][instance]
        lines = [f"{key}: {scalar(value)}" for key, value in record.items()] + ["prices:"]
        for row in group:
            for fact in entries(row):
                term = fact.pop("term")
                lines.append("  - " + fact_line(fact).replace("{", f"{{term: {term}, ", 1))
        (data / "prices" / f"{record['id']}.yaml").write_text("\n".join(lines) + "\n")


def write_tables(rows: list[Row], data: Path) -> None:
    """Egress, electricity, PUE and colocation: one free record each, one fact a row."""
    names = {
        "egress": ("Traffic out of a cloud", "USD per GB"),
        "electricity": ("Electricity prices, averages", ""),
        "pue": ("Facility overhead (PUE)", ""),
        "colo": ("Colocation", "per server"),
    }
    for kind, (name, remark) in names.items():
        lines = [f"id: {kind}", f"name: {name}", "facts:"]
        for row in rows:
            if row["kind"] != kind:
                continue
            value, unit = row["on_demand"], row["unit"]
            fact: dict[str, Any] = {
                "v": float(value) if re.fullmatch(r"[\d.]+", value) else value,
                **cite(row["source"]),
            }
            if unit == "$/kWh":
                fact |= {"v": f"{value} USD/kWh", "dim": "energy_price"}
            elif unit == "ratio":
                fact["dim"] = "count"
            elif unit == "$/server/yr":
                fact |= {"v": f"{value} USD/year", "dim": "money_rate"}
            note = "; ".join(
                x for x in (remark, "CAD per kWh" if unit.startswith("C$") else "", clean(row["note"])) if x
            )
            fact |= dated(row) | ({"note": note} if note else {})
            key = slug(row["provider"] if row["provider"] else row["instance"])
            lines.append(f"  {key}: {fact_line(fact)}")
        (data / "tariffs" / f"{kind}.yaml").write_text("\n".join(lines) + "\n")


def write_tariffs(tariffs: list[dict[str, Any]], data: Path) -> None:
    """Utility tariffs as they were collected: structure under `data`, where it comes from in `note`."""
    for raw in tariffs:
        id = RULES["tariffs"][raw["id"]]["id"]
        record: dict[str, Any] = {"id": id, "name": raw["id"], "src": RULES["tariffs"][raw["id"]]["src"]}
        USED.update(as_list(record["src"]))
        content = {key: value for key, value in raw.items() if key != "id" and value is not None}
        text = yaml.safe_dump(record | {"data": dates_as_text(content)}, sort_keys=False, allow_unicode=True, width=110)
        (data / "tariffs" / f"{id}.yaml").write_text(text)


def dates_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: dates_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [dates_as_text(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    with (options.folder / "prices.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    write_prices(rows, options.data)
    write_tables(rows, options.data)
    write_tariffs(yaml.safe_load((options.folder / "tariffs.yaml").read_text())["tariffs"], options.data)
    write_sources(options.data)


if __name__ == "__main__":
    main()
