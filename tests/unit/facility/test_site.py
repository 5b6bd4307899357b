"""Energy, power and carbon at the meter."""

from __future__ import annotations

import pytest

from ridgeline.core import Interval
from ridgeline.facility import energy_at_meter
from ridgeline.specs import Site

DAY = 86400.0


def test_energy_and_carbon_by_hand() -> None:
    site = Site(pue_frac=1.2, carbon_kg_co2e_per_j=0.4 / 3.6e6)
    estimate = energy_at_meter(Interval.from_sigma(500e3, 0.1), Interval.from_sigma(10 * DAY, 0.2), site)
    # 500 kW x 240 h x 1.2 = 144,000 kWh; x 0.4 kg/kWh = 57.6 t
    assert estimate.energy_j.best == pytest.approx(144_000 * 3.6e6)
    assert estimate.energy_j.sigma == pytest.approx((0.1**2 + 0.2**2) ** 0.5)
    assert estimate.energy.check() == []
    assert estimate.energy.value_of("site overhead") == pytest.approx(24_000 * 3.6e6)
    assert estimate.meter_w.best == pytest.approx(600e3)
    assert estimate.carbon_kg_co2e == pytest.approx(57_600)


def test_without_carbon_intensity_there_is_no_carbon() -> None:
    assert energy_at_meter(Interval.exact(1.0), Interval.exact(1.0), Site()).carbon_kg_co2e is None
