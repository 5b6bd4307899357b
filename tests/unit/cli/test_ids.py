"""Every id that is printed can be used: nothing is cut, and `show` knows each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.catalog import RECORD_KINDS, load_catalog
from ridgeline.report import show_report
from ridgeline.scenario.lookup import show_record

Cli = Any  # the fixture `cli` of conftest.py
LISTED = [kind for kind in RECORD_KINDS if kind != "labels"]


@pytest.mark.parametrize("kind", LISTED)
def test_list_prints_whole_ids(cli: Cli, kind: str) -> None:
    lines = cli("list", kind).out.splitlines()
    starts = {line.split(" ")[0] for line in lines}
    ids = load_catalog(plugins=False).ids(kind)
    assert len(ids) > 0
    assert [id for id in ids if id not in starts] == []


@pytest.mark.parametrize("kind", LISTED)
def test_show_knows_every_id(cli: Cli, kind: str) -> None:
    ids = load_catalog(plugins=False).ids(kind)
    some = ids if kind == "prices" else ids[:: max(1, len(ids) // 5)][:5]
    for id in some[:5]:
        result = cli("show", id)
        assert (result.code, result.err) == (0, ""), id
        assert id in result.out
    catalog = load_catalog(plugins=False)
    assert [id for id in some[5:] if not show_report(show_record(catalog, id))] == []


def test_a_price_shows_its_amounts_with_their_source(cli: Cli) -> None:
    text = cli("show", "crusoe-mi300x-192gb").out
    assert "3.45 USD/h" in text
    assert "gpuhunt" in text


def test_cite_prints_whole_ids_with_ranges_and_reasons(cli: Cli) -> None:
    words = ("cite", Path(__file__).parents[3] / "examples" / "train-70b.yaml")
    lines = cli(*words).out.splitlines()
    cited = json.loads(cli(*words, "--json").out)
    starts = {line.split(" ")[0]: line for line in lines}
    figures = [*cited["assumed"], *cited["secondary"]]
    assert len(figures) > 5
    assert [fact["id"] for fact in figures if fact["id"] not in starts] == []
    assert "0.3 to 0.6  A busy chip" in starts["power.base_frac"]
