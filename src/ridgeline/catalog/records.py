"""What the catalogue hands out beside specs: facts, sources and model records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ridgeline.core import FrozenMap

# datasheet: the maker's published figure, read directly or through a transcription that cites the maker.
# paper: a publication with authors. measured: read from a device or timed. derived: arithmetic on other facts.
# secondary: a public text that is not the maker's and could not be traced to it. assumed: our judgement, with range.
# unsourced: a descriptive label that nobody has checked.
FACT_KINDS = ("datasheet", "paper", "measured", "derived", "secondary", "assumed", "unsourced")
# Folders of the data directory, each a kind of record.
RECORD_KINDS = (
    "sources",
    "devices",
    "links",
    "systems",
    "prices",
    "tariffs",
    "assumptions",
    "models",
    "engines",
    "software",
    "efficiency",
    "labels",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One figure or label of one record, with where it comes from.

    `value` is an SI float where `unit` is not empty (or where the dimension is a plain count), otherwise the text,
    list or flag as written. `written` is the figure as the file gives it ("3.35 TB/s"). `kind` is one of
    `FACT_KINDS`. `source` is the first of `sources`; `at` says where in it. `basis` is the arithmetic of a derived
    fact, `why` the reason of an assumed one, `low`/`high` its range in the same unit. `was` is the figure that
    a correction replaced, `conflict` what disagrees and could not be settled.
    """

    id: str
    value: Any
    unit: str = ""
    kind: str
    source: str = ""
    sources: tuple[str, ...] = ()
    at: str = ""
    note: str = ""
    why: str = ""
    basis: str = ""
    low: float | None = None
    high: float | None = None
    date: str = ""
    written: str = ""
    was: str = ""
    conflict: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the empty entries."""
        names = Fact.__slots__
        data = {name: getattr(self, name) for name in names}
        data["sources"] = list(self.sources)
        return {name: value for name, value in data.items() if value not in ("", None, [])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A paper, datasheet, price page, repository or measurement that facts come from.

    `kind`: "datasheet", "documentation", "standard", "paper", "repository", "dataset", "news", "web", "measurement",
    "project" (decisions of our own). `trust`: "maker" (of the thing described), "independent", "unverified".
    """

    id: str
    title: str
    kind: str
    trust: str
    url: str = ""
    repository: str = ""
    commit: str = ""
    path: str = ""
    authors: str = ""
    publisher: str = ""
    date: str = ""
    licence: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the empty entries."""
        data = {name: getattr(self, name) for name in Source.__slots__}
        return {name: value for name, value in data.items() if value != ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a device label in somebody's table means.

    `device` and `system` are ids (`system`: the machine that the label or the source names, else the standard one of
    the device, "" where there is none). `devices_count` of our devices count as one in the label. `cpu` is the device
    of rows that ran on the processor of the machine, "" where the label has no such device.
    """

    text: str
    device: str
    system: str = ""
    devices_count: int = 1
    cpu: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A neural network in the catalogue: its configuration (Hugging Face keys) and where that comes from."""

    id: str
    aliases: tuple[str, ...] = ()
    name: str = ""
    config: dict[str, Any]
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)
    source: str = ""
    date: str = ""
    note: str = ""
