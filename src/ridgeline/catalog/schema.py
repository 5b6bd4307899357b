"""Shape of every YAML file of the catalogue: strict pydantic models, one a kind of record.

Only the shape is checked here (keys, types, allowed words, what a kind of fact must carry). Units, dimensions and
plausible ranges are checked by `compile`, which knows which field is being read. This module is imported only when
YAML is read: when the shipped catalogue is compiled and for folders that a user adds.
"""

from __future__ import annotations

import datetime
import math
import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

T = TypeVar("T", bound="RecordIn")
Scalar = str | int | float | bool
Id = Annotated[str, Field(pattern=r"^[a-z0-9]+([.\-][a-z0-9]+)*$")]
SourceRef = Id | list[Id]


def _date_text(value: object) -> object:
    """Dates as ISO text; YAML reads 2026-11-30 as a date and 2025 as a number."""
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


DateText = Annotated[str, BeforeValidator(_date_text)]
Positive = Annotated[int, Field(ge=1)]


_DATE = re.compile(r"[0-9]{4}([-/][0-9]{2,4}){0,3}")
_TORUS_AXES = {"torus2d": 2, "torus3d": 3}


def _is_date(text: str) -> bool:
    """Whether `text` is a day, a month or a year in ISO form, or a span of them.

    >>> _is_date("2026-01"), _is_date("2025/26"), _is_date("2026-13-01"), _is_date("soon")
    (True, True, False, False)
    """
    try:
        return _DATE.fullmatch(text) is not None and (text.count("-") != 2 or bool(datetime.date.fromisoformat(text)))
    except ValueError:
        return False


class Strict(BaseModel):
    """No unknown keys, no silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False)


class FactIn(Strict):
    """One value with its kind and source, as HOUSE section 7 has it."""

    v: Scalar | list[Any] | dict[str, Any]
    kind: Literal["datasheet", "paper", "measured", "derived", "secondary", "assumed", "unsourced"]
    src: SourceRef | None = None
    at: str = ""
    note: str = ""
    basis: str = Field(default="", alias="from")
    why: str = ""
    lo: Scalar | None = None
    hi: Scalar | None = None
    date: DateText = ""
    was: str = ""
    conflict: str = ""
    dim: str = ""

    @model_validator(mode="after")
    def _kind_needs(self) -> FactIn:
        if self.kind == "assumed":
            lacking = [
                key for key, value in (("why", self.why), ("lo", self.lo), ("hi", self.hi)) if value in ("", None)
            ]
            if lacking:
                raise ValueError(f"kind assumed needs {', '.join(lacking)}")
        elif self.kind == "derived" and not self.basis:
            raise ValueError("kind derived needs `from` (the arithmetic)")
        elif self.kind == "unsourced" and self.src:
            raise ValueError("kind unsourced contradicts `src`")
        if self.kind not in ("assumed", "unsourced", "derived") and not self.src:
            raise ValueError(f"kind {self.kind} needs `src` (the id of a file in sources/)")
        return self


class RecordIn(Strict):
    """What all records share. `extends` starts from an existing record and changes what is given."""

    id: Id
    aliases: list[str] = []
    name: str = ""
    note: str = ""
    extends: Id | None = None
    more: dict[str, FactIn] = {}


class SourceIn(Strict):
    """A source; see `records.Source`."""

    id: Id
    title: str
    kind: Literal[
        "datasheet",
        "documentation",
        "standard",
        "paper",
        "repository",
        "dataset",
        "news",
        "web",
        "measurement",
        "project",
    ]
    trust: Literal["maker", "independent", "unverified"]
    url: str = ""
    repository: str = ""
    commit: str = ""
    path: str = ""
    authors: str = ""
    publisher: str = ""
    date: DateText = ""
    licence: str = ""
    note: str = ""


class DeviceIn(RecordIn):
    """A chip: `facts` takes the keys of `fields.DEVICE_FIELDS`, everything else goes under `more`."""

    vendor: str | None = None
    kind: Literal["gpu", "tpu", "asic", "npu", "cpu", "edge", "fpga", "neuromorphic", "photonic", "quantum", None] = (
        None
    )
    architecture: str | None = None
    facts: dict[str, FactIn] = {}

    @model_validator(mode="after")
    def _whole(self) -> DeviceIn:
        return _required(self, "vendor", "kind", "architecture")


class LinkIn(RecordIn):
    """A kind of link: `facts` takes the keys of `fields.LINK_FIELDS`."""

    type: str | None = None
    facts: dict[str, FactIn] = {}

    @model_validator(mode="after")
    def _whole(self) -> LinkIn:
        return _required(self, "type")


class LevelIn(Strict):
    """One level of a system's network, inner to outer; figures left out are those of the link."""

    name: Id
    kind: Literal["switch", "mesh", "torus2d", "torus3d", "pcie", "fat-tree", "ethernet", "ring", "package"]
    link: Id
    size: Positive | None = None
    oneway: FactIn | None = None
    latency: FactIn | None = None
    transport: str = ""
    in_switch_reduction: bool = False
    oversubscription: float | int = 1.0
    full_rate: Positive | None = None
    axes: list[Positive] = []
    ring_stops: Positive | None = None
    note: str = ""

    @model_validator(mode="after")
    def _torus(self) -> LevelIn:
        wanted = _TORUS_AXES.get(self.kind)
        if wanted is None and self.axes:
            raise ValueError(f"axes are those of a torus, not of a {self.kind}")
        if wanted is not None and len(self.axes) != wanted:
            raise ValueError(f"a {self.kind} needs {wanted} axes, got {self.axes}")
        if self.axes and self.size is not None and math.prod(self.axes) != self.size:
            raise ValueError(f"axes {self.axes} hold {math.prod(self.axes)} devices, but size is {self.size}")
        return self


