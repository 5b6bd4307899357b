"""Releases of training software in the catalogue: complete, dated, and found by name and date."""

from __future__ import annotations

import re

import pytest

from ridgeline.catalog import Catalog, load_catalog
from ridgeline.catalog.software import SOFTWARE_FIELDS, framework_of, release_at, software_of
from ridgeline.errors import BadFact, UnknownName
from ridgeline.workload.training_ends import LOSS_BYTES

ABSTRACT = "training-conditions"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(plugins=False)


@pytest.fixture(scope="module")
def releases(catalog: Catalog) -> list[str]:
    return [id for id in catalog.ids("software") if id != ABSTRACT]


def test_every_release_is_dated_and_belongs_to_a_framework(catalog: Catalog, releases: list[str]) -> None:
    assert len(releases) >= 15
    for id in releases:
        profile = catalog.software(id)
        assert profile.framework, id
        assert re.fullmatch(r"\d{4}-\d{2}", profile.date), id


def test_values_are_words_that_the_model_knows(catalog: Catalog, releases: list[str]) -> None:
    for id in releases:
        profile = catalog.software(id)
        assert profile.loss in LOSS_BYTES
        assert profile.states in ("copy", "master-only")
        assert profile.tensor_overlap in ("none", "backward", "pipelined")
        assert profile.sharding in ("none", "zero1", "zero2", "zero3")
        assert profile.recompute in ("none", "selective", "full")
        assert profile.gradient_precision in ("same", "fp32", "bf16", "fp32-if-bf16")
        assert 0 < profile.overlap_slowdown_frac < 1
        assert 0 < profile.spread_sigma_frac < 0.1
        assert all(0.5 < frac <= 1 for frac in profile.real_data_frac.values())


def test_every_field_has_a_fact_that_can_be_cited(catalog: Catalog, releases: list[str]) -> None:
    for id in releases:
        for fact_id in catalog.software(id).facts.values():
            fact = catalog.fact(fact_id)
            assert fact.kind == "unsourced" or fact.kind == "assumed" or fact.sources, fact_id


def test_a_date_picks_the_release_of_its_time(catalog: Catalog) -> None:
    found = {date: catalog.software("Megatron-LM", date).id for date in ("2020", "2021", "2022", "2024-06", "2024", "")}
    assert found == {
        "2020": "megatron-lm-2.2",
        "2021": "megatron-lm-2.2",
        "2022": "megatron-lm-3.0",
        "2024-06": "megatron-core-0.4",
        "2024": "megatron-core-0.8",
        "": catalog.software().id,
    }


def test_generations_differ_where_they_should(catalog: Catalog) -> None:
    old, new = catalog.software("megatron-lm-2.2"), catalog.software()
    assert (old.attention, old.tensor_overlap, old.sharding, old.dropout) == ("unfused", "none", "none", True)
    assert (new.attention, new.tensor_overlap, new.sharding, new.dropout) == ("best", "pipelined", "zero1", False)


def test_an_unknown_name_gives_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(UnknownName, match="megatron-core"):
        catalog.software("megatron-cor")


def test_an_unknown_fact_is_refused_with_what_is_allowed() -> None:
    record = {"id": "x", "file": "software/x.yaml", "facts": {"atention": {"value": "fa2", "kind": "unsourced"}}}
    with pytest.raises(BadFact, match=r"facts\.atention: no field of training software; allowed: attention"):
        software_of(record)


def test_helpers() -> None:
    assert framework_of({"data": {"framework": "f"}}) == "f"
    assert release_at([{"id": "only", "date": "2024-01"}], "2000")["id"] == "only"
    assert len(set(SOFTWARE_FIELDS.values())) == len(SOFTWARE_FIELDS)
