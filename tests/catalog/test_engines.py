"""Engine records: versions resolve to the record that holds, every figure has a field, assumptions have ranges."""

from __future__ import annotations

import pytest

from ridgeline.catalog import load_catalog
from ridgeline.catalog.engines import ENGINE_FIELDS, engine_for, version_key
from ridgeline.errors import UnknownName


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


@pytest.mark.parametrize(
    ("name", "version", "record"),
    [
        ("vllm", None, "vllm"),
        ("vllm", "0.5.3", "vllm-0.3"),
        ("vllm", "0.6.5.dev964+mlperf50", "vllm-0.6"),
        ("vllm", "0.10.2", "vllm-0.8"),
        ("vllm", "0.20.0", "vllm"),
        ("tensorrt-llm", "0.5", "tensorrt-llm-0.5"),
        ("tensorrt-llm", "0.17", "tensorrt-llm-0.10"),
        ("TensorRT-LLM", "1.0", "tensorrt-llm"),
        ("llama.cpp", "build 2824 (4426e298)", "llama-cpp"),
    ],
)
def test_a_version_means_the_record_from_which_it_holds(catalog, name, version, record):
    assert catalog.engine(name, version).id == record


@pytest.mark.parametrize(("date", "record"), [("2023-12", "vllm-0.2"), ("2025-06", "vllm-0.8"), ("2026-11", "vllm")])
def test_a_date_means_the_record_of_its_time(catalog, date, record):
    assert catalog.engine("vllm", date=date).id == record


def test_an_unknown_version_is_wider_not_wrong(catalog):
    newest = catalog.engine("vllm")
    nightly = catalog.engine("vllm", "nightly image")
    assert nightly.id == newest.id
    assert nightly.release_sigma > newest.release_sigma
    ancient = catalog.engine("vllm", "0.1")
    assert ancient.id == "vllm-0.2"
    assert ancient.release_sigma > catalog.engine("vllm", "0.2").release_sigma


def test_an_unknown_engine_names_the_nearest(catalog):
    with pytest.raises(UnknownName, match="vllm"):
        catalog.engine("vlm")


def test_versions_inherit_and_override(catalog):
    old, new = catalog.engine("vllm", "0.6"), catalog.engine("vllm")
    assert old.pool_frac == new.pool_frac == 0.9
    assert old.mixed_steps is False
    assert new.mixed_steps is True
    assert (new.max_batch_count, new.small_batch_count) == (1024, 256)
    assert catalog.fact(new.facts["host_sequence_s"]).low == pytest.approx(8e-6)


def test_every_engine_loads_and_says_what_it_assumes(catalog):
    for id in catalog.ids("engines"):
        engine = catalog.engine(id)
        assert engine.release_sigma > 0
        assert 0 < engine.pool_frac <= 1
        for name in engine.assumed:
            fact = catalog.fact(engine.facts[name])
            assert fact.kind == "assumed"
            assert fact.why
            assert fact.low is not None
            assert fact.high is not None
            assert fact.low <= fact.value <= fact.high
        for key, fact_id in engine.facts.items():
            assert key in ENGINE_FIELDS.values()
            assert catalog.fact(fact_id).kind != "unsourced"


def test_versions_compare_as_numbers():
    assert version_key("0.10.0") > version_key("0.9.2")
    records = [{"id": v, "version": v, "facts": {}, "file": v} for v in ("0.9", "0.10")]
    assert engine_for(records, "0.10.1", "").id == "0.10"
    assert engine_for(records, "0.9.9", "").id == "0.9"