class HostIn(Strict):
    """The processors around the devices of one node; plain values count as descriptive."""

    cpu: str | FactIn = ""
    sockets: int | FactIn = 0
    memory: FactIn | None = None
    memory_bandwidth: FactIn | None = None
    storage_bandwidth: FactIn | None = None


class SystemIn(RecordIn):
    """A node (slice, rack) and how it scales out. `src` is the source of its structure (counts, topology).

    `default_for` lists the devices whose standard system this is, for tables that name only a device.
    """

    chip: Id | None = None
    devices_per_node: Positive | None = None
    src: SourceRef | None = None
    at: str = ""
    host: HostIn = HostIn()
    node_power: FactIn | None = None
    node_idle: FactIn | None = None
    max_devices: FactIn | int | None = None
    sizes: list[Positive] = []
    cloud: str = ""
    default_for: list[Id] = []
    levels: list[LevelIn] = []

    @model_validator(mode="after")
    def _whole(self) -> SystemIn:
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError(f"levels need different names, got {names}")
        inner = 1
        for level in self.levels:
            if level.size is not None and level.size % inner:
                raise ValueError(f"level {level.name} of {level.size} devices holds no whole groups of {inner}")
            inner = level.size or inner
        return _required(self, "chip", "devices_per_node", "src")


class PriceEntryIn(FactIn):
    """One published price; `v` is for the whole instance unless `per: device`."""

    term: Literal["on-demand", "reserved-1y", "reserved-3y", "reserved", "spot", "capacity-block", "purchase"]
    per: Literal["instance", "device"] = "instance"

    @model_validator(mode="after")
    def _dated(self) -> PriceEntryIn:
        if not self.date and not self.note:
            raise ValueError("a price needs `date` (or a note that says why there is none)")
        if self.date and not _is_date(self.date):
            raise ValueError(f"date {self.date!r} is no day, month or year such as 2026-01-31, 2026-01 or 2026")
        return self


