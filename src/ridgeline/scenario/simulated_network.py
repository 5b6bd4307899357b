"""`simulate` for layered networks (vision, detection): each candidate's devices behind one dynamic batcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ridgeline.catalog import Catalog
from ridgeline.core import Interval, Note
from ridgeline.errors import BadPlan, NoFeasiblePlan, RidgelineError, ScenarioError
from ridgeline.scenario.answer import leaning_facts
from ridgeline.scenario.defaults import encoder_engine_name
from ridgeline.scenario.load import Candidate, _candidate
from ridgeline.scenario.pipeline_models import array_work
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
from ridgeline.serving.array import PRECISION, estimate_array
from ridgeline.serving.network import network_memory
from ridgeline.specs import Network, System
from ridgeline.workload.convnets.catalogue import NETWORKS, network

_LARGEST = 1 << 20
_LARGEST_ARRAY = 64.0  # batches in which published figures of such parts are taken


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A network on one device: times of any batch, the largest one, and what to say of it."""

    one: Callable[[int], BatchPoint]
    room_count: float
    precision: str
    layout: str
    notes: tuple[Note, ...]
    uses: tuple[str, ...]


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
    fixed = f"array.{PRECISION}" in catalog.calibration(system.chip.id).laws
    ready = (_on_array if fixed else _on_kernels)(serve, made, system, catalog)
    options, more = batching_options(serve, ready.room_count, count)
    times, sigma = batch_times(ready.one, options.max_batch_count)
    drawer = Drawer(
        system=system,
        devices_count=count,
        precision=ready.precision,
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
        notes=tuple(more),
    )
    latency = Interval.from_sigma(float(times.whole_s[0]), sigma)
    return SimulatedRow(
        rank=0,
        system=system.id,
        devices=count,
        layout=ready.layout,
        part=run_batcher(case, drawn),
        closed_form={"e2e_s": latency, "requests_per_s": latency.inverted(float(count))},
        notes=ready.notes,
        uses=ready.uses,
    )


def _on_kernels(serve: ServeFile, made: Network, system: System, catalog: Catalog) -> _Ready:
    """A part that runs kernels, by an engine."""
    engine = catalog.engine(serve.engine or encoder_engine_name(system.chip))
    job = NetworkServingJob(
        network=made,
        batch_count=1.0,
        precision=serve.precision or "fp16",
        system=system,
        calibration=catalog.calibration(system.chip.id),
        engine=engine,
    )
    first = estimate_network(job)
    name = engine.name or engine.id
    told = [] if serve.engine else [Note("fill", f"engine on {system.id} not named: {name} is taken")]

    def one(size: int) -> BatchPoint:
        found = estimate_network(replace(job, batch_count=float(size)))
        return BatchPoint(
            found.latency_s.best,
            found.device_busy_frac,
            found.flop_per_s_per_device,
            found.memory_bytes_per_s_per_device,
            found.latency_s.sigma,
        )

    return _Ready(
        one=one,
        room_count=_room(job),
        precision=job.precision,
        layout=f"{job.precision}, {name}",
        notes=(*told, *first.notes),
        uses=first.uses,
    )


def _on_array(serve: ServeFile, made: Network, system: System, catalog: Catalog) -> _Ready:
    """A fixed array: 8 bits, inputs prepared beforehand, a weight that does not stay is loaded for every batch."""
    chip, calibration, work = system.chip, catalog.calibration(system.chip.id), array_work(made)
    if serve.precision not in (None, PRECISION):
        raise BadPlan(f"{system.id} runs graphs of 8 bits, not {serve.precision}")
    first = estimate_array(work, chip, calibration, 1.0, "batch")

    def one(size: int) -> BatchPoint:
        found = estimate_array(work, chip, calibration, float(size), "batch")
        whole = found.latency_s.best
        return BatchPoint(
            whole, found.time.value_of("array") / whole, size * work.ops_count / whole, 0.0, found.latency_s.sigma
        )

    return _Ready(
        one=one,
        room_count=_LARGEST_ARRAY,
        precision=PRECISION,
        layout=f"{PRECISION}, fixed array",
        notes=(Note("not-modelled", "preparing inputs on the host (a stage of a pipeline)"),),
        uses=first.time.facts(),
    )


def _room(job: NetworkServingJob) -> float:
    """Largest batch (a power of two) that fits the memory of the device."""
    size, memory = 1, job.system.chip.memory_bytes()
    while size < _LARGEST and network_memory(replace(job, batch_count=2.0 * size)).value <= memory:
        size *= 2
    return float(size)
