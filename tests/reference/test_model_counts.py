"""Parameter counts against three independent sources: published counts, Hugging Face's own classes, and an index.

`family_counts.json` was counted by instantiating the classes (scripts/count_families.py). The index lies beside the
repository where the collected material is at hand. Routing biases that HF keeps as buffers are parameters here; they
are below a millionth.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.errors import BadModelFile
from ridgeline.intake import load_model, transformer_from_config

HERE = Path(__file__).parent
CONFIGS = HERE.parents[2] / "shared" / "inputs" / "configs"
FAMILIES = json.loads((HERE / "family_counts.json").read_text())["families"]
INDEX_TOLERANCE, CLASS_TOLERANCE, ROUNDED_TOLERANCE = 1e-4, 1e-6, 1.5e-2


def index() -> list[dict[str, str]]:
    path = CONFIGS / "INDEX.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


INDEX = index()
needs_shared = pytest.mark.skipif(not INDEX, reason="the collected configurations are not beside the repository")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(plugins=False)


@pytest.mark.parametrize("entry", FAMILIES, ids=lambda entry: entry["family"])
def test_family_counts_as_its_class_does(entry: dict[str, Any]) -> None:
    model = transformer_from_config(entry["config"], id=entry["family"], where=entry["family"])
    assert model.parameters_count == pytest.approx(entry["parameters"], rel=CLASS_TOLERANCE)


def test_there_are_many_families() -> None:
    assert len(FAMILIES) >= 90


def test_every_record_has_its_published_count(catalog: Catalog) -> None:
    """Exact counts to 0.01 %; those that a paper rounds to two or three digits to 1.5 %."""
    checked = 0
    for id in catalog.ids("models"):
        model = load_model(id, catalog)
        facts = {fact.id.removeprefix(f"{id}."): fact.value for fact in catalog.facts_of("models", id)}
        if "parameters" in facts:
            assert model.parameters_count == pytest.approx(facts["parameters"], rel=INDEX_TOLERANCE), id
            checked += 1
        if "parameters_rounded" in facts:
            assert model.parameters_count == pytest.approx(facts["parameters_rounded"], rel=ROUNDED_TOLERANCE), id
            checked += 1
        if "active_parameters_rounded" in facts:
            expected = facts["active_parameters_rounded"]
            assert model.active_parameters_count == pytest.approx(expected, rel=ROUNDED_TOLERANCE), id
    assert checked >= 60


def test_every_record_carries_its_source(catalog: Catalog) -> None:
    for id in catalog.ids("models"):
        assert load_model(id, catalog).source, id


@needs_shared
@pytest.mark.parametrize("row", [row for row in INDEX if row["computed_total"]], ids=lambda row: row["name"])
def test_index_total_and_active(row: dict[str, str]) -> None:
    config = json.loads((CONFIGS / row["file"]).read_text())
    model = transformer_from_config(config, id=row["name"], where=row["file"])
    assert model.parameters_count == pytest.approx(int(row["computed_total"]), rel=INDEX_TOLERANCE)
    if row["computed_active"]:
        assert model.active_parameters_count == pytest.approx(int(row["computed_active"]), rel=INDEX_TOLERANCE)


@needs_shared
@pytest.mark.parametrize("row", [row for row in INDEX if row["published_params"]], ids=lambda row: row["name"])
def test_index_published(row: dict[str, str]) -> None:
    config = json.loads((CONFIGS / row["file"]).read_text())
    model = transformer_from_config(config, id=row["name"], where=row["file"])
    tolerance = 2e-3 if "rounded" in row["published_kind"] else INDEX_TOLERANCE
    assert model.parameters_count == pytest.approx(int(row["published_params"]), rel=tolerance)


@needs_shared
def test_every_collected_file_is_read_but_one_that_is_none() -> None:
    refused = {}
    for row in INDEX:
        config = json.loads((CONFIGS / row["file"]).read_text())
        try:
            transformer_from_config(config, id=row["name"], where=row["file"])
        except BadModelFile as error:
            refused[row["name"]] = str(error)
    assert list(refused) == ["hustvl/yolos-tiny"]  # a map of labels under that name
    assert "model_type: missing" in refused["hustvl/yolos-tiny"]
