"""Running a layered network: latency and rate of a batch on one device, and of several devices side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ridgeline.core import (
    Breakdown,
    Interval,
    Note,
    combine_correlated,
    combine_independent,
    leaf,
    merge,
    quadrature,
    total,
)
from ridgeline.device import KernelContext, kernels_count, op_time
from ridgeline.device.settled import sustained_clock_frac, unthrottled
from ridgeline.errors import BadPlan
from ridgeline.serving.heat import lower_clock_s
from ridgeline.specs import Calibration, Chip, EngineProfile, System, bytes_per_element
from ridgeline.specs.network import Network
from ridgeline.workload.network_inference import LAYOUT, Execution, network_inference_ops
from ridgeline.workload.network_memory import largest_working_set_count
from ridgeline.workload.ops import Convolve, Elementwise, Gemm, Op, Repeated

# What a core takes in from its second-level cache, half of the published most.
_CORE_BYTES_PER_CYCLE = 32.0  # src: intel-optimization-manual


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkServingJob:
    """Batches of `batch_count` images through a network on each of `devices_count` devices, by one engine.

    `precision`: of weights, activations and matrix units. `sustained`: batches follow each other without a pause, so
    that the host prepares the next one meanwhile (throughput); else each is waited for (latency).
    """

    network: Network
    batch_count: float
    precision: str
    system: System
    calibration: Calibration
    engine: EngineProfile
    devices_count: int = 1
    sustained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkServingEstimate:
    """One batch: how long, made of what, how many a second on all devices, in how much memory, how sure.

    `time` adds up to `latency_s.best`. `device_busy_frac` is the share of it that the device works.
    """

    latency_s: Interval
    samples_per_s: Interval
    time: Breakdown
    memory: Breakdown
    fits: bool
    device_busy_frac: float
    flop_per_s_per_device: float
    memory_bytes_per_s_per_device: float
    notes: tuple[Note, ...]
    uses: tuple[str, ...]
    models: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`, page and report."""
        return {
            "latency_s": self.latency_s.to_dict(),
            "samples_per_s": self.samples_per_s.to_dict(),
            "device_busy_frac": self.device_busy_frac,
            "fits": self.fits,
            "time": self.time.to_dict(),
            "memory": self.memory.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
            "uses": list(self.uses),
            "models": list(self.models),
        }


@dataclass(slots=True)
class _Sum:
    """Times of one kind of work."""

    time_s: float = 0.0
    bound_s: float = 0.0
    doubt_s: float = 0.0
    uses: tuple[str, ...] = ()
    model: str = ""


def estimate_network(job: NetworkServingJob) -> NetworkServingEstimate:
    """Latency and rate of one batch.

    The device takes the sum of its kernels or waits for a host that issues them one by one, whichever is longer (graphs
    have no floor). Host time a call comes on top where each batch is waited for; sustained, it hides behind the device.
    Raises `BadPlan` for an empty batch, `MissingFact` where the chip lacks a figure that is needed.
    """
    if job.batch_count <= 0 or job.devices_count < 1:
        raise BadPlan(f"{job.batch_count:g} images on each of {job.devices_count} devices")
    how = Execution(
        precision=job.precision,
        fused=job.engine.fused_epilogues,
        channels_last=job.engine.channels_last,
        stored_precision=job.engine.stored_precision,
    )
    ops = network_inference_ops(job.network, job.batch_count, how)
    sums, waiting_s, moved = _timed(ops, job)
    slower_s = _slower_s(sums, job)
    busy_s = sum(item.time_s for item in sums.values()) + slower_s
    waiting_s = max(0.0, waiting_s - slower_s)
    host_s = job.engine.host_step_s
    if job.sustained:
        host_s = max(0.0, host_s - busy_s - waiting_s)
    clock = [leaf("lower clock", slower_s, "s", model="sustained-clock")] if slower_s > 0 else []
    tree = total("batch", "s", [*_leaves(sums), *clock, *_host(job, waiting_s, host_s)])
    sigma = combine_correlated([(item.time_s, item.doubt_s / item.time_s) for item in sums.values() if item.time_s > 0])
    share = busy_s / tree.value
    terms = [(busy_s, sigma), (waiting_s, job.engine.floor_sigma), (host_s, job.engine.host_sigma)]
    sigma = quadrature(combine_independent(terms), job.engine.release_sigma)
    latency = Interval.from_sigma(tree.value, sigma)
    memory = network_memory(job)
    flop = job.network.forward_flop() * job.batch_count
    return NetworkServingEstimate(
        latency_s=latency,
        samples_per_s=latency.inverted(job.batch_count * job.devices_count),
        time=tree,
        memory=memory,
        fits=memory.value <= job.system.chip.memory_bytes(),
        device_busy_frac=share,
        flop_per_s_per_device=flop / tree.value,
        memory_bytes_per_s_per_device=moved / tree.value,
        notes=merge(_remarks(job)),
        uses=tuple(dict.fromkeys((*tree.facts(), *memory.facts()))),
        models=tuple(dict.fromkeys(tree.models())),
    )


