"""How long a run takes with its failures, restarts and checkpoints, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ridgeline.core import Breakdown, Interval, Note, leaf, total
from ridgeline.errors import MissingFact
from ridgeline.specs import Reliability, SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training.goodput import (
    between_failures_s,
    checkpoint_bytes,
    daly_interval_s,
    effective_time_frac,
    node_failures_per_s,
    recovering_frac,
    spares_needed_count,
    spares_ready_frac,
)
from ridgeline.training.host import host_oneway_bytes_per_s
from ridgeline.workload.memory import state_recipe
from ridgeline.workload.training_shapes import layer_shape

_READY_FRAC = 0.99  # src: rl-definition
_LEAST_FRAC = 1e-9  # src: rl-numerics
_UNCERTAIN = (
    "node_failures_per_s",
    "device_share_frac",
    "detect_s",
    "restart_s",
    "repair_s",
    "write_node_bytes_per_s",
    "read_node_bytes_per_s",
    "blocking_s",
    "slow_frac",
)
Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """What of a run decides its goodput: steps alone take `run_s`, one of them `step_s`, on `devices_count` devices.

    `checkpoint_bytes` is the whole checkpoint; `loaded_bytes` what all devices read together on a restart;
    `host_oneway_bytes_per_s` what one device moves to its host (None: not known).
    """

    run_s: Interval
    step_s: float
    devices_count: int
    devices_per_node_count: int
    checkpoint_bytes: float
    loaded_bytes: float
    host_oneway_bytes_per_s: float | None

    @property
    def nodes_count(self) -> int:
        """Nodes that the job holds."""
        return -(-self.devices_count // self.devices_per_node_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputEstimate:
    """A run with its failures: how long, made of what, how sure.

    `run_s` is the time with everything; `ettr_frac` the effective training time ratio (useful steps over elapsed
    time, slow parts not counted as lost) and `goodput_frac` the same with slow parts and missing spares. `time` adds up
    to `run_s.best`. `failures_count` are expected in the run, `between_failures_s` apart on average; checkpoints start
    `period_s` apart, stop the devices for `stall_s` and are safe after `write_s`. `spares_count` nodes in reserve keep
    the job from waiting for repairs 99 % of the time.
    """

    run_s: Interval
    ettr_frac: Interval
    goodput_frac: Interval
    time: Breakdown
    failures_count: float
    between_failures_s: float
    checkpoint_bytes: float
    period_s: float
    stall_s: float
    write_s: float
    recovery_s: float
    spares_count: int
    notes: tuple[Note, ...]
    uses: tuple[str, ...]
    models: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`, page and report."""
        return {
            "run_s": self.run_s.to_dict(),
            "ettr_frac": self.ettr_frac.to_dict(),
            "goodput_frac": self.goodput_frac.to_dict(),
            "time": self.time.to_dict(),
            "failures": self.failures_count,
            "between_failures_s": self.between_failures_s,
            "checkpoint_bytes": self.checkpoint_bytes,
            "checkpoint_period_s": self.period_s,
            "checkpoint_stall_s": self.stall_s,
            "checkpoint_write_s": self.write_s,
            "recovery_s": self.recovery_s,
            "spares": self.spares_count,
        }


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of one evaluation, all in seconds but `ettr`, `slow` and `ready`."""

    between: float
    period: float
    stall: float
    write: float
    detect: float
    restart: float
    unsaved: float
    ettr: float
    slow: float
    ready: float

    @property
    def recovery(self) -> float:
        return self.detect + self.restart + self.unsaved

    @property
    def goodput(self) -> float:
        return self.ettr * (1.0 - self.slow) * self.ready


def run_conditions(
    model: Transformer, plan: TrainingPlan, system: System, software: SoftwareProfile, step_s: float, run_s: Interval
) -> RunConditions:
    """The conditions of a run of `plan`: its checkpoint holds one copy of the weights and the optimizer's states.

    Every device reads what it holds, so that replicas read weights again (and states, where those are not sharded).
    """
    recipe = state_recipe(plan.precision, software)
    weight_bytes = min(recipe.weights, layer_shape(plan).stream_bytes)
    whole_bytes = float(
        checkpoint_bytes(model.parameters_count, plan.trainable_frac, weight_bytes, recipe.master + recipe.moments)
    )
    again_bytes = {"zero3": 0.0, "none": whole_bytes}.get(plan.sharding, model.parameters_count * weight_bytes)
    return RunConditions(
        run_s=run_s,
        step_s=step_s,
        devices_count=plan.devices_count,
        devices_per_node_count=system.devices_per_node_count,
        checkpoint_bytes=whole_bytes,
        loaded_bytes=whole_bytes + (plan.data_count * plan.context_count - 1) * again_bytes,
        host_oneway_bytes_per_s=_host_rate(system),
    )


def _host_rate(system: System) -> float | None:
    try:
        return host_oneway_bytes_per_s(system)
    except MissingFact:
        return None


def estimate_goodput(run: RunConditions, reliability: Reliability) -> GoodputEstimate:
    """How long `run` takes under `reliability`.

    The interval moves each uncertain figure to the ends of its range, one at a time, adds the changes of the lost time
    in quadrature, and joins them with the interval of the steps.
    """
    best = {name: getattr(reliability, name).best for name in _UNCERTAIN}
    terms = _terms(run, reliability, best)
    ettr = _ranged(lambda figures: _terms(run, reliability, figures).ettr, reliability, best)
    goodput = _ranged(lambda figures: _terms(run, reliability, figures).goodput, reliability, best)
    run_s = _joined(run.run_s, goodput)
    time = _time(run, reliability, terms)
    rate = _node_rate(run, reliability, best)
    return GoodputEstimate(
        run_s=run_s,
        ettr_frac=ettr,
        goodput_frac=goodput,
        time=time,
        failures_count=run_s.best / terms.between,
        between_failures_s=terms.between,
        checkpoint_bytes=run.checkpoint_bytes,
        period_s=terms.period,
        stall_s=terms.stall,
        write_s=terms.write,
        recovery_s=terms.recovery,
        spares_count=spares_needed_count(run.nodes_count, rate, best["repair_s"], _READY_FRAC),
        notes=_notes(run, reliability, terms),
        uses=time.facts(),
        models=time.models(),
    )


def _node_rate(run: RunConditions, reliability: Reliability, figures: Figures) -> float:
    return float(
        node_failures_per_s(
            figures["node_failures_per_s"],
            figures["device_share_frac"],
            min(run.devices_per_node_count, run.devices_count),
            reliability.reference_devices_count,
        )
    )


def _terms(run: RunConditions, reliability: Reliability, figures: Figures) -> _Terms:
    nodes = run.nodes_count
    rate = _node_rate(run, reliability, figures)
    between = float(between_failures_s(nodes, rate))
    storage = reliability.storage_bytes_per_s
    write = run.checkpoint_bytes / (storage or nodes * figures["write_node_bytes_per_s"])
    load = run.loaded_bytes / (storage or nodes * figures["read_node_bytes_per_s"])
    copy = run.checkpoint_bytes / run.devices_count / (run.host_oneway_bytes_per_s or math.inf)
    stall = min(write, figures["blocking_s"] + copy) if reliability.asynchronous else write
    period = _period(run, reliability, stall, write, between)
    restart = max(figures["restart_s"], load)
    unsaved = write - stall
    recovery = figures["detect_s"] + restart + unsaved
    ettr = max(float(effective_time_frac(period, stall, recovery, between)), _LEAST_FRAC)
    spares = reliability.spares_count
    ready = 1.0 if spares is None else spares_ready_frac(nodes, rate, figures["repair_s"], spares)
    return _Terms(
        between, period, stall, write, figures["detect_s"], restart, unsaved, ettr, figures["slow_frac"], ready
    )


def _period(run: RunConditions, reliability: Reliability, stall: float, write: float, between: float) -> float:
    """From one checkpoint to the next: never less than a step and its stall, nor before the last write is done."""
    wanted = reliability.interval_s
    if wanted is None:
        wanted = min(float(daly_interval_s(stall, between)) + stall, run.run_s.best + stall)
    return max(wanted, write, run.step_s + stall)


def _ranged(value: Callable[[Figures], float], reliability: Reliability, best: Figures) -> Interval:
    """The range of a share: changes of what is lost, added in quadrature on either side."""
    middle = value(best)
    lost = 1.0 / middle
    more = less = 0.0
    for name in _UNCERTAIN:
        interval: Interval = getattr(reliability, name)
        shares = [value({**best, name: end}) for end in (interval.low, interval.high)]
        ends = [1.0 / max(share, _LEAST_FRAC) - lost for share in shares]
        more += max(0.0, *ends) ** 2
        less += min(0.0, *ends) ** 2
    return Interval(1.0 / (lost + math.sqrt(more)), middle, 1.0 / max(1.0, lost - math.sqrt(less)))


def _joined(steps: Interval, share: Interval) -> Interval:
    """Time over a share, their doubts independent."""
    best = steps.best / share.best
    up = math.hypot(math.log(steps.high / steps.best), math.log(share.best / share.low))
    down = math.hypot(math.log(steps.best / steps.low), math.log(share.high / share.best))
    return Interval(best * math.exp(-down), best, best * math.exp(up))


def _time(run: RunConditions, reliability: Reliability, terms: _Terms) -> Breakdown:
    """The elapsed time of the run by what it goes into; adds up to steps / goodput."""
    steps = run.run_s.best
    elapsed = steps / terms.ettr
    stalls = steps * terms.stall / (terms.period - terms.stall)
    recovering = elapsed * float(recovering_frac(terms.recovery, terms.between))
    again = max(0.0, elapsed - recovering - steps - stalls)
    slowed = elapsed * terms.slow / (1.0 - terms.slow)
    waiting = (elapsed + slowed) * (1.0 - terms.ready) / terms.ready

    def part(name: str, value: float, model: str, *fields: str) -> Breakdown:
        uses = tuple(fact for fact in map(reliability.fact, fields) if fact)
        return leaf(name, value, "s", model=model, uses=uses)

    def recovery_part(name: str, seconds: float, *fields: str) -> Breakdown:
        return part(name, recovering * seconds / terms.recovery, "time-lost-to-recovery", *fields)

    rates = ("node_failures_per_s", "device_share_frac")
    storage = () if reliability.storage_bytes_per_s else ("write_node_bytes_per_s",)
    stall_facts = ("blocking_s", *storage) if reliability.asynchronous else storage
    parts = [
        leaf("steps", steps, "s"),
        part("checkpoint stalls", stalls, "daly-checkpoint-interval", *stall_facts),
        part("steps done again", again, "effective-time-ratio", *rates),
        recovery_part("noticing failures", terms.detect, "detect_s"),
        recovery_part("restarts", terms.restart, "restart_s"),
        recovery_part("steps not yet saved", terms.unsaved, *storage),
        part("slow parts", slowed, "", "slow_frac"),
    ]
    if reliability.spares_count is not None:
        parts.append(part("waiting for repairs", waiting, "spares-ready", "repair_s"))
    return total("run with failures", "s", parts, model="failures-in-series")


def _notes(run: RunConditions, reliability: Reliability, terms: _Terms) -> tuple[Note, ...]:
    notes = []
    if terms.recovery + terms.period > terms.between:
        text = "failures come faster than the job recovers and saves: the run hardly moves, take the figure as a bound"
        notes.append(Note("out-of-range", text))
    if reliability.asynchronous:
        notes.append(Note("not-modelled", "writing a checkpoint in the background is taken not to slow the steps"))
        if run.host_oneway_bytes_per_s is None:
            notes.append(
                Note("missing", "host link not known: copying a checkpoint to the host is taken to cost nothing")
            )
    return tuple(notes)
