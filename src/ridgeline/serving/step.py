"""How long one engine step takes: the kernels' sum, the exchange between devices, and the host, as a tree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ridgeline.core import Breakdown, combine_correlated, combine_independent, leaf, quadrature, total
from ridgeline.core import model as formula
from ridgeline.device import KernelContext, OpTime, kernels_count, op_time
from ridgeline.device.settled import unthrottled
from ridgeline.network import CollectiveTime, collective_time
from ridgeline.serving.heat import Heat
from ridgeline.serving.job import ServingJob
from ridgeline.serving.kernels import engine_calibration, expert_kernels, kernel_context
from ridgeline.serving.work import op_bytes, op_flop
from ridgeline.specs import Calibration, Chip, EngineProfile, System
from ridgeline.workload.engine_step import Step
from ridgeline.workload.inference import inference_ops
from ridgeline.workload.ops import (
    AttentionDecode,
    AttentionPrefill,
    Collective,
    ComputeOp,
    Gemm,
    GroupedGemm,
)

# Two releases of one engine on the same expert product: 24 % apart at the end of the central 80 % (TensorRT-LLM, 58,320
# shapes on H100); 42 % in SGLang, 6 to 100 % in vLLM.
_EXPERT_RELEASE_SIGMA = 0.19  # src: aiconfigurator-core
_GROUPS = ("matrices", "experts", "attention", "element-wise", "communication")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpShare:
    """One operation of a step: how often, how long in all, what bounds it, the figure that would have to improve."""

    name: str
    count: float
    time_s: float
    bound: str
    limiter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The time of one step and what it is made of.

    `tree` [s] adds up to `time_s`; `sigma` is its log standard deviation. `flop` and `moved_bytes` are what one device
    does in the step (work and compulsory memory traffic). `ops` are its operations, longest first. `device_s` is the
    part during which the device is busy.
    """

    tree: Breakdown
    sigma: float
    device_s: float
    flop: float
    moved_bytes: float
    ops: tuple[OpShare, ...]

    @property
    def time_s(self) -> float:
        """Whole time."""
        return self.tree.value


# Kernel times are pure functions of frozen records, and neighbouring steps share most of their shapes.
@lru_cache(maxsize=65536)
def _op_time(op: ComputeOp, chip: Chip, calibration: Calibration, context: KernelContext) -> OpTime:
    return op_time(op, chip, calibration, context)


@lru_cache(maxsize=16384)
def _collective_time(op: Collective, system: System, calibration: Calibration) -> CollectiveTime:
    return collective_time(op.kind, op.message_bytes, op.group, system, calibration)


def step_time(job: ServingJob, step: Step) -> StepTime:
    """Time of one step of one replica.

    Sum of kernels and collectives of one device (or, with pipeline parallelism, of one micro-batch on its way through
    all stages: each stage works on another micro-batch meanwhile, so `step` is divided by their number), the wait of
    the slowest stage, launches that do not run ahead, the lower clock that power leaves under a steady stream of such
    steps, and the host's own time, of which `host_hidden_frac` of the shorter of host and device is hidden: an explicit
    negative leaf.
    """
    batches = micro_batches_count(job, step)
    working = batches / job.plan.pipeline_count
    share = step.divided(batches)
    calibration = unthrottled(engine_calibration(job.calibration, expert_kernels(job.engine)))
    heat = Heat()
    parts: dict[str, list[Breakdown]] = {name: [] for name in _GROUPS}
    sigmas: dict[str, list[tuple[float, float]]] = {"kernels": [], "collectives": []}
    shares: list[OpShare] = []
    launches = flop = moved = 0.0
    for item in inference_ops(job.model, job.plan, job.engine, share):
        op = item.op
        if isinstance(op, Collective):
            wire = _collective_time(op, job.system, calibration)
            time_s = item.count * wire.time_s
            parts["communication"].append(leaf(op.name, time_s, "s", model=wire.model, uses=wire.uses))
            sigmas["collectives"].append((time_s, wire.sigma))
            bound = "bandwidth" if wire.bandwidth_s > wire.latency_s else "latency"
            shares.append(OpShare(name=op.name, count=item.count, time_s=time_s, bound=bound, limiter=wire.level))
            continue
        context = kernel_context(job.engine, calibration, op)
        kernel = _op_time(op, job.system.chip, calibration, context)
        time_s = item.count * kernel.time_s
        parts[_group_of(op)].append(leaf(op.name, time_s, "s", model=kernel.model, uses=kernel.uses))
        sigmas["kernels"].append((time_s, _kernel_sigma(op, kernel)))
        shares.append(
            OpShare(name=op.name, count=item.count, time_s=time_s, bound=kernel.bound, limiter=kernel.limiter)
        )
        heat.add(op, item.count, kernel, job)
        launches += item.count * kernels_count(op, context)
        flop += item.count * op_flop(op)
        moved += item.count * op_bytes(op)
    tree, device_s = _tree(job, step, parts, launches, heat)
    return StepTime(
        tree=tree,
        sigma=_sigma(job.engine, tree, sigmas),
        device_s=device_s * working,
        flop=flop * working,
        moved_bytes=moved * working,
        ops=tuple(sorted(shares, key=lambda item: -item.time_s)),
    )


