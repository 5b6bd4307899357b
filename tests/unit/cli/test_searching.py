"""`train --layouts` and `train --scale`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ridgeline.scenario import searching

Cli = Callable[..., Any]
FEW = ("--set", "workload.train.micro_batch=4", "--set", "workload.train.sharding=zero1")


def test_every_layout_is_searched_and_the_best_explained(cli: Cli, folder: Path) -> None:
    found = cli("train", folder / "good.yaml", "--layouts", "--json", *FEW)
    assert found.code == 0
    data = json.loads(found.out)
    assert data["kind"] == "layouts"
    (system,) = data["systems"]
    assert system["strategies_count"] == system["feasible_count"] + sum(system["rejected"].values())
    assert system["complete"] is True
    assert system["best"]["step_s"] == min(item["step_s"] for item in system["front"])
    assert "mb4 zero1" in system["best"]["layout"]
    assert system["why"]["step_s"]["best"] == pytest.approx(system["best"]["step_s"])
    text = cli("train", folder / "good.yaml", "--layouts", *FEW)
    assert text.code == 0
    for words in ("best:", "binds:", "moves it most:", "runner-up:", "rejected:", "front of time"):
        assert words in text.out


def test_the_best_of_all_is_no_slower_than_the_best_that_train_finds(cli: Cli, folder: Path) -> None:
    every = json.loads(cli("train", folder / "good.yaml", "--layouts", "--json").out)
    usual = json.loads(cli("train", folder / "good.yaml", "--json").out)
    fastest_s = every["systems"][0]["best"]["step_s"]
    assert fastest_s <= usual["rows"][0]["step_s"]["best"] * (1 + 1e-9)


def test_the_scaling_curve_has_a_line_for_each_size(cli: Cli, folder: Path) -> None:
    found = cli("train", folder / "good.yaml", "--scale", "8..64", "--json")
    assert found.code == 0
    (curve,) = json.loads(found.out)["systems"]
    assert [point["devices"] for point in curve["points"]] == [8, 16, 32, 64]
    text = cli("train", folder / "good.yaml", "--scale", "8..64")
    assert "knee" in text.out


def test_sizes_that_cannot_be_read_are_a_message(cli: Cli, folder: Path) -> None:
    found = cli("train", folder / "good.yaml", "--scale", "many")
    assert found.code == 2
    assert "--scale many" in found.err


def test_nothing_that_fits_is_infeasible(cli: Cli, folder: Path) -> None:
    words = ("--set", "workload.train.sequence=2097152", "--set", "workload.train.offload_optimizer=false")
    found = cli("train", folder / "good.yaml", "--layouts", *words, *FEW)
    assert found.code == 3
    assert "no feasible layout" in found.err


def test_an_interrupt_shows_what_was_found(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = searching.search_space

    def interrupted(space: Any, calibration: Any, progress: Any = None) -> Any:
        def stop(done: int, total: int, best_s: float) -> None:
            if best_s < float("inf"):
                raise KeyboardInterrupt

        return whole(space, calibration, stop)

    monkeypatch.setattr(searching, "search_space", interrupted)
    found = cli("train", folder / "good.yaml", "--layouts")
    assert found.code == 130
    assert "before the interrupt" in found.out
