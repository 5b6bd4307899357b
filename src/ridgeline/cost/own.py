"""Owning: a share of the purchase for the time that the run takes, and the energy at the meter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ridgeline.core import FrozenMap, Interval, model


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """How a purchase is written off: over `depreciation_s`, busy for `utilisation_frac` of it.

    `network_frac` is what network, storage and racks add to the price of the nodes. All three are assumed facts
    with ranges unless the scenario gives them.
    """

    depreciation_s: Interval
    utilisation_frac: Interval
    network_frac: Interval
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def fact(self, name: str) -> str:
        """Id of the fact behind a figure; empty where the scenario gave it."""
        return self.facts.get(name, "")


@model(id="depreciation", sources=("rl-definition",))
def depreciation_usd(purchase_usd: Any, time_s: Any, depreciation_s: Any, utilisation_frac: Any) -> Any:
    """Share of a purchase that a run of `time_s` uses up [USD], straight line over the busy part of the life.

        purchase * time / (depreciation * utilisation)

    Does not model resale value, interest or staff.

    >>> depreciation_usd(100.0, 10.0, 1000.0, 0.5)
    2.0
    """
    return purchase_usd * time_s / (depreciation_s * utilisation_frac)


@model(id="break-even-utilisation", sources=("rl-definition",))
def break_even_utilisation_frac(
    purchase_usd: Any, depreciation_s: Any, rent_usd_per_s: Any, energy_usd_per_s: Any
) -> Any:
    """Share of its life that an owned machine must be busy to cost no more than renting it for the same hours.

    Owning costs purchase / depreciation every second and energy in busy ones; renting costs rent in busy ones:

        u (rent - energy) = purchase / depreciation

    Above 1 owning never pays; negative where energy alone exceeds the rent. All for the same number of devices.

    >>> break_even_utilisation_frac(1000.0, 1000.0, 2.5, 0.5)
    0.5
    """
    return purchase_usd / depreciation_s / (rent_usd_per_s - energy_usd_per_s)