def micro_batches_count(job: ServingJob, step: Step) -> float:
    """Micro-batches that a step is cut into: one a pipeline stage, but no more than there are requests."""
    requests = (step.decode_count + step.prompt_count) / job.plan.attention_data_count
    return min(float(job.plan.pipeline_count), max(1.0, requests))


def _kernel_sigma(op: ComputeOp, kernel: OpTime) -> float:
    """Log standard deviation of a kernel in an engine: that of its law, and for expert products how far releases lie
    apart, whose kernels change with each of them."""
    if isinstance(op, GroupedGemm):
        return quadrature(kernel.sigma, _EXPERT_RELEASE_SIGMA)
    return kernel.sigma


def _group_of(op: ComputeOp) -> str:
    if isinstance(op, Gemm):
        return "matrices"
    if isinstance(op, GroupedGemm):
        return "experts"
    return "attention" if isinstance(op, (AttentionDecode, AttentionPrefill)) else "element-wise"


def _tree(
    job: ServingJob, step: Step, parts: dict[str, list[Breakdown]], launches: float, heat: Heat
) -> tuple[Breakdown, float]:
    """Step tree and the time during which the device is busy."""
    engine = job.engine
    groups = [total(name, "s", found) for name, found in parts.items() if found]
    kernels_s = math.fsum(group.value for group in groups)
    waits = []
    imbalance = imbalance_frac(job.model.layers_count, job.plan.pipeline_count)
    if imbalance > 0 and micro_batches_count(job, step) == job.plan.pipeline_count:
        waits.append(leaf("slowest stage", imbalance * kernels_s, "s", model="pipeline-imbalance"))
    launched_s = 0.0 if graph_covers(engine, step) else launches * engine.kernel_floor_s
    if launched_s > kernels_s:
        uses = (engine.fact_id("kernel_floor_s"),)
        waits.append(leaf("launches", launched_s - kernels_s, "s", model="launch-bound", uses=uses))
    device_s = kernels_s + math.fsum(wait.value for wait in waits)
    slower_s = heat.slower_s(device_s, job)
    if slower_s > 0:
        waits.append(leaf("lower clock", slower_s, "s", model="sustained-clock"))
        device_s += slower_s
    host_s = host_time_s(job, step)
    host_uses = (engine.fact_id("host_step_s"), engine.fact_id("host_sequence_s"))
    ends = [leaf("host", host_s, "s", model="host-time", uses=host_uses)] if host_s > 0 else []
    hidden_s = hidden_frac(job) * min(host_s, device_s)
    if hidden_s > 0:
        ends.append(leaf("hidden behind the device", -hidden_s, "s", uses=(engine.fact_id("host_hidden_frac"),)))
    return total("step", "s", [*groups, *waits, *ends]), device_s


def host_time_s(job: ServingJob, step: Step) -> float:
    """Host time of one step: every pipeline stage has a host of its own that handles each micro-batch in turn, and
    data-parallel attention groups share the sequences between theirs."""
    engine, plan = job.engine, job.plan
    running = (step.decode_count + step.prompt_count) / plan.attention_data_count
    return plan.pipeline_count * engine.host_step_s + engine.host_sequence_s * running


def hidden_frac(job: ServingJob) -> float:
    """Share of host time that can run behind the device; engines run stages of a pipeline without that overlap."""
    return job.engine.host_hidden_frac if job.plan.pipeline_count == 1 else 0.0


def graph_covers(engine: EngineProfile, step: Step) -> bool:
    """Whether a captured graph replays this step: decode steps of engines with graphs (prompts have free shapes)."""
    return engine.kernel_floor_s <= 0 or (engine.graphs and step.prompt_count == 0)


@formula(id="pipeline-imbalance", sources=("rl-derivation",), valid={"stage_count": (1, 1024)})
def imbalance_frac(layers_count: int, stage_count: int) -> float:
    """How much longer the fullest of `stage_count` stages takes than the mean, when layers do not divide.

    >>> imbalance_frac(80, 8), round(imbalance_frac(61, 4), 3)
    (0.0, 0.049)
    """
    if stage_count <= 1 or layers_count <= 0:
        return 0.0
    return math.ceil(layers_count / stage_count) * stage_count / layers_count - 1.0


def _sigma(engine: EngineProfile, tree: Breakdown, sigmas: dict[str, list[tuple[float, float]]]) -> float:
    """Kernels of one law err together, so do collectives; host, launches and the two are independent of each other."""
    terms = [(sum(value for value, _ in pairs), combine_correlated(pairs)) for pairs in sigmas.values()]
    host_s = tree.value_of("host") + tree.value_of("hidden behind the device")
    terms.append((max(0.0, host_s), engine.host_sigma))
    terms.append((tree.value_of("launches"), engine.floor_sigma))
    if engine.traffic_sigma > 0:
        terms.append((tree.value_of("element-wise"), engine.traffic_sigma))
    return quadrature(combine_independent(terms), engine.release_sigma)
