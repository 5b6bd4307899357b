"""What chips, nodes and whole machines draw, from how busy they are."""

from ridgeline.power.chip import chip_power_w
from ridgeline.power.estimate import Activity, PowerEstimate, PowerLaw, estimate_chips, estimate_power
from ridgeline.power.node import host_power_from_fraction_w, host_power_from_maximum_w, server_wall_w
from ridgeline.power.serving import serving_activity

__all__ = [
    "Activity",
    "PowerEstimate",
    "PowerLaw",
    "chip_power_w",
    "estimate_chips",
    "estimate_power",
    "host_power_from_fraction_w",
    "host_power_from_maximum_w",
    "server_wall_w",
    "serving_activity",
]