def _timed(ops: tuple[Repeated, ...], job: NetworkServingJob) -> tuple[dict[str, _Sum], float, float]:
    """Sums by kind of work, what the device waits for the host (which runs ahead while it can), and bytes moved."""
    chip = _near(job.system.chip)
    calibration = unthrottled(job.calibration)
    context = KernelContext(attention=_family(job))
    known: dict[object, tuple[float, float, float, str, tuple[str, ...], bool]] = {}
    sums: dict[str, _Sum] = {}
    busy_s = issued_s = moved = 0.0
    for item in ops:
        op = item.op
        found = known.get(op)
        if found is None:
            done = op_time(op, chip, calibration, context)  # type: ignore[arg-type]
            issue_s = _issue_s(op, context, job.engine)
            bound = done.bound == "compute" and not isinstance(op, Elementwise)
            found = known[op] = (done.time_s, issue_s, done.sigma, done.model, done.uses, bound)
        time_s, issue_s, sigma, model, uses, bound = found
        kind = (
            "convolutions"
            if isinstance(op, Convolve)
            else "matrix products"
            if isinstance(op, Gemm)
            else "element-wise"
        )
        part = sums.setdefault(kind, _Sum())
        part.time_s += time_s * item.count
        part.bound_s += time_s * item.count if bound else 0.0
        part.doubt_s += time_s * item.count * sigma
        part.model = part.model or model
        part.uses = part.uses if set(uses) <= set(part.uses) else tuple(dict.fromkeys((*part.uses, *uses)))
        busy_s += time_s * item.count
        issued_s += issue_s * item.count
        moved += float(getattr(op, "bytes", 0.0)) * item.count
    return sums, max(0.0, issued_s - busy_s), moved


def _slower_s(sums: dict[str, _Sum], job: NetworkServingJob) -> float:
    """What the clock that power leaves adds to a batch at the full one (see `serving.heat`)."""
    chip, time_s = job.system.chip, sum(part.time_s for part in sums.values())
    bound_s = sum(part.bound_s for part in sums.values())
    if time_s <= 0 or bound_s <= 0 or not chip.has_peak(job.precision):
        return 0.0
    busy = min(1.0, job.network.forward_flop() * job.batch_count / (chip.peak(job.precision) * time_s))
    return lower_clock_s(bound_s, busy, sustained_clock_frac(job.calibration, chip, job.precision))


@cache
def _near(chip: Chip) -> Chip:
    """A processor's cores keep the maps of their image in caches of their own: they are read and written at their rate.

    Weights that all cores share are read from there too; what one image needs is taken to fit.
    """
    if chip.kind != "cpu" or chip.unit_count is None or chip.clock_hz is None:
        return chip
    rate = _CORE_BYTES_PER_CYCLE * chip.unit_count * chip.clock_hz
    return replace(chip, memory_bandwidth_bytes_per_s=max(rate, chip.memory_bandwidth_bytes_per_s or 0.0))


def _issue_s(op: Op, context: KernelContext, engine: EngineProfile) -> float:
    """What the host needs to issue an operation (0 with graphs, and for kernels that a library adds by itself)."""
    if engine.graphs or (isinstance(op, Elementwise) and op.name == LAYOUT):
        return 0.0
    layer = isinstance(op, (Convolve, Gemm)) or (isinstance(op, Elementwise) and op.kind == "batch-norm")
    floor_s = (engine.layer_floor_s if layer else 0.0) or engine.kernel_floor_s
    return kernels_count(op, context) * floor_s  # type: ignore[arg-type]


def _family(job: NetworkServingJob) -> str:
    """The engine's attention kernels where the chip has a law for them, else the chip's preferred ones."""
    family = job.engine.attention_family
    if family == "unfused" or f"attention-prefill.{family}" in job.calibration.laws:
        return family
    return ""


def _leaves(sums: dict[str, _Sum]) -> list[Breakdown]:
    return [leaf(name, part.time_s, "s", model=part.model, uses=part.uses) for name, part in sums.items()]


def _host(job: NetworkServingJob, waiting_s: float, host_s: float) -> list[Breakdown]:
    engine = job.engine
    return [
        leaf(name, time_s, "s", uses=(engine.fact_id(field),))
        for name, time_s, field in (
            ("kernel floors", waiting_s, "kernel_floor_s"),
            ("host", host_s, "host_step_s"),
        )
        if time_s > 0
    ]


def network_memory(job: NetworkServingJob) -> Breakdown:
    """Memory of one device [bytes]: weights, the widest point of the network, the engine's context."""
    wide = bytes_per_element(job.precision)
    working = largest_working_set_count(job.network) * job.batch_count * wide
    context = job.engine.context_bytes + job.engine.workspace_bytes
    return total(
        "memory",
        "B",
        [
            leaf("weights", job.network.parameters_count * wide, "B"),
            leaf("activations", working, "B"),
            leaf("context", context, "B", uses=(job.engine.fact_id("context_bytes"),)),
        ],
    )


def _remarks(job: NetworkServingJob) -> list[Note]:
    notes = [Note("not-modelled", "decoding and preparing of images, and what follows the network (boxes, masks)")]
    if job.engine.assumed:
        facts = tuple(job.engine.fact_id(name) for name in job.engine.assumed)
        notes.append(Note("assumed", f"{job.engine.name or job.engine.id}: {len(facts)} figures are assumed", facts))
    return notes
