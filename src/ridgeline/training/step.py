"""One training step, from kernels and collectives to the clock on the wall."""

from __future__ import annotations

from dataclasses import dataclass, field

from ridgeline.core import Breakdown, FrozenMap, Interval, combine_independent, leaf, merge, quadrature, total
from ridgeline.errors import BadPlan
from ridgeline.network import sliced
from ridgeline.specs import RankGroup, TrainingPlan, Transformer
from ridgeline.training.clock import Clock, Work, Works, add, clock_for, total_s
from ridgeline.training.job import TrainingEstimate, TrainingJob
from ridgeline.training.memory import peak_memory
from ridgeline.training.per_step import step_works
from ridgeline.training.phases import Phases, stage_phases
from ridgeline.training.remarks import remarks
from ridgeline.training.waiting import input_wait_s, pipeline_wait_s
from ridgeline.workload.ops import Collective
from ridgeline.workload.stages import Stage, stages_of
from ridgeline.workload.training_flop import step_flop
from ridgeline.workload.training_shapes import layer_shape


def estimate_step(job: TrainingJob) -> TrainingEstimate:
    """Time, memory and sureness of one step of `job`.

    Raises `BadPlan` where the batch does not divide and `MissingFact` where the chip lacks a figure that is needed;
    other problems of a layout are found by `check_plan`. A layout that does not fit is estimated all the same.
    """
    plan, model = job.plan, job.model
    if plan.micro_batches_count < 1:
        raise BadPlan(
            f"global batch {plan.global_batch_count} is less than data degree {plan.data_count} times "
            f"micro-batch {plan.micro_batch_count}"
        )
    clock = clock_for(sliced(job.system, job.plan.devices_count), job.calibration, job.software)
    timing = time_step(model, plan, clock)
    memory = peak_memory(model, plan, job.software)
    available = job.system.chip.memory_bytes()
    step_s = timing.tree.value
    flop = step_flop(model, plan)
    rate = flop / step_s / plan.devices_count
    uses = tuple(dict.fromkeys((*timing.tree.facts(), *memory.facts(), *_peak_facts(job))))
    return TrainingEstimate(
        plan=plan,
        step_s=Interval.from_sigma(step_s, timing.sigma),
        time=timing.tree,
        memory=memory,
        memory_available_bytes=available,
        fits=memory.value <= available,
        tokens_per_s=plan.real_frac * plan.global_batch_count * plan.sequence_tokens / step_s,
        model_flop_per_s_per_device=rate,
        mfu_frac=rate / job.system.chip.peak(plan.precision, "utilisation of the peak"),
        bubble_frac=timing.bubble_s / step_s,
        notes=merge(remarks(job, clock)),
        uses=uses,
        models=tuple(dict.fromkeys((*timing.tree.models(), *memory.models()))),
    )


@dataclass(frozen=True, slots=True)
class StepTiming:
    """The tree of one step, the log sigma of its total, and the pipeline's waiting in it.

    `doubts_s`: by kind of work, the time by which the total moves when the laws of that kind are off by one sigma.
    """

    tree: Breakdown
    sigma: float
    bubble_s: float
    doubts_s: FrozenMap[str, float] = field(default_factory=FrozenMap)


def time_step(model: Transformer, plan: TrainingPlan, clock: Clock) -> StepTiming:
    """Time of one step: the slowest stage's micro-batches, the bubble, transfers, and what is done once."""
    parts = stages_of(model, plan)
    phases = _all_phases(model, parts, plan, clock)
    times = [phase.total_s for phase in phases]
    slowest = phases[times.index(max(times))]
    count = plan.micro_batches_count
    waiting_s, schedule = pipeline_wait_s(model, parts, phases, plan, clock)
    sends = pipeline_sends(model, plan, clock, slowest)
    last = _last_stage(model, parts, phases, plan, clock)
    works = [w.scaled(count) for part in (slowest.forward, slowest.recompute, slowest.backward) for w in part.values()]
    parts_of_step = [
        *_phase_trees(slowest, count),
        *([leaf("pipeline bubble", waiting_s, "s", model=schedule)] if plan.pipeline_count > 1 else []),
        *(work.leaf() for work in sends.values()),
        *(work.leaf() for work in last.values()),
    ]
    starved_s = input_wait_s(plan, clock.system, sum(part.value for part in parts_of_step))
    if starved_s > 0:
        parts_of_step.append(leaf("waiting for input", starved_s, "s", model="input-roof"))
    tree = total("step", "s", parts_of_step)
    bubble_doubt_s = waiting_s * total_doubt(works) / max(sum(w.time_s for w in works), 1e-30)  # src: rl-numerics
    terms = [*works, Work("bubble", waiting_s, bubble_doubt_s, 0.0, "", ()), *sends.values(), *last.values()]
    doubts_s = {name: doubt_s for name, (_, doubt_s) in _families(terms).items() if doubt_s > 0}
    return StepTiming(tree, _sigma(terms, clock), waiting_s, FrozenMap(doubts_s))


def total_doubt(works: list[Work]) -> float:
    """Sum of the doubts [s]."""
    return sum(work.doubt_s for work in works)


def _all_phases(model: Transformer, parts: tuple[Stage, ...], plan: TrainingPlan, clock: Clock) -> list[Phases]:
    """Phases of each stage; stages that hold the same are computed once."""
    found: list[Phases] = []
    for stage in parts:
        found.append(found[stage.like] if stage.like < stage.index else stage_phases(model, stage, plan, clock))
    return found


