"""What the site adds to the machine: overhead, the meter, carbon."""

from ridgeline.facility.site import FacilityEstimate, energy_at_meter, power_at_meter_w

__all__ = ["FacilityEstimate", "energy_at_meter", "power_at_meter_w"]
