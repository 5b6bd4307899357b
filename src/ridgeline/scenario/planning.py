"""From a scenario to an answer: machines with their laws and prices, the search, the answer around its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ridgeline.catalog import Catalog
from ridgeline.core import FrozenMap, Interval, Note
from ridgeline.cost import CostTerms, Ownership, newest_quotes
from ridgeline.errors import BadFact, BadPlan, NoFeasiblePlan, RidgelineError, ScenarioError, shown
from ridgeline.power import PowerLaw
from ridgeline.scenario.answer import PlanAnswer
from ridgeline.scenario.calibrating import calibrated
from ridgeline.scenario.defaults import engine_name, software_name
from ridgeline.scenario.fitting import length_notes, require_fitting
from ridgeline.scenario.goodput import reliability_of
from ridgeline.scenario.load import Candidate, Scenario
from ridgeline.scenario.schema import TrainFile
from ridgeline.search import (
    Limits,
    Machine,
    SearchResult,
    ServingRequest,
    Terms,
    TrainingRequest,
    rank_serving,
    rank_training,
    rejected_text,
)
from ridgeline.specs import Load, Transformer
from ridgeline.workload.training_adapters import adapter_parameters_count

Found = TypeVar("Found")

_OF_STEPS = (
    "days are those of the steps; limits, energy and money count the run with its failures and checkpoints; evaluation"
    " is left out"
)
_POWER_SHARES = (
    "base_frac",
    "compute_share_frac",
    "memory_share_frac",
    "idle_frac",
    "host_activity_frac",
    "host_frac",
    "serving_compute_share_frac",
)


def plan(scenario: Scenario, *, progress: Callable[[str], None] | None = None) -> PlanAnswer:
    """Try the layouts of all candidates and rank them.

    Raises `NoFeasiblePlan` with counted reasons where no candidate has a feasible plan, and `BadPlan` where that is
    so because parts of the layout that the scenario fixes do not divide.
    """
    answer = planned(scenario, progress)
    if not answer.rows:
        raise infeasible_error(scenario, answer)
    return answer


def planned(
    scenario: Scenario, progress: Callable[[str], None] | None = None, machines: Sequence[Machine] = ()
) -> PlanAnswer:
    """As `plan`, with an answer without rows where no candidate has a feasible plan.

    `machines` of `machines_of`, where they are there already; then remarks on what was filled in are not told again.
    """
    terms = terms_of(scenario)
    require_fitting(scenario)
    notes: list[Note] = [*scenario.catalog.notes, *length_notes(scenario)]
    machines = machines or machines_of(scenario, notes)
    result: SearchResult[Any]
    if scenario.kind == "train":
        notes.append(Note("not-modelled", _OF_STEPS))
        result = rank_training(training_request(scenario), machines, terms, progress)
    else:
        if scenario.file.limits.deadline is not None:
            notes.append(Note("hint", "limits.deadline is a limit of training runs and is not used for serving"))
        result = rank_serving(serving_request(scenario), machines, terms, progress)
    return PlanAnswer.of(scenario, result, notes)


def terms_of(scenario: Scenario) -> Terms:
    """Site, limits, objective and the shares of the power and cost models (the scenario's, else assumed)."""
    file = scenario.file
    limits = Limits(deadline_s=file.limits.deadline, budget_usd=file.limits.budget, power_w=file.limits.power)
    ownership = Ownership(
        depreciation_s=_given_or_fact(scenario.catalog, file.cost.depreciation, "ownership.depreciation"),
        utilisation_frac=_given_or_fact(scenario.catalog, file.cost.utilisation, "ownership.utilisation"),
        network_frac=_given_or_fact(scenario.catalog, file.cost.network, "ownership.network"),
        facts=FrozenMap(
            {
                field: fact
                for field, given, fact in (
                    ("depreciation_s", file.cost.depreciation, "ownership.depreciation"),
                    ("utilisation_frac", file.cost.utilisation, "ownership.utilisation"),
                    ("network_frac", file.cost.network, "ownership.network"),
                )
                if given is None
            }
        ),
    )
    return Terms(
        site=scenario.site,
        limits=limits,
        objective=file.objective,  # type: ignore[arg-type]
        power=power_law(scenario.catalog),
        cost=CostTerms(basis=file.cost.basis or "", price_kind=file.cost.price, ownership=ownership),
    )


def power_law(catalog: Catalog) -> PowerLaw:
    """The assumed shares of the power models."""
    shares = {name: _interval(catalog, f"power.{name}") for name in _POWER_SHARES}
    return PowerLaw(**shares, facts=FrozenMap({name: f"power.{name}" for name in _POWER_SHARES}))


def _given_or_fact(catalog: Catalog, given: float | None, fact_id: str) -> Interval:
    return Interval.exact(given) if given is not None else _interval(catalog, fact_id)


def _interval(catalog: Catalog, fact_id: str) -> Interval:
    fact = catalog.fact(fact_id)
    if isinstance(fact.value, bool) or not isinstance(fact.value, (int, float)) or fact.value < 0:
        raise BadFact(f"{fact_id}: got {shown(fact.value)}, expected a number, 0 or more")
    best = float(fact.value)
    return Interval(fact.low if fact.low is not None else best, best, fact.high if fact.high is not None else best)


def training_request(scenario: Scenario) -> TrainingRequest:
    """The training job of a scenario."""
    train = scenario.file.workload.train
    if train is None:
        raise ScenarioError(f"{scenario.place('workload')}: has no `train`")
    pins: dict[str, float | str | bool] = {
        field: value
        for field, value in (
            ("tensor_count", train.tensor),
            ("pipeline_count", train.pipeline),
            ("data_count", train.data),
            ("context_count", train.context),
            ("expert_count", train.expert),
            ("interleave_count", train.interleave),
            ("micro_batch_count", train.micro_batch),
            ("recompute", train.recompute),
            ("sharding", train.sharding),
            ("schedule", train.schedule),
            ("sequence_parallel", train.sequence_parallel),
            ("offload_optimizer", train.offload_optimizer),
            ("offload_weights", train.offload_weights),
            ("offload_activations", train.offload_activations),
            ("trainable_frac", _trainable(train, scenario.model)),
            ("frozen_precision", train.frozen),
            ("adapter_rank", train.adapter_rank),
            ("adapter_targets", train.adapter_targets),
            ("ahead_count", train.predict_ahead),
            ("first_layers_count", train.first_layers),
            ("last_layers_count", train.last_layers),
            ("document_tokens", train.packing.document),
            ("real_frac", train.packing.real if train.packing.real < 1 else None),
            ("node_samples_per_s", train.input.rate),
            ("storage_samples_per_s", _storage_samples(train)),
        )
        if value is not None
    }
    return TrainingRequest(
        model=scenario.model,
        tokens_count=train.tokens,
        sequence_tokens=train.sequence,
        global_batch_count=train.global_batch,
        precision=train.precision,
        pins=FrozenMap(pins),
    )


def _trainable(train: TrainFile, model: Transformer) -> float | None:
    """Share of the parameters that is trained: as said, else that of the adapters."""
    if train.trainable is not None or train.adapter_rank is None:
        return train.trainable
    return min(
        1.0,
        adapter_parameters_count(model, train.adapter_rank, train.adapter_targets or "all") / model.parameters_count,
    )


def _storage_samples(train: TrainFile) -> float | None:
    """Sequences a second that the file system gives."""
    if train.input.storage is None or train.input.sample is None:
        return None
    return train.input.storage / train.input.sample


def serving_request(scenario: Scenario) -> ServingRequest:
    """The serving load of a scenario."""
    serve = scenario.file.workload.serve
    if serve is None:
        raise ScenarioError(f"{scenario.place('workload')}: has no `serve`")
    pins = {
        field: value
        for field, value in (
            ("tensor_count", serve.tensor),
            ("pipeline_count", serve.pipeline),
            ("expert_count", serve.expert),
            ("attention_data_count", serve.attention_data),
            ("replica_count", serve.replicas),
            ("max_batch_count", serve.max_batch),
            ("max_batch_tokens", serve.max_batch_tokens),
        )
        if value is not None
    }
    return ServingRequest(
        model=scenario.model,
        load=Load(
            input_tokens=float(serve.input),
            output_tokens=float(serve.output),
            rate_per_s=serve.rate,
            concurrency_count=float(serve.concurrency) if serve.concurrency is not None else None,
            ttft_p95_s=serve.ttft_p95,
            tpot_p95_s=serve.tpot_p95,
            e2e_p95_s=serve.latency_p95,
        ),
        weight_precision=serve.precision or "",
        activation_precision=serve.activations or "",
        kv_precision=serve.kv or "",
        pins=FrozenMap(pins),
    )


def machines_of(scenario: Scenario, notes: list[Note]) -> list[Machine]:
    """Every size of every candidate; what was filled in is added to `notes`."""
    return [machine for item in scenario.candidates for machine in _machines(item, scenario, notes)]


def _machines(candidate: Candidate, scenario: Scenario, notes: list[Note]) -> list[Machine]:
    catalog, system, file = scenario.catalog, candidate.system, scenario.file
    software = engine = None
    if file.workload.train is not None:
        name = file.workload.train.software or software_name(system.chip)
        software = _named(scenario, "train", "software", lambda: catalog.software(name))
        if file.workload.train.software is None:
            notes.append(Note("fill", f"training software on {system.id} not named: {software.name or name} is taken"))
    elif file.workload.serve is not None:
        name = file.workload.serve.engine or engine_name(system.chip, scenario.model, file.workload.serve.output)
        engine = _named(scenario, "serve", "engine", lambda: catalog.engine(name))
        if file.workload.serve.engine is None:
            text = f"serving engine on {system.id} not named: {engine.name or name} {engine.version} is taken"
            notes.append(Note("fill", text))
    calibration = calibrated(catalog.calibration(system.chip.id), scenario.own_laws)
    quotes = FrozenMap(newest_quotes(candidate.prices, system.id))
    reliability = None if file.workload.train is None else reliability_of(catalog, system, file.failures)
    return [
        Machine(
            system=system,
            devices_count=count,
            calibration=calibration,
            quotes=quotes,
            software=software,
            engine=engine,
            reliability=reliability,
        )
        for count in candidate.devices
    ]


def _named(scenario: Scenario, part: str, key: str, find: Callable[[], Found]) -> Found:
    try:
        return find()
    except RidgelineError as error:
        raise ScenarioError(f"{scenario.place('workload', part, key)}: {error}") from None


def infeasible_error(scenario: Scenario, answer: PlanAnswer) -> RidgelineError:
    """The error for an answer without rows: what stood in the way on each machine, and the counts."""
    lines = [f"  {item.system_id} x {item.devices_count}: {'; '.join(item.reasons)}" for item in answer.infeasible]
    rejected = dict(answer.rejected)
    counts = rejected_text(rejected, answer.tried_count)
    request = training_request(scenario) if scenario.kind == "train" else serving_request(scenario)
    if request.pins and not any(item.divided_count or item.beyond_layout for item in answer.infeasible):
        spot = scenario.place("workload", scenario.kind)
        return BadPlan(f"{spot}: the layout does not divide\n" + "\n".join(lines))
    return NoFeasiblePlan(f"no feasible plan for {scenario.model.id}: {counts}\n" + "\n".join(lines), rejected)