def _phase_trees(phases: Phases, count: int) -> list[Breakdown]:
    named = (("forward", phases.forward), ("recompute", phases.recompute), ("backward", phases.backward))
    return [total(name, "s", [work.scaled(count).leaf() for work in works.values()]) for name, works in named if works]


def pipeline_sends(model: Transformer, plan: TrainingPlan, clock: Clock, phases: Phases) -> Works:
    """Transfers between stages, with what hides behind a virtual stage's work taken off.

    Each micro-batch crosses the boundary of the slowest stage (`phases`) once each way for each virtual stage; the
    tensor group shares the load (each rank sends its part, and the parts are gathered inside the node where the stream
    is not in shards anyway). Interleaved schedules may send while the next piece computes; the ramps at both ends of
    the step stay.
    """
    found, crossings = send_works(model, plan, clock)
    if hides_sends(plan, clock) and found:
        steady = steady_crossings_count(plan)
        _hide_sends(found, steady / crossings, steady * phases.forward_s / plan.interleave_count, clock)
    return found


def hides_sends(plan: TrainingPlan, clock: Clock) -> bool:
    """Whether sends run beside the next piece: interleaved schedules of a software that does so."""
    return clock.software.pipeline_overlap and plan.interleave_count > 1


def steady_crossings_count(plan: TrainingPlan) -> int:
    """Crossings of a boundary between the ramps of a step."""
    return 2 * plan.micro_batches_count * plan.interleave_count


def send_works(model: Transformer, plan: TrainingPlan, clock: Clock) -> tuple[Works, int]:
    """Transfers between stages before any overlap, and how often a micro-batch crosses a boundary, ramps included."""
    if plan.pipeline_count == 1:
        return {}, 0
    shape = layer_shape(plan)
    size = shape.rows * model.hidden_count * shape.stream_bytes
    per_stage = plan.devices_count // plan.pipeline_count
    across = RankGroup(size_count=plan.pipeline_count, stride_count=per_stage)
    share = size / plan.tensor_count
    ops = [Collective(name="pipeline send", kind="send", message_bytes=share, group=across)]
    if plan.tensor_count > 1 and not shape.sequence_parallel:
        ops.append(Collective(name="pipeline gather", kind="all_gather", message_bytes=size, group=shape.tensor_group))
    crossings = 2 * (plan.pipeline_count - 1) + steady_crossings_count(plan)
    found: Works = {}
    for op in ops:
        timed = clock.time(op)
        doubt_s = crossings * timed.time_s * timed.sigma
        add(found, Work(timed.work, crossings * timed.time_s, doubt_s, 0.0, timed.model, timed.uses))
    return found, crossings


def _hide_sends(found: Works, steady_frac: float, window_s: float, clock: Clock) -> None:
    """Take off the steady part of the transfers as far as the pieces that run meanwhile reach; they run slower."""
    (work,) = found.values()
    hidden_s = min(steady_frac * work.time_s, window_s)
    share = hidden_s / work.time_s
    add(found, Work(f"{work.name} hidden", -hidden_s, -share * work.doubt_s, 0.0, "", ()))
    field = "overlap_slowdown_frac"
    slowed_s = hidden_s * clock.slowdown_frac
    add(found, Work("slowed by exchange", slowed_s, 0.0, 0.0, "", (clock.software.fact_id(field),)))


def _last_stage(
    model: Transformer, parts: tuple[Stage, ...], phases: list[Phases], plan: TrainingPlan, clock: Clock
) -> Works:
    """The once-a-step work that ends last: later stages start theirs while earlier ones still run backward."""
    best: Works = {}
    best_s = -1.0
    ahead_s = 0.0
    for index, stage in enumerate(parts):
        if index in (0, 1, len(parts) - 1):
            works = step_works(model, stage, plan, clock, phases[index])
            if total_s(works) - ahead_s > best_s:
                best, best_s = works, total_s(works) - ahead_s
                if ahead_s > 0:
                    best = {**works, "done in the bubble": Work("done in the bubble", -ahead_s, 0.0, 0.0, "", ())}
        ahead_s += phases[index].backward_s / plan.interleave_count
    return best


def _sigma(terms: list[Work], clock: Clock) -> float:
    """Log sigma of the step: kernels of one law err together, laws independently, the software on top."""
    families = _families(terms)
    pairs = [(max(time_s, 0.0), doubt_s / time_s if time_s > 0 else 0.0) for time_s, doubt_s in families.values()]
    experts = clock.software.expert_sigma if "expert products" in families else 0.0
    return quadrature(combine_independent(pairs), clock.software.release_sigma, experts)


def _families(terms: list[Work]) -> dict[str, tuple[float, float]]:
    """Time and doubt by kind of work, what is hidden taken off."""
    families: dict[str, tuple[float, float]] = {}
    for work in terms:
        name = work.name.removesuffix(" hidden")
        time_s, doubt_s = families.get(name, (0.0, 0.0))
        families[name] = (time_s + work.time_s, doubt_s + work.doubt_s)
    return families


def _peak_facts(job: TrainingJob) -> tuple[str, ...]:
    chip = job.system.chip
    return (chip.fact_id(f"peak_dense_flop_per_s.{chip.peak_key(job.plan.precision)}"),)
