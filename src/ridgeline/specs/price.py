"""Dated prices, tariffs and the site that a machine stands on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One published price: to rent (per device and second) or to buy (per device).

    `kind`: "on-demand", "reserved-1y", "reserved-3y", "spot", "purchase". `per_device_usd` is for purchase,
    `per_device_usd_per_s` for rent. `low`/`high` are given where the source gives a range.
    """

    id: str
    system: str
    kind: str
    provider: str
    date: str
    fact: str
    per_device_usd: float | None = None
    per_device_usd_per_s: float | None = None
    low_usd: float | None = None
    high_usd: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the machine stands: energy price [USD/J], facility overhead (PUE >= 1), grid carbon [kg/J]."""

    name: str = ""
    electricity_usd_per_j: float | None = None
    pue_frac: float = 1.0
    carbon_kg_co2e_per_j: float | None = None
