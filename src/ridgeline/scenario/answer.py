"""The answer to a scenario: ranked rows with their trees, what was infeasible, what it all leans on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ridgeline.catalog import Catalog, Fact
from ridgeline.core import Interval, Note, merge
from ridgeline.errors import CatalogError
from ridgeline.scenario.calibrating import laws_used
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.plain import SCHEMA_VERSION, finite
from ridgeline.search import Infeasible, SearchResult, ServingRow, TrainingRow
from ridgeline.specs import bytes_per_element
from ridgeline.training import GoodputEstimate

_DAY_S = 86400.0
_JOULE_PER_KILOWATT_HOUR = 3.6e6
LEANING = ("assumed", "secondary", "unsourced")


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One ranked machine; `found` is the row of the search (estimates, trees, intervals), `layout` a short text.

    `goodput` is a training run with its failures, restarts and checkpoints; None for serving.
    """

    rank: int
    found: TrainingRow | ServingRow
    leans: tuple[Fact, ...]
    layout: str
    goodput: GoodputEstimate | None = None

    @property
    def system(self) -> str:
        """Id of the system."""
        return self.found.system.id

    @property
    def devices(self) -> int:
        """Devices that are there and paid."""
        return self.found.devices_count

    @property
    def run_s(self) -> Interval | None:
        """How long the steps of the run take [s], without failures; None for serving."""
        return self.found.run_s if isinstance(self.found, TrainingRow) else None

    @property
    def days(self) -> float | None:
        """How long the steps of the run take, in days, without failures; None for serving."""
        return None if self.run_s is None else self.run_s.best / _DAY_S

    @property
    def days_with_failures(self) -> float | None:
        """How long the run takes with failures, restarts and checkpoints, in days; None for serving."""
        return None if self.goodput is None else self.goodput.run_s.best / _DAY_S

    @property
    def energy_j(self) -> Interval | None:
        """Energy at the meter [J]: of the run, or of an hour of serving; None where power is not known."""
        return None if self.found.facility is None else self.found.facility.energy_j

    @property
    def cost_usd(self) -> Interval | None:
        """Money that the ranking uses [USD]: of the run, or of an hour of serving; None where there is no price."""
        return self.found.cost.headline_usd

    @property
    def uses(self) -> tuple[str, ...]:
        """Ids of all facts that the row rests on."""
        return row_uses(self.found, self.goodput)

    @property
    def laws(self) -> list[dict[str, Any]]:
        """Laws of kernels and collectives behind the row: level at which each was made, and its error."""
        return laws_used(self.found.calibration, self.uses)

    @property
    def notes(self) -> tuple[Note, ...]:
        """All remarks on the row."""
        found = self.found
        idle = found.devices_count - found.used_count
        text = f"{idle:,} of {found.devices_count:,} devices stand idle: no layout divides all of them"
        own = [Note("hint", text)] if idle and isinstance(found, TrainingRow) else []
        power = () if found.power is None else found.power.notes
        failures = () if self.goodput is None else self.goodput.notes
        return merge(own, found.notes, found.estimate.notes, power, found.cost.notes, failures)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        own = _training_part(self.found) if isinstance(self.found, TrainingRow) else _serving_part(self.found)
        return {
            "rank": self.rank,
            "system": self.system,
            "system_name": self.found.system.name,
            "chip": self.found.system.chip.id,
            "devices": self.devices,
            "devices_used": self.found.used_count,
            "layout": self.layout,
            "plan": asdict(self.found.plan),
            **own,
            **_goodput_part(self.goodput),
            **_money_and_energy(self.found),
            "assumed": [fact.id for fact in self.leans if fact.kind == "assumed"],
            "secondary": [fact.id for fact in self.leans if fact.kind != "assumed"],
            "notes": [note.to_dict() for note in self.notes],
            "laws": self.laws,
            "uses": list(self.uses),
            "models": list(row_models(self.found, self.goodput)),
            "layouts_tried": self.found.tried_count,
            "rejected": dict(self.found.rejected),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """The answer of `plan`: rows by rank; machines without a feasible plan; notes; facts that all of it leans on.

    `unsearched` names machines that were not reached because the user stopped the search.
    """

    scenario: Scenario
    rows: tuple[AnswerRow, ...]
    infeasible: tuple[Infeasible, ...]
    rejected: Mapping[str, int]
    tried_count: int
    notes: tuple[Note, ...]
    unsearched: tuple[str, ...] = ()

    @classmethod
    def of(cls, scenario: Scenario, result: SearchResult[Any], notes: Iterable[Note] = ()) -> PlanAnswer:
        """The answer around a search result."""
        rows = tuple(_row(scenario, rank, found) for rank, found in enumerate(result.rows, start=1))
        return cls(
            scenario=scenario,
            rows=rows,
            infeasible=result.infeasible,
            rejected=result.rejected,
            tried_count=result.tried_count,
            notes=merge(notes),
            unsearched=result.unsearched,
        )

    @property
    def leans(self) -> tuple[Fact, ...]:
        """Assumed and secondary facts that any row rests on, in order of first use."""
        return tuple({fact.id: fact for row in self.rows for fact in row.leans}.values())

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data: JSON-ready, never NaN or infinite (null instead)."""
        file = self.scenario.file
        model = self.scenario.model
        data = finite(
            {
                "schema_version": SCHEMA_VERSION,
                "kind": self.scenario.kind,
                "objective": file.objective,
                "model": {
                    "id": model.id,
                    "family": model.family,
                    "parameters_count": model.parameters_count,
                    "active_parameters_count": model.active_parameters_count,
                },
                "assumed": [_lean(fact) for fact in self.leans if fact.kind == "assumed"],
                "secondary": [_lean(fact) for fact in self.leans if fact.kind != "assumed"],
                "rows": [row.to_dict() for row in self.rows],
                "infeasible": [
                    {
                        "system": item.system_id,
                        "devices": item.devices_count,
                        "reasons": list(item.reasons),
                        "rejected": dict(item.rejected),
                    }
                    for item in self.infeasible
                ],
                "layouts_tried": self.tried_count,
                "rejected": dict(self.rejected),
                "unsearched": list(self.unsearched),
                "notes": [note.to_dict() for note in self.notes],
            }
        )
        return dict(data)


def layout_text(scenario: Scenario, found: TrainingRow | ServingRow) -> str:
    """The layout in a few letters; weights of a quantised checkpoint are named by their narrowest format."""
    label = found.plan.label()
    serve, stored = scenario.file.workload.serve, scenario.model.precisions
    if serve is None or serve.precision is not None or not stored:
        return label
    narrowest = min(stored.values(), key=bytes_per_element)
    return label.replace(" w-", f" w-{narrowest}+", 1) if f" w-{narrowest} " not in label else label


def _row(scenario: Scenario, rank: int, found: TrainingRow | ServingRow) -> AnswerRow:
    goodput = found.goodput if isinstance(found, TrainingRow) else None
    leans = leaning_facts(scenario.catalog, row_uses(found, goodput))
    return AnswerRow(rank, found, leans, layout_text(scenario, found), goodput)


def row_uses(found: TrainingRow | ServingRow, goodput: GoodputEstimate | None = None) -> tuple[str, ...]:
    """Ids of all facts behind a row, in order of first use."""
    power = () if found.power is None else found.power.uses
    failures = () if goodput is None else goodput.uses
    return tuple(dict.fromkeys((*found.estimate.uses, *power, *found.cost.uses, *failures)))


def row_models(found: TrainingRow | ServingRow, goodput: GoodputEstimate | None = None) -> tuple[str, ...]:
    """Ids of the formulas behind the time of a row, in order of first use."""
    return tuple(dict.fromkeys((*found.estimate.models, *(() if goodput is None else goodput.models))))


def leaning_facts(catalog: Catalog, uses: Iterable[str]) -> tuple[Fact, ...]:
    """Of the facts `uses`, those that are assumed or not from the maker and not traced to it."""
    found = (find_fact(catalog, use) for use in uses)
    return tuple(fact for fact in found if fact is not None and fact.kind in LEANING)


def find_fact(catalog: Catalog, fact_id: str) -> Fact | None:
    """The fact of that id; None for what is no fact of the catalogue (figures that the scenario gives)."""
    try:
        return catalog.fact(fact_id)
    except CatalogError:
        return None


def _lean(fact: Fact) -> dict[str, Any]:
    return {
        "id": fact.id,
        "kind": fact.kind,
        "value": fact.value,
        "unit": fact.unit,
        "low": fact.low,
        "high": fact.high,
        "why": fact.why or fact.note,
        "source": fact.source,
    }


def _training_part(found: TrainingRow) -> dict[str, Any]:
    estimate = found.estimate
    return {
        "step_s": estimate.step_s.to_dict(),
        "steps": round(found.run_s.best / estimate.step_s.best),
        "run_s": found.run_s.to_dict(),
        "days": found.run_s.scaled(1 / _DAY_S).to_dict(),
        "tokens_per_s": estimate.tokens_per_s,
        "mfu_frac": estimate.mfu_frac,
        "model_flop_per_s_per_device": estimate.model_flop_per_s_per_device,
        "bubble_frac": estimate.bubble_frac,
        "time": estimate.time.to_dict(),
        "memory": estimate.memory.to_dict(),
        "memory_available_bytes": estimate.memory_available_bytes,
    }


def _goodput_part(goodput: GoodputEstimate | None) -> dict[str, Any]:
    if goodput is None:
        return {}
    return {"days_with_failures": goodput.run_s.scaled(1 / _DAY_S).to_dict(), "goodput": goodput.to_dict()}


def _serving_part(found: ServingRow) -> dict[str, Any]:
    estimate = found.estimate.to_dict()
    for key in ("schema_version", "layout", "devices", "notes", "uses", "models"):
        estimate.pop(key, None)
    return {
        "replicas": found.plan.replica_count,
        **estimate,
        "mfu_frac": found.mfu_frac,
        "bandwidth_frac": found.bandwidth_frac,
        "usd_per_mtoken": None if found.usd_per_mtoken is None else found.usd_per_mtoken.to_dict(),
        "j_per_token": None if found.j_per_token is None else found.j_per_token.to_dict(),
    }


def _money_and_energy(found: TrainingRow | ServingRow) -> dict[str, Any]:
    cost, facility, power = found.cost, found.facility, found.power
    return {
        "power": None
        if power is None or facility is None
        else {
            "chip_w": power.chip_w,
            "host_per_device_w": power.host_per_device_w,
            "machine_w": power.total_w.to_dict(),
            "meter_w": facility.meter_w.to_dict(),
            "parts": power.power.to_dict(),
        },
        "energy_j": None if facility is None else facility.energy_j.to_dict(),
        "energy_kwh": None if facility is None else facility.energy_j.best / _JOULE_PER_KILOWATT_HOUR,
        "carbon_kg_co2e": None if facility is None else facility.carbon_kg_co2e,
        "cost": {
            "period": "run" if isinstance(found, TrainingRow) else "hour",
            "headline_usd": None if cost.headline_usd is None else cost.headline_usd.to_dict(),
            "basis": cost.headline_basis,
            "rent_usd": {kind: interval.to_dict() for kind, interval in cost.rent_usd.items()},
            "own_usd": None if cost.own_usd is None else cost.own_usd.to_dict(),
            "break_even_utilisation_frac": cost.break_even_frac,
            "parts": [tree.to_dict() for tree in cost.money],
            "prices": [
                {
                    "kind": quote.kind,
                    "provider": quote.price.provider,
                    "date": quote.price.date,
                    "fact": quote.fact,
                    "offers": quote.offers_count,
                    "note": quote.price.note,
                }
                for quote in cost.quotes.values()
            ],
            "missing": list(cost.missing),
        },
    }
