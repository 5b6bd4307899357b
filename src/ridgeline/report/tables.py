"""The ranked tables: one line a machine, within 120 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ridgeline.report.layout import (
    ENERGY_STEPS,
    MONEY_STEPS,
    MONEY_UNIT,
    RUN_STEPS,
    RUN_UNIT,
    bar,
    ranged,
    scale_of,
    significant,
    table,
)
from ridgeline.scenario.answer import AnswerRow
from ridgeline.search import ServingRow, TrainingRow
from ridgeline.units import show

__all__ = ["bar", "serving_table", "training_table"]


def training_table(rows: Sequence[AnswerRow]) -> Table:
    """Rank, machine, layout, step, sustained share of the peak, memory, days, energy, money."""
    found = [(row, row.found) for row in rows if isinstance(row.found, TrainingRow)]
    money = [value for _, item in found for value in _prices(item)]
    _, money_name = scale_of(money, MONEY_STEPS)
    _, run_name = scale_of([item.run_s.best for _, item in found], RUN_STEPS)
    energy_unit, energy_name = scale_of([row.energy_j.best if row.energy_j else None for row, _ in found], ENERGY_STEPS)
    lines = table(
        "#",
        "machine",
        "layout",
        "step",
        "MFU",
        "memory",
        f"{run_name} (80 %)",
        energy_name,
        f"rent {money_name}",
        f"own {money_name}",
        left=(1, 2),
        flexible=(1, 2),
    )
    for row, item in found:
        rent, own = _prices(item)
        lines.add_row(
            str(row.rank),
            _machine(item),
            row.layout,
            show(item.estimate.step_s.best, "time"),
            f"{item.estimate.mfu_frac:.1%}",
            f"{item.estimate.memory.value / 1e9:.0f}/{item.estimate.memory_available_bytes / 1e9:.0f} GB",
            ranged(item.run_s, RUN_UNIT[run_name]),
            _amount(None if row.energy_j is None else row.energy_j.best, energy_unit),
            _amount(rent, MONEY_UNIT[money_name]),
            _amount(own, MONEY_UNIT[money_name]),
        )
    return lines


def serving_table(rows: Sequence[AnswerRow]) -> Table:
    """Rank, machine, layout, latencies, throughput, money and energy per million tokens."""
    found = [(row, row.found) for row in rows if isinstance(row.found, ServingRow)]
    generates = any(item.estimate.output_tokens_per_s.best > 0 for _, item in found)
    lines = table(
        "#",
        "machine",
        "layout",
        "TTFT p95" if generates else "p95",
        *(("TPOT p95",) if generates else ()),
        "load",
        "out tok/s (80 %)" if generates else "requests/s (80 %)",
        "USD/M tok",
        "J/tok",
        "weights",
        left=(1, 2),
        flexible=(1, 2),
    )
    for row, item in found:
        estimate = item.estimate
        lines.add_row(
            str(row.rank),
            _machine(item),
            row.layout,
            show(estimate.ttft_p95_s, "time"),
            *((show(estimate.tpot_p95_s, "time"),) if generates else ()),
            f"{min(1.0, estimate.utilisation_frac):.0%}",
            ranged(estimate.output_tokens_per_s if generates else estimate.requests_per_s),
            _amount(None if item.usd_per_mtoken is None else item.usd_per_mtoken.best, 1.0),
            _amount(None if item.j_per_token is None else item.j_per_token.best, 1.0),
            _weights(item),
        )
    return lines


def _machine(item: TrainingRow | ServingRow) -> str:
    used = f"\n({item.used_count:,} used)" if item.used_count != item.devices_count else ""
    return f"{item.system.id} x {item.devices_count:,}{used}"


def _weights(item: ServingRow) -> str:
    """Weights on one device and what it has."""
    weights = item.estimate.memory.value_of("weights") / 1e9
    return f"{significant(weights, 2)}/{item.estimate.memory_available_bytes / 1e9:.0f} GB"


def _prices(item: TrainingRow) -> tuple[float | None, float | None]:
    """Rent (of the kind that counts, else the first there is) and the cost of owning."""
    rents = item.cost.rent_usd
    kind = item.cost.headline_basis if item.cost.headline_basis in rents else next(iter(rents), "")
    rent = rents[kind].best if kind else None
    return rent, None if item.cost.own_usd is None else item.cost.own_usd.best


def _amount(value: float | None, unit: float) -> str:
    return "-" if value is None else significant(value / unit)
