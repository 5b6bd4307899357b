"""Renting: a price for each device and second."""

from __future__ import annotations

from typing import Any

from ridgeline.core import model


@model(id="rent", sources=("rl-definition",))
def rent_usd(devices_count: Any, time_s: Any, per_device_usd_per_s: Any) -> Any:
    """Rent of `devices_count` devices for `time_s` [USD]; energy and cooling are in the price.

    Does not model minimum terms, egress, storage or interruptions of spot capacity.

    >>> rent_usd(8, 3600.0, 0.001)
    28.8
    """
    return devices_count * time_s * per_device_usd_per_s
