"""Scoring measured power and energy: sensors of GPUs in serving runs, wall power of audited machines.

Scopes are never mixed: a row of a GPU's own sensor is compared with chips alone (`family` "gpu power" and "gpu
energy"), a row of a wall meter with the whole machine ("wall power"). Power and energy are compared as they are: a
positive bias is too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ridgeline.catalog import Catalog
from ridgeline.core import FrozenMap, Interval
from ridgeline.errors import RidgelineError
from ridgeline.power import PowerLaw
from ridgeline.validation.corpus import Row, power_kind, read_rows
from ridgeline.validation.each_row import Unscored, check_ranges
from ridgeline.validation.scores import Report, ScoredRow

SHARES = (
    "base_frac",
    "compute_share_frac",
    "memory_share_frac",
    "idle_frac",
    "host_activity_frac",
    "host_frac",
    "serving_compute_share_frac",
)


def score_power(path: str, catalog: Catalog) -> Report:
    """Predictions for every figure of a file of power; its columns say which of the three kinds it is."""
    kind = power_kind(path)
    rows = read_rows(path, kind)
    if kind == "power-wall":
        from ridgeline.validation.power_wall import score_wall

        return score_wall(rows, path, catalog)
    if kind == "power-diffusion":
        from ridgeline.validation.power_diffusion import score_diffusion_power

        return score_diffusion_power(rows, path, catalog)
    from ridgeline.validation.power_llm import score_llm_power

    return score_llm_power(rows, path, catalog)


def power_law(catalog: Catalog) -> PowerLaw:
    """The shares of the power models, from the catalogue."""
    shares = {name: share(catalog, name) for name in SHARES}
    return PowerLaw(**shares, facts=FrozenMap({name: f"power.{name}" for name in SHARES}))


def share(catalog: Catalog, name: str) -> Interval:
    """A fact of the power models with its range."""
    fact = catalog.fact(f"power.{name}")
    value = float(fact.value)
    return Interval(value if fact.low is None else fact.low, value, value if fact.high is None else fact.high)


def score_figures(rows: Sequence[Row], path: str, score: Callable[[Row], Iterable[ScoredRow]]) -> Report:
    """A report of rows that may have several figures each: `rows` counts rows, `scored` figures."""
    report = Report("power", path, len(rows))
    for row in rows:
        try:
            check_ranges(row)
            report.scored += score(row)
        except Unscored as reason:
            report.skip(str(reason))
        except RidgelineError as error:
            report.skip(f"{type(error).__name__}: {str(error).splitlines()[0][:100]}")
        except (ArithmeticError, ValueError) as error:
            report.skip(f"not computable: {type(error).__name__}: {str(error)[:80]}")
    return report