class PriceIn(RecordIn):
    """Prices of one instance type or device of one provider."""

    system: Id | None = None
    instance: str = ""
    device: Id | None = None
    devices: Positive = 1
    provider: str = ""
    region: str = ""
    prices: list[PriceEntryIn] = []


class ModelIn(RecordIn):
    """A neural network: `config` in the keys of Hugging Face's config.json."""

    config: dict[str, Any] = {}
    date: DateText = ""
    src: SourceRef | None = None
    at: str = ""
    facts: dict[str, FactIn] = {}

    @model_validator(mode="after")
    def _whole(self) -> ModelIn:
        return _required(self, "config", "src")


class LawIn(Strict):
    """Fitted parameters of one law and how far the law was from its own held-out measurements."""

    parameters: dict[str, float | int]
    ape_p50: float | int
    ape_p90: float | int
    tiles: list[list[int]] = []
    kind: Literal["measured", "derived", "paper", "secondary", "assumed"] = "measured"
    src: SourceRef
    basis: str = Field(default="", alias="from")
    note: str = ""
    date: DateText = ""
    rows: int | None = None
    ranges: dict[str, list[float | int]] = {}


class EfficiencyIn(RecordIn):
    """Laws of one device, of one architecture, or of all devices."""

    level: Literal["device", "architecture", "universal", "published"]
    device: Id | None = None
    architecture: str | None = None
    laws: dict[str, LawIn] = {}

    @model_validator(mode="after")
    def _scoped(self) -> EfficiencyIn:
        if self.level == "device" and self.device is None:
            raise ValueError("level device needs `device`")
        if self.level == "architecture" and self.architecture is None:
            raise ValueError("level architecture needs `architecture`")
        if self.level == "universal" and (self.device or self.architecture):
            raise ValueError("level universal takes neither `device` nor `architecture`")
        return self


class FreeIn(RecordIn):
    """Engines, software, tariffs and assumptions: facts with free keys; `dim` makes a value a quantity in SI."""

    version: str = ""
    date: DateText = ""
    src: SourceRef | None = None
    facts: dict[str, FactIn] = {}
    data: dict[str, Any] = {}


class LabelSourceIn(Strict):
    """What a label means in the rows of one source; what is left out is that of the label."""

    device: Id | None = None
    system: Id | None = None


class LabelIn(Strict):
    """What a device label in somebody's table means; `device` is empty where it means no single device.

    `devices` of our devices count as one in the label (two chips on a card, a whole cluster). `system` is given where
    the label names a machine. `cpu` is the device of rows that say they ran on the processor. `by_source` is keyed by
    the exact title of a source.
    """

    device: Id | None = None
    system: Id | None = None
    devices: int = Field(default=1, ge=1)
    cpu: Id | None = None
    by_source: dict[str, LabelSourceIn] = {}
    note: str = ""
    src: SourceRef | None = None

    @model_validator(mode="after")
    def _reason(self) -> LabelIn:
        if self.device is None and not self.note:
            raise ValueError("a label that means no device needs `note` (the reason)")
        return self


class LabelsIn(Strict):
    """The file labels.yaml."""

    labels: dict[str, Id | LabelIn]


def _required(record: T, *names: str) -> T:
    """A record that does not extend another must be whole."""
    if record.extends is None:
        lacking = [name for name in names if not getattr(record, name)]
        if lacking:
            raise ValueError(f"missing {', '.join(lacking)}")
    return record


SCHEMAS: dict[str, type[Strict]] = {
    "sources": SourceIn,
    "devices": DeviceIn,
    "links": LinkIn,
    "systems": SystemIn,
    "prices": PriceIn,
    "tariffs": FreeIn,
    "assumptions": FreeIn,
    "models": ModelIn,
    "engines": FreeIn,
    "software": FreeIn,
    "efficiency": EfficiencyIn,
    "labels": LabelsIn,
}
