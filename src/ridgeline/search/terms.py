"""What a search is given beside the job: machines, site, limits, objective, and how power and money are counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ridgeline.core import FrozenMap
from ridgeline.cost import CostTerms, Quote
from ridgeline.power import PowerLaw
from ridgeline.specs import Calibration, EngineProfile, Reliability, Site, SoftwareProfile, System

Objective = Literal["time", "cost", "energy", "devices"]
OBJECTIVES: tuple[Objective, ...] = ("time", "cost", "energy", "devices")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One size of one candidate: a system with its laws, its software or engine, and quotes for it by kind.

    `reliability`: what interrupts a training run on it (None: nothing does).
    """

    system: System
    devices_count: int
    calibration: Calibration
    quotes: FrozenMap[str, Quote] = field(default_factory=FrozenMap)
    software: SoftwareProfile | None = None
    engine: EngineProfile | None = None
    reliability: Reliability | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan may take at most: time of a run [s], money of the run or month [USD], mean power at the meter [W]."""

    deadline_s: float | None = None
    budget_usd: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Site, limits, objective, and the laws of power and money."""

    site: Site
    limits: Limits
    objective: Objective
    power: PowerLaw
    cost: CostTerms
