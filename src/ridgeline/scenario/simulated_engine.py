"""Models that generate: the engine of each candidate simulated step by step under the traffic of the scenario."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ridgeline.core import Note, merge
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.planning import power_law
from ridgeline.scenario.simulated_options import options_of, pools_of
from ridgeline.scenario.simulated_parts import (
    Z_80,
    Drawer,
    SimulatedPart,
    Work,
    energy_each,
    limits_of,
    power_of,
    ranges,
    repeated,
    waiting_frac,
)
from ridgeline.scenario.simulated_traffic import Drawn, require_serve, users_of, with_users
from ridgeline.search import ServingRow
from ridgeline.serving import ServingJob
from ridgeline.simulation.cluster import Trace
from ridgeline.simulation.engine import Prepared, prepare
from ridgeline.simulation.options import Pool, SimulationOptions, Users
from ridgeline.simulation.results import Measured, Served, Timeline, measure, steadiness, with_gaps
from ridgeline.simulation.traffic import ClosedLoop, Traffic
from ridgeline.specs.requests import Floats, Requests


def engine_run(scenario: Scenario, found: ServingRow, job: ServingJob, drawn: Drawn) -> SimulatedPart:
    """The traffic of `scenario` through the engines of one candidate."""
    control, serve, notes = scenario.file.simulate, require_serve(scenario), []
    options, pools = options_of(scenario, job), pools_of(scenario, job)
    traffic = drawn.traffic
    if drawn.users_from_room and isinstance(traffic, ClosedLoop):
        users = max(1, round(found.estimate.running_count))
        traffic = with_users(traffic, users, control.requests)
        notes.append(Note("fill", f"maximum load: {users:,} users, as many as the closed form lets run at once"))
    engines = _Engines(pools, options)

    def run(seed: int, factor: float = 1.0) -> Trace:
        return _scaled(engines.run(traffic, seed, factor), factor)

    def measured(runs: list[Trace]) -> Measured:
        return measure([_served(item) for item in runs], limits_of(serve), control.warm_up, users_of(traffic))

    runs: list[Trace] = repeated(run, control.seed, control.replications, drawn.random)
    best = with_gaps(measured(runs), [(item.gap_edges_s, item.gap_counts) for item in runs])
    sigma = found.estimate.e2e_s.sigma
    quick, slow = (measured([run(control.seed, math.exp(sign * Z_80 * sigma))]) for sign in (-1.0, 1.0))
    levels, work = _over_time(runs[0], sum(pool.replicas_count for pool in pools))
    drawer = Drawer(
        system=job.system,
        devices_count=job.plan.devices_count,
        precision=job.plan.activation_precision,
        law=power_law(scenario.catalog),
        pue_frac=scenario.site.pue_frac,
        waiting_frac=waiting_frac(found.estimate),
        serves=True,
    )
    power, more, told = power_of(drawer, work, ("token", best.output_tokens_per_s.best))
    more["j_per_token"] = energy_each(drawer, more, levels.levels["output_tokens_per_s"])
    notes += [*told, *steadiness(best, users_of(traffic)), *_refused(runs)]
    return SimulatedPart(
        mode=f"{options.batching if options.batching != 'engine' else job.engine.batching} batching",
        measured=best,
        timeline=replace(levels, levels={**levels.levels, **more}),
        ranges=ranges(best, quick, slow),
        power=power,
        users_count=users_of(traffic),
        extra={"engine": _engine_dict(runs)},
        notes=merge(notes),
    )


class _Engines:
    """Engines whose tables of step times are made once, for all seeds and speeds."""

    def __init__(self, pools: tuple[Pool, ...], options: SimulationOptions) -> None:
        self._pools, self._options = pools, options
        self._made: Prepared | None = None

    def run(self, traffic: Traffic, seed: int, factor: float) -> Trace:
        """One run with all step times multiplied by `factor`: time is counted in units of it, arrivals are divided."""
        generator = np.random.default_rng(seed)
        users = None
        if isinstance(traffic, ClosedLoop):
            inputs, outputs, thought_s = traffic.draw(generator)
            requests = Requests(arrived_s=np.zeros(len(inputs)), input_tokens=inputs, output_tokens=outputs)
            users = Users(users_count=users_of(traffic), thought_s=thought_s / factor)
        else:
            drawn = traffic.draw(generator)
            requests = drawn.with_arrivals(drawn.arrived_s / factor)
        if self._made is None:
            self._made = prepare(self._pools, requests, self._options, users)
        return replace(self._made.with_requests(requests), users=users).run()


def _scaled(run: Trace, factor: float) -> Trace:
    """Times back in seconds."""
    names = ("arrived_s", "started_s", "first_token_s", "finished_s", "gap_edges_s")
    return replace(run, **{name: getattr(run, name) * factor for name in names}) if factor != 1.0 else run


def _served(run: Trace) -> Served:
    order = np.argsort(run.arrived_s, kind="stable")
    return Served(
        arrived_s=run.arrived_s[order],
        started_s=run.started_s[order],
        first_token_s=run.first_token_s[order],
        finished_s=run.finished_s[order],
        input_tokens=run.input_tokens[order],
        output_tokens=run.output_tokens[order],
        answered=run.answered[order] > 0,
        preempted_count=int(run.preemptions.sum()),
    )


def _over_time(run: Trace, replicas: int) -> tuple[Timeline, Work]:
    """The state over time as levels, and the work of one device."""
    state = run.intervals
    width_s = np.diff(state.edges_s)
    share = width_s / width_s.sum()
    levels: dict[str, Floats] = {
        "queue": state.waiting_count,
        "running": state.running_count,
        "replicas": state.replicas_count,
        "cache_frac": state.cache_frac,
        "step_s": state.step_s,
        "busy_frac": state.busy_frac,
        "output_tokens_per_s": state.made_tokens_per_s,
        "input_tokens_per_s": state.read_tokens_per_s,
        "preemptions": state.preemptions_count,
    }
    flop, moved = state.flop_per_s / replicas, state.bytes_per_s / replicas
    busy = np.minimum(1.0, state.steps_count * state.step_s / (np.maximum(width_s, 1e-12) * replicas))
    work = Work(
        flop_per_s=float(flop @ share),
        bytes_per_s=float(moved @ share),
        busy_frac=float(busy @ share),
        slice_flop_per_s=flop,
        slice_bytes_per_s=moved,
        slice_busy_frac=busy,
    )
    return Timeline(start_s=state.edges_s[:-1] - state.edges_s[0], slice_s=float(width_s.mean()), levels=levels), work


def _refused(runs: list[Trace]) -> list[Note]:
    count = sum(run.refused_count for run in runs)
    text = f"{count:,} requests can never be held by a key-value pool and were refused"
    return [Note("out-of-range", text)] if count else []


def _engine_dict(runs: list[Trace]) -> dict[str, object]:
    state = runs[0].intervals
    share = np.diff(state.edges_s) / np.diff(state.edges_s).sum()
    cached, read = (sum(int(getattr(run, name).sum()) for run in runs) for name in ("cached_tokens", "input_tokens"))
    return {
        "steps": sum(run.steps_count for run in runs),
        "refused": sum(run.refused_count for run in runs),
        "cache_mean_frac": float(state.cache_frac @ share),
        "cache_highest_frac": float(state.cache_frac.max()),
        "prefix_hit_frac": cached / read if read else 0.0,
        "device_busy_frac": float(state.busy_frac @ share),
        "running_highest": float(state.running_count.max()),
    }
