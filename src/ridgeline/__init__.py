"""Ridgeline: how fast, how hot, how much memory, energy and money a model needs on a given machine, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ridgeline.scenario import PlanAnswer
    from ridgeline.scenario.sizing import SizingAnswer

__all__ = ["__version__", "plan", "size"]
__version__ = "0.1.0"


def plan(
    scenario: str | Path | Mapping[str, Any], sets: Sequence[str] = (), *, catalog: Sequence[str | Path] = ()
) -> PlanAnswer:
    """Rank the candidate machines of a scenario.

    `scenario`: a file, or its content as a dict. `sets`: changes, each "path=value". `catalog`: folders with facts
    of one's own. Raises `ridgeline.errors.RidgelineError` for what is wrong with the input, and `NoFeasiblePlan` with
    counted reasons where no plan is feasible.
    """
    from ridgeline.catalog import load_catalog
    from ridgeline.scenario import load_scenario
    from ridgeline.scenario import plan as answer

    return answer(load_scenario(scenario, sets, catalog=load_catalog(catalog)))


def size(
    scenario: str | Path | Mapping[str, Any], sets: Sequence[str] = (), *, catalog: Sequence[str | Path] = ()
) -> SizingAnswer:
    """Size the serving system of a scenario: fewest devices for its load, engines together or in pools of two kinds.

    Arguments as of `plan`. Raises `NoFeasiblePlan` where nothing keeps the limits, with what binds.
    """
    from ridgeline.catalog import load_catalog
    from ridgeline.scenario import load_scenario
    from ridgeline.scenario.sizing import size as answer

    return answer(load_scenario(scenario, sets, catalog=load_catalog(catalog)))
