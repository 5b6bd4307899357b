"""Making pictures and films with a diffusion transformer: text, steps of the denoiser, decoder, on devices that share
a sequence."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ridgeline.core import Breakdown, Interval, combine_correlated, combine_independent, leaf, quadrature, total
from ridgeline.device import KernelContext, OpTime, kernels_count, op_time
from ridgeline.device.settled import sustained_clock_frac, unthrottled
from ridgeline.errors import BadPlan
from ridgeline.network import collective_time
from ridgeline.serving.heat import lower_clock_s
from ridgeline.serving.network import NetworkServingEstimate, NetworkServingJob, estimate_network
from ridgeline.specs import Calibration, EngineProfile, System
from ridgeline.specs.network import Network
from ridgeline.workload.denoising import PRECISION, DenoisingTransformer, SequenceSplit, denoiser_ops
from ridgeline.workload.ops import AttentionPrefill, Collective, Convolve, Elementwise, Gemm, Repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoisingJob:
    """A batch of `batch_count` items in `steps_count` steps.

    `picture_tokens` of each item, decoded by `decoder` (one item after the other on every device, as the reference
    pipelines do). `split`: how devices share a sequence.
    """

    model: DenoisingTransformer
    decoder: Network
    batch_count: float
    steps_count: float
    picture_tokens: float
    split: SequenceSplit
    system: System
    calibration: Calibration
    engine: EngineProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoisingEstimate:
    """Time of the batch with its interval, made of `time`; `flop_per_s_per_device`: rate of the denoiser's products."""

    latency_s: Interval
    time: Breakdown
    flop_per_s_per_device: float


@dataclass(slots=True)
class _Sums:
    """Times of one pass by kind, what the host issues, and what the matrix units do."""

    kernels: dict[str, list[tuple[float, float]]]
    wire: list[tuple[float, float]]
    issued_s: float = 0.0
    bound_s: float = 0.0
    flop: float = 0.0

    @property
    def kernels_s(self) -> float:
        return sum(time for pairs in self.kernels.values() for time, _ in pairs)

    @property
    def wire_s(self) -> float:
        return sum(time for time, _ in self.wire)


def estimate_denoising(job: DenoisingJob) -> DenoisingEstimate:
    """Time of a batch.

    Every step runs the denoiser `guidance_count` times (as one larger batch). A pass takes its kernels and exchanges,
    or what the host needs to issue them, whichever is longer; the power cap lowers the clock of kernels that matrix
    units bound. Text is encoded once. Exchanges are not hidden: attention that fills the device leaves them no units.
    """
    if job.batch_count <= 0 or job.steps_count <= 0:
        raise BadPlan(f"{job.batch_count:g} items in {job.steps_count:g} steps")
    sums = _pass(
        denoiser_ops(job.model, job.batch_count * job.model.guidance_count, job.picture_tokens, job.split), job
    )
    device_s = sums.kernels_s + sums.wire_s
    slower_s = _slower_s(sums, device_s, job)
    waiting_s = max(0.0, sums.issued_s - device_s - slower_s)
    text_s, text_sigma = _text(job)
    picture = _picture(job)
    decoded_s = picture.latency_s.best * job.batch_count
    handed_s = job.batch_count * job.engine.host_sequence_s
    steps = job.steps_count
    parts = [leaf(name, steps * sum(t for t, _ in pairs), "s") for name, pairs in sums.kernels.items()]
    engine = job.engine
    for name, time_s, field in (
        ("exchange", steps * sums.wire_s, ""),
        ("lower clock", steps * slower_s, ""),
        ("launches", steps * waiting_s, "kernel_floor_s"),
        ("host", steps * engine.host_step_s, "host_step_s"),
        ("text", text_s, ""),
        ("decoder", decoded_s, ""),
        ("pictures to the host", handed_s, "host_sequence_s"),
    ):
        if time_s > 0:
            parts.append(leaf(name, time_s, "s", uses=(engine.fact_id(field),) if field else ()))
    tree = total("batch", "s", parts)
    terms = [
        (steps * (sums.kernels_s + slower_s), combine_correlated([pair for p in sums.kernels.values() for pair in p])),
        (steps * sums.wire_s, combine_correlated(sums.wire) if sums.wire else 0.0),
        (steps * waiting_s, engine.floor_sigma),
        (steps * engine.host_step_s + handed_s, engine.host_sigma),
        (steps * sum(t for t, _ in sums.kernels.get("element-wise", [])), engine.traffic_sigma),
        (text_s, text_sigma),
        (decoded_s, picture.latency_s.sigma),
    ]
    sigma = quadrature(combine_independent(terms), engine.release_sigma)
    return DenoisingEstimate(
        latency_s=Interval.from_sigma(tree.value, sigma),
        time=tree,
        flop_per_s_per_device=steps * sums.flop / tree.value,
    )


