"""`simulate` for layered networks (vision, detection): each candidate's devices behind one dynamic batcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, Note
from ridgeline.errors import NoFeasiblePlan, RidgelineError, ScenarioError
from ridgeline.scenario.answer import leaning_facts
from ridgeline.scenario.defaults import encoder_engine_name
from ridgeline.scenario.load import Candidate, _candidate
from ridgeline.scenario.planning import power_law
from ridgeline.scenario.problems import fail, place
from ridgeline.scenario.schema import ScenarioFile, ServeFile
from ridgeline.scenario.settings import Path as KeyPath
from ridgeline.scenario.simulated_batching import (
    BatcherCase,
    BatchPoint,
    batch_times,
    batching_options,
    run_batcher,
)
from ridgeline.scenario.simulated_parts import Drawer
from ridgeline.scenario.simulated_traffic import Drawn, traffic_of
from ridgeline.scenario.simulating import SimulatedRow, SimulationAnswer
from ridgeline.scenario.tracing import with_trace
from ridgeline.search import Infeasible
from ridgeline.serving import NetworkServingJob, estimate_network
from ridgeline.serving.network import network_memory
from ridgeline.specs import EngineProfile, Network
from ridgeline.workload.convnets.catalogue import NETWORKS, network

_LARGEST = 1 << 20


def names_network(file: ScenarioFile, catalog: Catalog) -> bool:
    """Whether the model of the scenario is a layered network and no model of the catalogue."""
    name = file.workload.model
    if name not in NETWORKS or file.workload.serve is None:
        return False
    return name not in catalog.ids("models") and name not in catalog.aliases("models")


def simulate_network(
    file: ScenarioFile, where: str, folder: Path, set_paths: tuple[KeyPath, ...], catalog: Catalog
) -> SimulationAnswer:
    """Run the traffic through each candidate; rows in order of the 95th-percentile latency."""
    file, trace = with_trace(file, folder, place(where, ("workload", "serve", "traffic", "trace"), set_paths))
    serve = file.workload.serve
    if serve is None:
        raise ScenarioError(f"{place(where, ('workload',), set_paths)}: has no `serve`")
    made, drawn = network(file.workload.model), traffic_of(file, trace)
    problems: list[RidgelineError] = []
    candidates = []
    for index, item in enumerate(file.candidates):
        try:
            candidates.append(_candidate(item, index, where, set_paths, catalog))
        except RidgelineError as error:
            problems.append(error)
    if problems:
        raise problems[0] if len(problems) == 1 else fail(str(error) for error in problems)
    rows: list[SimulatedRow] = []
    lost: list[Infeasible] = []
    for candidate in candidates:
        for count in candidate.devices:
            try:
                rows.append(_row(file, serve, made, candidate, count, catalog, drawn))
            except RidgelineError as error:
                lost.append(Infeasible(system_id=candidate.system.id, devices_count=count, reasons=(str(error),)))
    if not rows:
        lines = "\n".join(f"  {item.system_id} x {item.devices_count}: {item.reasons[0]}" for item in lost)
        raise NoFeasiblePlan(f"no candidate runs {made.id}\n{lines}")
    return _answer(made, drawn, rows, lost, catalog)


def _answer(
    made: Network, drawn: Drawn, rows: Sequence[SimulatedRow], lost: Sequence[Infeasible], catalog: Catalog
) -> SimulationAnswer:
    def late(row: SimulatedRow) -> float:
        spread = row.part.measured.e2e
        return float("inf") if spread is None else spread.p95.best

    ordered = sorted(rows, key=late)
    uses = tuple(dict.fromkeys(use for row in ordered for use in row.uses))
    return SimulationAnswer(
        model={"id": made.id, "family": "network", "parameters_count": made.parameters_count},
        traffic=drawn,
        rows=tuple(replace(row, rank=rank) for rank, row in enumerate(ordered, start=1)),
        infeasible=tuple(lost),
        leans=leaning_facts(catalog, uses),
        notes=drawn.notes,
    )


def _row(
    file: ScenarioFile,
    serve: ServeFile,
    made: Network,
    candidate: Candidate,
    count: int,
    catalog: Catalog,
    drawn: Drawn,
) -> SimulatedRow:
    system = candidate.system
    engine = catalog.engine(serve.engine or encoder_engine_name(system.chip))
    notes = [] if serve.engine else [Note("fill", f"engine on {system.id} not named: {engine.name} is taken")]
    job = NetworkServingJob(
        network=made,
        batch_count=1.0,
        precision=serve.precision or "fp16",
        system=system,
        calibration=catalog.calibration(system.chip.id),
        engine=engine,
    )
    first = estimate_network(job)
    options, more = batching_options(serve, _room(job), count)
    times, sigma = batch_times(_points(job), options.max_batch_count)
    drawer = Drawer(
        system=system,
        devices_count=count,
        precision=job.precision,
        law=power_law(catalog),
        pue_frac=1.0 if file.site.pue is None else file.site.pue,
    )
    case = BatcherCase(
        serve=serve,
        control=file.simulate,
        options=options,
        times=times,
        sigma=sigma,
        drawer=drawer,
        notes=(*notes, *more),
    )
    latency = Interval.from_sigma(first.latency_s.best, sigma)
    return SimulatedRow(
        rank=0,
        system=system.id,
        devices=count,
        layout=_layout(job, engine),
        part=run_batcher(case, drawn),
        closed_form={"e2e_s": latency, "requests_per_s": latency.inverted(float(count))},
        notes=first.notes,
        uses=first.uses,
    )


def _layout(job: NetworkServingJob, engine: EngineProfile) -> str:
    return f"{job.precision}, {engine.name or engine.id}"


def _points(job: NetworkServingJob) -> Callable[[int], BatchPoint]:
    def one(size: int) -> BatchPoint:
        found = estimate_network(replace(job, batch_count=float(size)))
        return BatchPoint(
            found.latency_s.best,
            found.device_busy_frac,
            found.flop_per_s_per_device,
            found.memory_bytes_per_s_per_device,
            found.latency_s.sigma,
        )

    return one


def _room(job: NetworkServingJob) -> float:
    """Largest batch (a power of two) that fits the memory of the device."""
    size, memory = 1, job.system.chip.memory_bytes()
    while size < _LARGEST and network_memory(replace(job, batch_count=2.0 * size)).value <= memory:
        size *= 2
    return float(size)
