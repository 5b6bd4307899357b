"""What a search answers: rows in order, what was infeasible and why, and how many layouts fell for which reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ridgeline.core import FrozenMap, Interval, Note
from ridgeline.cost import CostEstimate
from ridgeline.facility import FacilityEstimate
from ridgeline.power import PowerEstimate
from ridgeline.search.layouts import SLOW
from ridgeline.search.terms import Limits
from ridgeline.serving import ServingEstimate
from ridgeline.specs import Calibration, ServingPlan, SoftwareProfile, System, TrainingPlan
from ridgeline.training import GoodputEstimate, TrainingEstimate
from ridgeline.units import show


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """The best layout of a training job on one machine. `used_count` of `devices_count` devices work; all are paid.

    `run_s` is the time of the steps alone; `goodput` the run with its failures (None where nothing is known of them).
    `power` is that of the steps; `facility` and `cost` are those of the whole run. `power` and `facility` are None
    where a figure of the chip is missing that power needs; `notes` say which.
    """

    system: System
    devices_count: int
    used_count: int
    plan: TrainingPlan
    estimate: TrainingEstimate
    run_s: Interval
    power: PowerEstimate | None
    facility: FacilityEstimate | None
    cost: CostEstimate
    notes: tuple[Note, ...]
    calibration: Calibration
    software: SoftwareProfile
    tried_count: int
    rejected: FrozenMap[str, int]
    goodput: GoodputEstimate | None = None

    @property
    def elapsed_s(self) -> Interval:
        """How long the run takes: with failures where they are known, else its steps."""
        return self.run_s if self.goodput is None else self.goodput.run_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRow:
    """The best layout of a serving system on one machine.

    `power` is the mean; `facility` and `cost` are those of one hour. `usd_per_mtoken` and `j_per_token` are per output
    token (per input token where nothing is generated); None where there is no price. Power and what follows from it
    are None where a figure of the chip is missing that power needs; `notes` say which.
    """

    system: System
    devices_count: int
    used_count: int
    plan: ServingPlan
    estimate: ServingEstimate
    power: PowerEstimate | None
    facility: FacilityEstimate | None
    cost: CostEstimate
    notes: tuple[Note, ...]
    usd_per_mtoken: Interval | None
    j_per_token: Interval | None
    calibration: Calibration
    tried_count: int
    rejected: FrozenMap[str, int]

    @property
    def mfu_frac(self) -> float | None:
        """Arithmetic of a device over its dense peak for what the weights are multiplied with; None without a peak."""
        chip, precision = self.system.chip, self.plan.activation_precision
        return self.estimate.flop_per_s_per_device / chip.peak(precision) if chip.has_peak(precision) else None

    @property
    def bandwidth_frac(self) -> float | None:
        """Memory traffic of a device over its peak bandwidth; None where that is not known."""
        peak = self.system.chip.memory_bandwidth_bytes_per_s
        return self.estimate.memory_bytes_per_s_per_device / peak if peak else None


Row = TypeVar("Row", TrainingRow, ServingRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """A machine on which no layout is feasible, or whose best one breaks a limit. `reasons` are sentences;
    `divided_count` layouts kept every rule before memory, time and limits were asked; `beyond_layout`: no layout
    could change it (the chip lacks the number format)."""

    system_id: str
    devices_count: int
    reasons: tuple[str, ...]
    rejected: FrozenMap[str, int] = field(default_factory=FrozenMap)
    divided_count: int = 0
    beyond_layout: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Generic[Row]):
    """Rows by rank, machines without a feasible plan, and rejected layouts by reason over all machines.

    `unsearched` names machines that were not reached because the user stopped the search.
    """

    rows: tuple[Row, ...]
    infeasible: tuple[Infeasible, ...]
    rejected: FrozenMap[str, int]
    tried_count: int
    unsearched: tuple[str, ...] = ()


def add_counts(groups: Iterable[Mapping[str, int]]) -> FrozenMap[str, int]:
    """Counts by reason, added up, the most frequent first.

    >>> add_counts([{"memory": 2}, {"memory": 1, "divisibility": 7}])
    FrozenMap({'divisibility': 7, 'memory': 3})
    """
    whole: dict[str, int] = {}
    for group in groups:
        for reason, count in group.items():
            whole[reason] = whole.get(reason, 0) + count
    return FrozenMap(dict(sorted(whole.items(), key=lambda item: (-item[1], item[0]))))


def rejected_text(rejected: Mapping[str, int], tried_count: int = 0) -> str:
    """The counts as a sentence; layouts that a bound left out are not rejected and come after.

    >>> rejected_text({"memory": 300, "divisibility": 112, SLOW: 50}, 1500)
    '412 of 1,500 layouts rejected: 300 memory, 112 divisibility; 50 not better by a lower bound'
    """
    of = f" of {tried_count:,}" if tried_count else ""
    broken = {reason: count for reason, count in rejected.items() if reason != SLOW}
    left_out = f"; {rejected[SLOW]:,} {SLOW}" if rejected.get(SLOW) else ""
    whole = sum(broken.values())
    many = "s" if max(whole, tried_count) != 1 else ""
    if not whole:
        return f"none{of} layout{many} rejected{left_out}" if of or left_out else "no layout to try"
    parts = ", ".join(f"{count:,} {reason}" for reason, count in broken.items())
    return f"{whole:,}{of} layout{many} rejected: {parts}{left_out}"


def broken_limits(
    limits: Limits, run_s: float | None, facility: FacilityEstimate | None, money_usd: float | None, per: str = ""
) -> list[tuple[str, str]]:
    """Each limit that a plan breaks: its name and a sentence with what it takes and what is allowed.

    A limit without a figure to hold against it is broken: nothing says that it is kept.
    """
    found = []
    if limits.deadline_s is not None and run_s is not None and run_s > limits.deadline_s:
        found.append(("deadline", f"takes {show(run_s, 'time')}, deadline {show(limits.deadline_s, 'time')}"))
    if limits.power_w is not None:
        allowed = show(limits.power_w, "power")
        if facility is None:
            found.append(("power", f"has no known power to hold against the limit of {allowed}"))
        elif facility.meter_w.best > limits.power_w:
            found.append(("power", f"draws {show(facility.meter_w.best, 'power')}, limit {allowed}"))
    if limits.budget_usd is not None:
        budget = show(limits.budget_usd, "money")
        if money_usd is None:
            found.append(("budget", f"has no price to hold against the budget of {budget}{per}"))
        elif money_usd > limits.budget_usd:
            found.append(("budget", f"costs {show(money_usd, 'money')}{per}, budget {budget}{per}"))
    return found
