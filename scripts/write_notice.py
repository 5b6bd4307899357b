"""Writes NOTICE: where the facts that Ridgeline ships come from. `python scripts/write_notice.py [--check]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ridgeline.catalog import Catalog, Source, load_catalog

ROOT = Path(__file__).resolve().parent.parent
HEAD = """Ridgeline
Copyright the Ridgeline authors

Licensed under the Apache License, Version 2.0 (see LICENSE).

The catalogue (src/ridgeline/catalog/data) holds facts: single figures with their units, taken from the publications
below and cited one by one in its files. Figures are not works of authorship; no text, table layout or code of these
sources is copied. Licences are named where a source states one. Trade marks belong to their owners.
"""
GROUPS = {
    "datasheet": "Datasheets",
    "documentation": "Documentation",
    "standard": "Standards",
    "paper": "Papers and talks",
    "repository": "Source repositories",
    "dataset": "Data sets",
    "measurement": "Measurements and captures",
    "news": "News",
    "web": "Web pages",
}


def used_sources(catalog: Catalog) -> list[Source]:
    """Sources outside the project that at least one shipped record cites."""
    cited = set()
    for kind in ("devices", "links", "systems", "prices", "tariffs", "models", "engines", "software", "efficiency"):
        for id in catalog.ids(kind):
            record = catalog.record(kind, id)
            cited.update(record.get("src") or ())
            for fact in record.get("facts", {}).values():
                cited.update(fact.get("src") or ())
    sources = (catalog.source(id) for id in catalog.ids("sources") if id in cited)
    return [source for source in sources if source.kind != "project"]


def line_of(source: Source) -> str:
    """One source on one line."""
    place = source.repository + (f"@{source.commit}" if source.commit else "") if source.repository else source.url
    parts = [source.title, source.authors, source.publisher, place, source.date, source.licence]
    return "- " + ". ".join(part.rstrip(".") for part in parts if part) + f" [{source.id}]"


def notice(catalog: Catalog) -> str:
    """The whole text."""
    sources = used_sources(catalog)
    blocks = [HEAD]
    for kind, title in GROUPS.items():
        lines = sorted(line_of(source) for source in sources if source.kind == kind)
        if lines:
            blocks.append("\n".join([title, "-" * len(title), *lines]) + "\n")
    return "\n".join(blocks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether NOTICE is up to date")
    options = parser.parse_args()
    text = notice(load_catalog(plugins=False))
    path = ROOT / "NOTICE"
    if options.check:
        return 0 if path.read_text() == text else 1
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
