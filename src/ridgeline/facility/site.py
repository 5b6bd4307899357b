"""Energy and carbon at the meter of a site from the power of the machine in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ridgeline.core import Breakdown, Interval, Note, leaf, model, total
from ridgeline.specs import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilityEstimate:
    """Mean power at the meter [W], energy at the meter [J] with its parts, carbon [kg CO2e] where it is known."""

    meter_w: Interval
    energy_j: Interval
    energy: Breakdown
    carbon_kg_co2e: float | None
    notes: tuple[Note, ...] = ()


@model(id="power-at-meter", sources=("iso-30134-2",))
def power_at_meter_w(machine_w: Any, pue_frac: Any) -> Any:
    """Power that the site draws for a machine [W]: its power times the power usage effectiveness (>= 1).

    Assumes that the overhead follows the load; sites have a fixed part too, which a mean PUE already contains.

    >>> power_at_meter_w(1000.0, 1.25)
    1250.0
    """
    return machine_w * pue_frac


def energy_at_meter(machine_w: Interval, time_s: Interval, site: Site) -> FacilityEstimate:
    """Energy and carbon of running a machine of mean power `machine_w` for `time_s` at `site`.

    Power and time are taken as independent for the interval.
    """
    meter_w = machine_w.scaled(site.pue_frac)
    machine_j = machine_w.best * time_s.best
    energy = total(
        "energy",
        "J",
        [
            leaf("machine", machine_j, "J"),
            leaf("site overhead", machine_j * (site.pue_frac - 1), "J", model="power-at-meter"),
        ],
    )
    sigma = (machine_w.sigma**2 + time_s.sigma**2) ** 0.5
    carbon = site.carbon_kg_co2e_per_j
    return FacilityEstimate(
        meter_w=meter_w,
        energy_j=Interval.from_sigma(energy.value, sigma),
        energy=energy,
        carbon_kg_co2e=None if carbon is None else carbon * energy.value,
    )
