"""A machine that one can buy or rent, up to thousands of nodes: devices, links, host and power."""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline.core import FrozenMap
from ridgeline.errors import MissingFact
from ridgeline.specs.chip import Chip


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A kind of link: bandwidth of one direction, latency, and what was measured on it."""

    id: str
    type: str = ""
    oneway_bytes_per_s: float | None = None
    achieved_oneway_bytes_per_s: float | None = None
    latency_s: float | None = None
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def need(self, field_name: str, why: str = "") -> float:
        """The figure `field_name`; `MissingFact` where no source gives it."""
        value = getattr(self, field_name)
        if value is None:
            raise MissingFact(self.facts.get(field_name, f"{self.id}.{field_name}"), why)
        return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """One level of a topology, inner to outer.

    `size_count` devices can talk to each other at this level or below (None: as many as the system has).
    `oneway_bytes_per_s` is per device and direction: what one device can send into this level when all send.
    `kind`: "switch" (any to any at full rate), "mesh" (direct links to each peer: a pair gets only its own link),
    "torus2d", "torus3d", "pcie" (shared host bridges), "fat-tree" (rail-optimised or not), "ethernet".
    `oversubscription` >= 1 divides the bandwidth for groups wider than `full_rate_count` devices. `ring_stops_count`:
    ranks that a device has in one cycle through all devices of a group, where the library walks such a cycle instead
    of rings over the axes (0: it does not). `slice_count`: devices of the slice of a torus that the job holds, which
    decides the axes that close into rings (0: not known, the group at hand is taken to be the slice).
    `device_oneway_bytes_per_s`: the rate of each device of a domain where they differ (one card in a narrower slot);
    groups run side by side and wait for each other, so that the slowest link is the pace.
    """

    name: str
    kind: str
    link: str
    size_count: int | None
    oneway_bytes_per_s: float
    latency_s: float
    transport: str = ""
    in_switch_reduction: bool = False
    oversubscription: float = 1.0
    full_rate_count: int | None = None
    axes: tuple[int, ...] = ()
    ring_stops_count: int = 0
    slice_count: int = 0
    device_oneway_bytes_per_s: tuple[float, ...] = ()
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    @property
    def pace_oneway_bytes_per_s(self) -> float:
        """What every device can send when all do: that of the slowest link [B/s]."""
        return min((self.oneway_bytes_per_s, *self.device_oneway_bytes_per_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The processors around the devices of one node."""

    cpu: str = ""
    socket_count: int = 0
    memory_bytes: float | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    storage_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A node (or slice, or rack) and how it scales out.

    `node_power_w` is the maker's maximum of the whole node, `node_idle_w` at rest; None where unknown.
    `sizes_count` lists the device counts that exist where they are not every multiple of a node (TPU slices).
    """

    id: str
    name: str
    chip: Chip
    devices_per_node_count: int
    levels: tuple[NetworkLevel, ...]
    host: Host = field(default_factory=Host)
    node_power_w: float | None = None
    node_idle_w: float | None = None
    max_devices_count: int | None = None
    sizes_count: tuple[int, ...] = ()
    cloud: str = ""
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def need(self, field_name: str, why: str = "") -> float:
        """The figure `field_name`; `MissingFact` where no source gives it."""
        value = getattr(self, field_name)
        if value is None:
            raise MissingFact(self.facts.get(field_name, f"{self.id}.{field_name}"), why)
        return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """The ranks of one collective and how they lie on the machine.

    `size_count` ranks take part; `stride_count` is the distance between neighbours in device numbering (1:
    consecutive devices, so within a node first). With tensor parallelism 8 on 8-device nodes, the tensor group is
    (8, stride 1) and the data group is (d, stride 8): one rank a node, with 8 such groups side by side.
    """

    size_count: int
    stride_count: int = 1
