"""Networks: collective algorithms, the levels of a machine that they span, and how long they take."""

from ridgeline.network.estimate import CollectiveTime, collective_time, collective_times_s
from ridgeline.network.laws import law_for, published_law
from ridgeline.network.topology import Tier, tiers
from ridgeline.network.torus import sliced

__all__ = [
    "CollectiveTime",
    "Tier",
    "collective_time",
    "collective_times_s",
    "law_for",
    "published_law",
    "sliced",
    "tiers",
]
