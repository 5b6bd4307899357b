"""Power of what stands around the chips of a node: processors, memory, fans, network cards, power supplies."""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.core import model


@model(id="host-power-from-node-maximum", sources=("latif-2024", "rl-power-form"))
def host_power_from_maximum_w(
    node_maximum_w: Any, devices_count: Any, tdp_w: Any, chip_power_frac: Any, activity_frac: Any
) -> Any:
    """Draw of a node beside its chips [W], from the maker's maximum for the whole node.

    The maximum less the chips' TDP is what the rest may draw; `activity_frac` of it is drawn when the chips run
    at their TDP. Half of that follows the chips (fans, conversion losses), half is there at any load.

        H = a (N - n TDP) (1 + P_chip / TDP) / 2

    `chip_power_frac` is P_chip / TDP. Assumes that the maximum of the maker includes chips at their TDP.

    >>> round(float(host_power_from_maximum_w(10200.0, 8, 700.0, 1.0, 0.6)), 1)
    2760.0
    """
    rest_w = np.maximum(0.0, node_maximum_w - devices_count * tdp_w)
    return activity_frac * rest_w * (1.0 + chip_power_frac) * 0.5


@model(id="host-power-from-fraction", sources=("rl-power-form",))
def host_power_from_fraction_w(devices_count: Any, tdp_w: Any, host_frac: Any) -> Any:
    """Draw of a node beside its chips [W] where no maximum is published: a share of the chips' TDP.

    >>> host_power_from_fraction_w(8, 400.0, 0.35)
    1120.0
    """
    return devices_count * tdp_w * host_frac


@model(id="server-wall-power", sources=("rl-power-form",))
def server_wall_w(chips_w: Any, around_w: Any, fans_frac: Any, supply_frac: Any) -> Any:
    """Draw of a server at the wall [W]: chips and what is around them, fans in proportion, losses of the supply.

        W = (chips + around) (1 + fans) / supply

    >>> round(float(server_wall_w(1000.0, 250.0, 0.05, 0.94)), 1)
    1396.3
    """
    return (chips_w + around_w) * (1.0 + fans_frac) / supply_frac