def _pass(ops: tuple[Repeated, ...], job: DenoisingJob) -> _Sums:
    calibration = unthrottled(job.calibration)
    context = KernelContext(attention=job.engine.attention_family)
    sums = _Sums({"products": [], "attention": [], "convolutions": [], "element-wise": []}, [])
    for item in ops:
        op = item.op
        if isinstance(op, Collective):
            wire = collective_time(op.kind, op.message_bytes, op.group, job.system, calibration)
            sums.wire.append((item.count * wire.time_s, wire.sigma))
            sums.issued_s += item.count * _CALL_KERNELS * job.engine.kernel_floor_s
            continue
        if isinstance(op, Elementwise):
            op = replace(op, bytes=op.bytes * job.engine.traffic_frac)
        done = op_time(op, job.system.chip, calibration, context)
        time_s = item.count * done.time_s
        sums.kernels[_kind(op)].append((time_s, done.sigma))
        sums.issued_s += item.count * kernels_count(op, context) * job.engine.kernel_floor_s
        _count(sums, op, item.count, done)
    sums.kernels = {name: pairs for name, pairs in sums.kernels.items() if pairs}
    return sums


def _kind(op: object) -> str:
    if isinstance(op, Gemm):
        return "products"
    if isinstance(op, AttentionPrefill):
        return "attention"
    return "convolutions" if isinstance(op, Convolve) else "element-wise"


def _count(sums: _Sums, op: object, count: float, done: OpTime) -> None:
    if isinstance(op, Elementwise):
        return
    if isinstance(op, AttentionPrefill):
        dims = op.key_dim_count + op.value_dim_count
        sums.flop += 2.0 * count * op.batch_count * op.heads_count * op.query_tokens * op.key_tokens * dims
    elif isinstance(op, (Gemm, Convolve)):
        sums.flop += count * op.flop
    if done.bound == "compute":
        sums.bound_s += count * done.time_s


def _slower_s(sums: _Sums, device_s: float, job: DenoisingJob) -> float:
    chip = job.system.chip
    busy = min(1.0, sums.flop / (chip.peak(PRECISION) * device_s))
    return lower_clock_s(sums.bound_s, busy, sustained_clock_frac(job.calibration, chip, PRECISION))


def _text(job: DenoisingJob) -> tuple[float, float]:
    """Time of the text encoder, once a batch: products of its weights, launches of its layers."""
    model = job.model
    prompts = job.batch_count * model.guidance_count
    layers = float(model.encoder_layers_count)
    edge = (model.encoder_parameters_count / layers) ** 0.5
    product = Gemm(name="text", m=prompts * model.text_tokens_count, n=edge, k=edge)
    done = op_time(product, job.system.chip, job.calibration, KernelContext())
    issued_s = layers * _ENCODER_KERNELS * job.engine.kernel_floor_s
    return max(layers * done.time_s, issued_s), quadrature(done.sigma, job.engine.floor_sigma)


# Kernels of a layer of the text encoder; what issuing an exchange costs the host, in kernels.
_ENCODER_KERNELS = 24.0  # src: diffusers-source
_CALL_KERNELS = 3.0  # src: rl-derivation


def _picture(job: DenoisingJob) -> NetworkServingEstimate:
    return estimate_network(
        NetworkServingJob(
            network=job.decoder,
            batch_count=1.0,
            precision=PRECISION,
            system=job.system,
            calibration=job.calibration,
            engine=job.engine,
        )
    )
