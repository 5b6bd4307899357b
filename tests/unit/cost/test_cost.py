"""Quotes, rent, ownership and break-even against hand calculations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.core import FrozenMap, Interval
from ridgeline.cost import (
    CostTerms,
    Ownership,
    break_even_utilisation_frac,
    depreciation_usd,
    estimate_cost,
    newest_quotes,
)
from ridgeline.specs import Price, Site

HOUR, DAY, YEAR = 3600.0, 86400.0, 365.25 * 86400.0
OWNERSHIP = Ownership(
    depreciation_s=Interval(3 * YEAR, 4 * YEAR, 6 * YEAR),
    utilisation_frac=Interval(0.5, 0.7, 0.95),
    network_frac=Interval(0.1, 0.2, 0.4),
    facts=FrozenMap({"depreciation_s": "ownership.depreciation"}),
)
SITE = Site(electricity_usd_per_j=0.10 / 3.6e6, pue_frac=1.2)


def rent(provider: str, usd_per_hour: float, date: str, kind: str = "on-demand", system: str = "box") -> Price:
    return Price(
        id=f"{provider}.{kind}.{date}",
        system=system,
        kind=kind,
        provider=provider,
        date=date,
        fact=f"prices.{provider}.{kind}.{date}",
        per_device_usd_per_s=usd_per_hour / HOUR,
    )


def purchase(usd: float) -> Price:
    return Price(
        id="buy", system="box", kind="purchase", provider="maker", date="2026", fact="prices.buy", per_device_usd=usd
    )


def test_the_newest_price_of_a_provider_counts_and_the_middle_provider_decides() -> None:
    prices = [
        rent("aws", 12.29, "2023-11"),
        rent("aws", 6.88, "2026-09"),
        rent("cheap", 2.95, "2025"),
        rent("dear", 11.06, "2026"),
        rent("fourth", 6.00, "2026"),
    ]
    quote = newest_quotes(prices)["on-demand"]
    # newest of each: 2.95, 6.00, 6.88, 11.06; the lower middle one is 6.00
    assert quote.price.provider == "fourth"
    assert quote.offers_count == 4
    assert [value * HOUR for value in (quote.per_device.low, quote.per_device.best, quote.per_device.high)] == (
        pytest.approx([2.95, 6.0, 11.06])
    )


def test_prices_of_the_system_itself_go_before_its_device_elsewhere() -> None:
    prices = [rent("aws", 6.88, "2026", system="p5"), rent("own", 9.0, "2020"), rent("aws", 3.0, "2026", "spot", "p5")]
    quotes = newest_quotes(prices, "box")
    assert quotes["on-demand"].price.provider == "own"
    assert quotes["spot"].price.system == "p5"  # the system has no spot price of its own


def test_a_price_range_of_the_source_widens_the_interval() -> None:
    quote = newest_quotes([replace(purchase(30_000), low_usd=25_000, high_usd=40_000)])["purchase"]
    assert quote.per_device == Interval(25_000, 30_000, 40_000)


def test_rent_and_own_by_hand() -> None:
    quotes = newest_quotes([rent("aws", 6.88, "2026"), purchase(30_000)])
    run = Interval.exact(10 * DAY)
    energy_j = Interval.exact(512 * 1000.0 * 10 * DAY)  # 1 kW a device at the meter
    cost = estimate_cost("box", 512, run, energy_j, SITE, quotes, CostTerms(ownership=OWNERSHIP))
    # 512 devices x 240 h x 6.88 USD/h
    assert cost.rent_usd["on-demand"].best == pytest.approx(512 * 240 * 6.88)
    # machine: 512 x 30,000 x 10 d / (4 y x 0.7); network 20 % on top; energy 512 kW x 240 h x 0.10 USD/kWh
    machine = 512 * 30_000 * 10 / (4 * 365.25 * 0.7)
    energy = 512 * 240 * 0.10
    assert cost.own_usd is not None
    assert cost.own_usd.best == pytest.approx(machine * 1.2 + energy)
    tree = next(tree for tree in cost.money if tree.name == "own")
    assert tree.check() == []
    assert tree.value_of("energy") == pytest.approx(energy)
    assert (cost.headline_basis, cost.headline_usd) == ("on-demand", cost.rent_usd["on-demand"])
    assert cost.missing == ()
    # break-even: 512 x 36,000 / 4 y against 512 x (6.88 - 0.10) USD/h
    expected = 36_000 / (4 * 365.25 * 24) / (6.88 - 0.10)
    assert cost.break_even_frac == pytest.approx(expected)


def test_the_doubt_about_owning_is_that_of_its_parts_and_of_the_length_of_the_run() -> None:
    quotes = newest_quotes([purchase(30_000)])
    run, power_sigma = Interval.from_sigma(10 * DAY, 0.2), 0.1
    energy_j = Interval.from_sigma(512 * 1000.0 * 10 * DAY, math.hypot(0.2, power_sigma))
    cost = estimate_cost("box", 512, run, energy_j, SITE, quotes, CostTerms(ownership=OWNERSHIP))
    machine = 512 * 30_000 * 10 / (4 * 365.25 * 0.7)
    energy = 512 * 240 * 0.10
    whole = machine * 1.2 + energy
    # 80 % ranges as log sigmas: life ln(6/3), use ln(0.95/0.5), network ln(0.4/0.1), each over 2 x 1.2816
    life, use, network = (math.log(ratio) / 2 / 1.2815515655446004 for ratio in (2.0, 1.9, 4.0))
    parts = [machine * 1.2 * math.hypot(life, use), machine * 0.2 * network, energy * power_sigma, whole * 0.2]
    assert cost.own_usd is not None
    assert cost.own_usd.sigma == pytest.approx(math.hypot(*parts) / whole)


def test_at_break_even_utilisation_owning_costs_what_renting_costs() -> None:
    capital, life, rent_rate, energy_rate = 40_000.0, 4 * YEAR, 5.0 / HOUR, 0.2 / HOUR
    share = break_even_utilisation_frac(capital, life, rent_rate, energy_rate)
    busy_s = share * life
    assert busy_s * rent_rate == pytest.approx(depreciation_usd(capital, busy_s, life, share) + busy_s * energy_rate)


def test_what_has_no_price_is_said_with_the_fact_that_is_missing() -> None:
    cost = estimate_cost("box", 8, Interval.exact(DAY), Interval.exact(1e9), SITE, {}, CostTerms(ownership=OWNERSHIP))
    assert cost.headline_usd is None
    assert cost.missing == ("prices.box.on-demand", "prices.box.purchase")
    assert "ranked last on cost" in cost.notes[0].text


def test_owning_needs_a_price_of_electricity() -> None:
    quotes = newest_quotes([purchase(30_000)])
    cost = estimate_cost(
        "box", 8, Interval.exact(DAY), Interval.exact(1e9), Site(), quotes, CostTerms(ownership=OWNERSHIP)
    )
    assert cost.own_usd is None
    assert "site.electricity" in cost.missing


def test_the_basis_decides_the_headline() -> None:
    quotes = newest_quotes([rent("aws", 6.88, "2026"), purchase(30_000)])
    arguments = ("box", 8, Interval.exact(DAY), Interval.exact(1e9), SITE)
    own = estimate_cost(*arguments, quotes, CostTerms(basis="own", ownership=OWNERSHIP))
    assert (own.headline_basis, own.headline_usd) == ("own", own.own_usd)
    only_own = estimate_cost(*arguments, newest_quotes([purchase(1.0)]), CostTerms(ownership=OWNERSHIP))
    assert only_own.headline_basis == "own"
    rent_only = estimate_cost(*arguments, newest_quotes([purchase(1.0)]), CostTerms(basis="rent", ownership=OWNERSHIP))
    assert rent_only.headline_usd is None


@given(
    factor=st.floats(0.1, 10.0),
    days=st.floats(0.1, 1000.0),
    devices=st.integers(1, 100_000),
    usd=st.floats(0.1, 100.0),
)
def test_rent_is_linear_in_the_price_and_lies_in_its_interval(
    factor: float, days: float, devices: int, usd: float
) -> None:
    time_s = Interval.from_sigma(days * DAY, 0.2)
    arguments = ("box", devices, time_s, Interval.exact(1e9), SITE)
    one = estimate_cost(*arguments, newest_quotes([rent("a", usd, "2026")]), CostTerms())
    many = estimate_cost(*arguments, newest_quotes([rent("a", usd * factor, "2026")]), CostTerms())
    assert one.headline_usd is not None
    assert many.headline_usd is not None
    assert many.headline_usd.best == pytest.approx(factor * one.headline_usd.best)
    assert one.headline_usd.low < one.headline_usd.best < one.headline_usd.high
