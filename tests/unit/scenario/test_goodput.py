"""The days with failures of an answer: published figures, and the scenario's own in their place."""

from __future__ import annotations

from typing import Any

import pytest

import ridgeline
from ridgeline.errors import ScenarioError
from ridgeline.scenario.answer import AnswerRow

DAY_S = 86400.0
SCENARIO: dict[str, Any] = {
    "workload": {"model": "llama-3.1-8b", "train": {"tokens": "1e12", "sequence": 8192, "global_batch": 512}},
    "candidates": [{"system": "dgx-h100", "devices": 64}],
}
PINS = [
    "workload.train.tensor=1",
    "workload.train.pipeline=1",
    "workload.train.data=64",
    "workload.train.micro_batch=1",
]


def row(*sets: str, system: str = "dgx-h100") -> AnswerRow:
    """The best row of one layout."""
    found: AnswerRow = ridgeline.plan(SCENARIO, [*PINS, f"candidates.0.system={system}", *sets]).rows[0]
    return found


def test_days_keep_their_meaning_and_the_new_figure_stands_beside_them() -> None:
    found = row()
    data = found.to_dict()
    assert data["days"]["best"] == pytest.approx(found.found.run_s.best / DAY_S)  # type: ignore[union-attr]
    assert data["days_with_failures"]["best"] == pytest.approx(found.days_with_failures)
    assert data["days_with_failures"]["best"] * data["goodput"]["goodput_frac"]["best"] == pytest.approx(found.days)
    assert data["goodput"]["time"]["value"] == pytest.approx(data["days_with_failures"]["best"] * DAY_S)
    assert data["goodput"]["checkpoint_bytes"] == pytest.approx(14 * 8.03e9, rel=0.01)


def test_what_failures_rest_on_is_cited() -> None:
    found = row()
    assert "reliability.failures.hopper" in found.uses
    assert "daly-checkpoint-interval" in found.to_dict()["models"]


def test_what_a_scenario_gives_takes_the_place_of_the_published() -> None:
    """Eight nodes that fail every eight days: one failure a day. 112 GB over 1 GB/s take 112 s."""
    found = row("failures.between=8 d", "failures.storage=1 GB/s", "failures.restart=1 h", "failures.spares=0")
    assert found.goodput is not None
    assert found.goodput.between_failures_s == pytest.approx(DAY_S)
    assert found.goodput.write_s == pytest.approx(found.goodput.checkpoint_bytes / 1e9)
    assert not {"reliability.failures.hopper", "reliability.restart", "reliability.write_node"} & set(found.uses)
    assert found.goodput.time.value_of("waiting for repairs") > 0


def test_checkpoints_as_the_scenario_has_them() -> None:
    found = row("failures.asynchronous=false", "failures.interval=2 h")
    assert found.goodput is not None
    assert (found.goodput.period_s, found.goodput.stall_s) == (7200.0, found.goodput.write_s)


def test_a_machine_without_published_failures_says_assumed() -> None:
    assert "reliability.failures.other" in row(system="mi300x-8").to_dict()["assumed"]


def test_serving_has_no_days_with_failures() -> None:
    serve = {"workload": {"model": "llama-3.1-8b", "serve": {"input": 512, "output": 64, "rate": 1}}}
    found = ridgeline.plan({**serve, "candidates": [{"system": "dgx-h100", "devices": 1}]}).rows[0]
    assert found.days_with_failures is None
    assert "goodput" not in found.to_dict()


def test_a_wrong_key_names_the_nearest() -> None:
    with pytest.raises(ScenarioError, match="nearest: between"):
        row("failures.betwen=3 d")
