"""One accelerator or processor, as the maker ships it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ridgeline.core import FrozenMap
from ridgeline.errors import MissingFact
from ridgeline.specs.precision import PEAK_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A device: what one rank of a job runs on (one GPU, one TPU chip, one NeuronCore pair...).

    None means that no source gives the figure; `need` raises `MissingFact` for it. Peaks are dense and at the
    published boost clock; bandwidths are as published, not achieved; link figures are one direction, summed over
    the links of the device. `memory_capacity_bytes` is the published figure, `memory_usable_bytes` what the
    driver offers. `facts` maps a field (or `peak_dense_flop_per_s.bf16`) to its fact id.
    """

    id: str
    name: str = ""
    vendor: str = ""
    kind: str = "gpu"
    architecture: str = ""
    year_count: int | None = None
    peak_dense_flop_per_s: FrozenMap[str, float] = field(default_factory=FrozenMap)
    memory_type: str = ""
    memory_capacity_bytes: float | None = None
    memory_usable_bytes: float | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    unit_count: int | None = None
    clock_hz: float | None = None
    l2_bytes: float | None = None
    tdp_w: float | None = None
    idle_w: float | None = None
    scale_up_link: str = ""
    scale_up_oneway_bytes_per_s: float | None = None
    scale_up_domain_count: int | None = None
    host_link: str = ""
    host_oneway_bytes_per_s: float | None = None
    slowdown_temperature_k: float | None = None
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)

    def need(self, field_name: str, why: str = "") -> float:
        """The figure `field_name`; `MissingFact` naming it where no source gives it."""
        value = getattr(self, field_name)
        if value is None:
            raise MissingFact(self.fact_id(field_name), why)
        return float(value)

    def peak(self, precision: str, why: str = "") -> float:
        """Dense peak for matrix work in `precision` [FLOP/s]; never that of a neighbouring precision.

        fp16 and bf16 stand in for each other (they run at one rate on every part that has both), and tf32 falls
        to fp32 where there is no such unit. Anything else that is absent raises.
        """
        for key in PEAK_KEYS.get(precision, (precision,)):
            if key in self.peak_dense_flop_per_s:
                return self.peak_dense_flop_per_s[key]
        raise MissingFact(f"{self.id}.peak_dense.{precision}", why)

    def has_peak(self, precision: str) -> bool:
        """Whether `peak` would answer."""
        return any(key in self.peak_dense_flop_per_s for key in PEAK_KEYS.get(precision, (precision,)))

    def peak_key(self, precision: str) -> str:
        """The entry of the peak table that `peak` reads for `precision`."""
        for key in PEAK_KEYS.get(precision, (precision,)):
            if key in self.peak_dense_flop_per_s:
                return key
        raise MissingFact(f"{self.id}.peak_dense.{precision}")

    def memory_bytes(self) -> float:
        """Memory that a program can have: the driver's figure, else the published one."""
        if self.memory_usable_bytes is not None:
            return self.memory_usable_bytes
        return self.need("memory_capacity_bytes")

    def fact_id(self, field_name: str) -> str:
        """Id of the fact behind a field, for `uses`."""
        return self.facts.get(field_name, f"{self.id}.{field_name}")

    def missing(self) -> tuple[str, ...]:
        """Names of the figures that no source gives."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) is None)
