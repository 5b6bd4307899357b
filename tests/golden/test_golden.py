"""Did a default answer move by more than half a percent? If so: say why with record.py and in the CHANGELOG."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    path = Path(__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"ridgeline_golden_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


golden = _load("golden")
RECORDED = golden.recorded()


@pytest.mark.parametrize("name", sorted(golden.scenarios()))
def test_the_answer_is_the_recorded_one(name: str) -> None:
    expected = RECORDED["answers"][name]
    found = golden.figures(golden.scenarios()[name])
    assert set(found) == set(expected)
    for key, value in expected.items():
        if isinstance(value, float):
            assert found[key] == pytest.approx(value, rel=5e-3), key
        else:
            assert found[key] == value, key


def test_every_recording_has_a_date_and_a_reason() -> None:
    assert RECORDED["history"]
    assert all(len(entry["date"]) == 10 and len(entry["reason"]) > 10 for entry in RECORDED["history"])
