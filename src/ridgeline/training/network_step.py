"""One data-parallel training step of a layered network: convolutions, traffic, gradients, optimizer, host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from ridgeline.core import Breakdown, Interval, Note, combine_correlated, leaf, merge, quadrature, total
from ridgeline.errors import BadPlan
from ridgeline.network import sliced
from ridgeline.specs import Calibration, RankGroup, SoftwareProfile, System, bytes_per_element
from ridgeline.specs.network import Network
from ridgeline.training.clock import Clock, Work, Works, add, clock_for, total_s
from ridgeline.training.phases import hide
from ridgeline.training.schedule import bucketed_exposed_s, slowest_excess_frac
from ridgeline.workload.network_memory import kept_activations_count, parameter_bytes
from ridgeline.workload.network_training import NetworkOps, network_training_ops
from ridgeline.workload.ops import Collective, Elementwise, Repeated
from ridgeline.workload.remember import remembered

Optimizer = Literal["sgd", "adam"]
# Bytes of one optimizer step a parameter: weight, gradient and moments read, weight and moments written, in fp32;
# and fp32 moments kept.
_STEP_BYTES = {"sgd": 20.0, "adam": 28.0}  # src: pytorch-docs
_MOMENT_BYTES = {"sgd": 4.0, "adam": 8.0}  # src: pytorch-docs
# Mixed precision: the 16-bit copy of a weight is made (4 + 2 bytes), its gradient widened (2 + 4) and checked (4 + 4).
_CAST_BYTES = 20.0  # src: pytorch-docs
_ZERO_BYTES = 4.0  # src: ieee-754
# Kernels a parameter tensor where nothing is fused: gradient cast, check, zeroing, and the optimizer's own.
_TENSOR_LAUNCHES = 5.0  # src: pytorch-docs
_BACKWARD_FLOP = 3.0  # src: chowdhery-2022-palm
_CLOCKED = ("convolutions", "matrix products", "attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTrainingJob:
    """A network, `batch_count` images on each of `devices_count` devices, a machine and the software that runs it.

    `input_sample_s`: least time between two images that the input pipeline can give one device (0: not a limit).
    """

    network: Network
    devices_count: int
    batch_count: float
    precision: str
    system: System
    calibration: Calibration
    software: SoftwareProfile
    optimizer: Optimizer = "sgd"
    input_sample_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTrainingEstimate:
    """One step: how long, made of what, in how much memory, how sure.

    `time` adds up to `step_s.best`. `model_flop_per_s_per_device` counts three times the forward pass; `mfu_frac` is
    that over the dense peak of the precision.
    """

    step_s: Interval
    time: Breakdown
    memory: Breakdown
    memory_available_bytes: float
    fits: bool
    samples_per_s: float
    model_flop_per_s_per_device: float
    mfu_frac: float
    notes: tuple[Note, ...]
    uses: tuple[str, ...]
    models: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for `--json`, page and report."""
        return {
            "step_s": self.step_s.to_dict(),
            "samples_per_s": self.samples_per_s,
            "model_flop_per_s_per_device": self.model_flop_per_s_per_device,
            "mfu_frac": self.mfu_frac,
            "fits": self.fits,
            "memory_available_bytes": self.memory_available_bytes,
            "time": self.time.to_dict(),
            "memory": self.memory.to_dict(),
            "notes": [note.to_dict() for note in self.notes],
            "uses": list(self.uses),
            "models": list(self.models),
        }


def estimate_network_step(job: NetworkTrainingJob) -> NetworkTrainingEstimate:
    """Time, memory and sureness of one step of `job`: every device works on its own images, gradients are summed.

    Raises `BadPlan` for an empty batch and `MissingFact` where the chip lacks a figure that is needed.
    """
    if job.batch_count <= 0 or job.devices_count < 1:
        raise BadPlan(f"{job.batch_count:g} images on each of {job.devices_count} devices")
    clock = clock_for(sliced(job.system, job.devices_count), job.calibration, job.software)
    tree, sigma = _time(job, clock)
    memory = network_memory(job)
    available = job.system.chip.memory_bytes()
    step_s = tree.value
    flop = _BACKWARD_FLOP * job.network.forward_flop(training=True) * job.batch_count
    chip = job.system.chip
    facts = (*tree.facts(), *memory.facts(), chip.fact_id(f"peak_dense_flop_per_s.{chip.peak_key(job.precision)}"))
    return NetworkTrainingEstimate(
        step_s=Interval.from_sigma(step_s, sigma),
        time=tree,
        memory=memory,
        memory_available_bytes=available,
        fits=memory.value <= available,
        samples_per_s=job.batch_count * job.devices_count / step_s,
        model_flop_per_s_per_device=flop / step_s,
        mfu_frac=flop / step_s / chip.peak(job.precision),
        notes=merge(_remarks(job, clock)),
        uses=tuple(dict.fromkeys(facts)),
        models=tuple(dict.fromkeys(tree.models())),
    )


@remembered(Network, limit=512)  # src: pytorch-docs
def training_ops(network: Network, batch: float, precision: str, software: SoftwareProfile) -> NetworkOps:
    """Operations of both passes, remembered."""
    return network_training_ops(network, batch, precision, software)


def _time(job: NetworkTrainingJob, clock: Clock) -> tuple[Breakdown, float]:
    ops = training_ops(job.network, job.batch_count, job.precision, job.software)
    forward, backward = clock.works(ops.forward), clock.works(ops.backward)
    for works in (forward, backward):
        if job.software.engines_overlap:
            products_s = total_s(works, *_CLOCKED)
            hide(works, "element-wise", lambda busy_s, window_s, pieces: max(0.0, busy_s - window_s), products_s, 1.0)
        _add_conditions(works, job, clock)
    exchange = _exchange(job, clock, total_s(backward))
    once = clock.works(_update_ops(job))
    step = {"optimizer": _merged(once, "optimizer")} if once else {}
    parts = [forward, backward, exchange, step]
    busy_s = sum(total_s(works) for works in parts)
    waiting = _waiting(job, parts, busy_s)
    tree = total(
        "step",
        "s",
        [
            total("forward", "s", [work.leaf() for work in forward.values()]),
            total("backward", "s", [work.leaf() for work in backward.values()]),
            *(work.leaf() for work in (*exchange.values(), *step.values())),
            *waiting,
        ],
    )
    families: dict[str, list[float]] = {}
    for work in (work for works in parts for work in works.values()):
        family = families.setdefault(work.name.removesuffix(" hidden"), [0.0, 0.0])
        family[0] += work.time_s
        family[1] += work.doubt_s
    pairs = [(max(time_s, 0.0), doubt_s / time_s if time_s > 0 else 0.0) for time_s, doubt_s in families.values()]
    # kernels of one library, and what surrounds them, err together
    return tree, quadrature(combine_correlated(pairs), job.software.release_sigma)


def _add_conditions(works: Works, job: NetworkTrainingJob, clock: Clock) -> None:
    """Real values, and the slowest of many devices."""
    software = clock.software
    products_s = total_s(works, *_CLOCKED)
    real = software.real_data_frac.get(clock.system.chip.architecture, 1.0)
    excess = slowest_excess_frac(software.spread_sigma_frac, job.devices_count)
    for name, time_s, field in (
        ("power of real values", products_s * (1.0 / real - 1.0), "real_data_frac"),
        ("slowest device", products_s * excess, "spread_sigma_frac"),
    ):
        if time_s > 0:
            add(works, Work(name, time_s, 0.0, 0.0, "", (software.fact_id(field),)))


def _exchange(job: NetworkTrainingJob, clock: Clock, backward_s: float) -> Works:
    """Sum of gradients over all devices, in buckets behind the backward pass where the software does so."""
    if job.devices_count == 1:
        return {}
    software = job.software
    wide = _reduce_bytes(job)
    size = job.network.trained_parameters_count * wide
    group = RankGroup(size_count=job.devices_count)
    op = Collective(name="gradient sum", kind="all_reduce", message_bytes=size, group=group)
    works = clock.works([Repeated(op=op)])
    if software.data_overlap:
        buckets = max(1.0, size / software.bucket_bytes) if software.bucket_bytes > 0 else 1.0
        hidden_s = hide(works, "gradient exchange", bucketed_exposed_s, backward_s, buckets)
        if hidden_s > 0 and software.overlap_slowdown_frac > 0:
            slowed_s = hidden_s * software.overlap_slowdown_frac
            add(works, Work("slowed by exchange", slowed_s, 0.0, 0.0, "", (software.fact_id("overlap_slowdown_frac"),)))
    return works


def _reduce_bytes(job: NetworkTrainingJob) -> float:
    """Bytes of a gradient on the wire: the framework's precision ("same": that of the activations)."""
    wanted = job.software.reduce_precision
    return bytes_per_element(job.precision if wanted in ("same", "fp32-if-bf16") else wanted)


def _update_ops(job: NetworkTrainingJob) -> list[Repeated]:
    """Casts of weights and gradients and the optimizer's step."""
    count = float(job.network.trained_parameters_count)
    if count == 0:
        return []
    mixed = bytes_per_element(job.precision) < bytes_per_element("fp32")
    moved = count * (_STEP_BYTES[job.optimizer] + _ZERO_BYTES + (_CAST_BYTES if mixed else 0.0))
    tensors = sum(1 for node in job.network.nodes if node.trained and node.operator.parameters_count > 0)
    launches = _TENSOR_LAUNCHES * (1.0 if job.software.fused_optimizer else 2.0 * tensors)
    return [Repeated(op=Elementwise(name="optimizer", kind="stream", bytes=moved, launches_count=launches))]


def _merged(works: Works, name: str) -> Work:
    items = list(works.values())
    uses = tuple(dict.fromkeys(fact for work in items for fact in work.uses))
    doubt_s, kernels = sum(work.doubt_s for work in items), sum(work.kernels_count for work in items)
    return Work(name, total_s(works), doubt_s, kernels, items[0].model, uses)


def _waiting(job: NetworkTrainingJob, parts: list[Works], busy_s: float) -> list[Breakdown]:
    """What the device waits for: the host that issues kernels, and images that are not there yet."""
    found: list[Breakdown] = []
    software = job.software
    if software.host_launch_s > 0 and not software.graphs:
        kernels = sum(work.kernels_count for works in parts for work in works.values())
        late_s = kernels * software.host_launch_s - busy_s
        if late_s > 0:
            found.append(leaf("host launches", late_s, "s", uses=(software.fact_id("host_launch_s"),)))
            busy_s += late_s
    starved_s = job.input_sample_s * job.batch_count - busy_s
    if starved_s > 0:
        found.append(leaf("waiting for input", starved_s, "s"))
    return found


def network_memory(job: NetworkTrainingJob) -> Breakdown:
    """Memory of one device [bytes], by part."""
    network, software = job.network, job.software
    weights, gradients = parameter_bytes(network, job.precision)
    kept = kept_activations_count(network, software.network_fusion != "none")
    moments = network.trained_parameters_count * _MOMENT_BYTES[job.optimizer]
    activations = kept * job.batch_count * bytes_per_element(job.precision)
    image = network.image.elements_count * job.batch_count * bytes_per_element(job.precision)
    largest = max((node.copies_count * node.shape.elements_count for node in network.nodes), default=0.0)
    working = 2.0 * largest * job.batch_count * bytes_per_element(job.precision)
    inside = weights + gradients + moments + activations + image + working
    parts = [
        leaf("weights", weights, "B"),
        leaf("gradients", gradients, "B"),
        leaf("optimizer", moments, "B"),
        leaf("activations", activations, "B"),
        leaf("input", image, "B"),
        leaf("working set", working, "B"),
        leaf(
            "fragmentation", inside * software.fragmentation_frac, "B", uses=(software.fact_id("fragmentation_frac"),)
        ),
        leaf("context", software.context_bytes, "B", uses=(software.fact_id("context_bytes"),)),
    ]
    return total("memory", "B", parts)


def largest_batch_count(job: NetworkTrainingJob, step: int = 8) -> int:  # src: nvidia-dl-memory-limited
    """The most images a device that fit its memory, a multiple of `step` (the fill for a batch that is not stated)."""
    one, two = network_memory(_with_batch(job, 1.0)).value, network_memory(_with_batch(job, 2.0)).value
    room = job.system.chip.memory_bytes() - one
    return max(1, int((1 + room / (two - one)) // step * step)) if room > 0 else 1


def _with_batch(job: NetworkTrainingJob, batch: float) -> NetworkTrainingJob:
    return replace(job, batch_count=batch)


def _remarks(job: NetworkTrainingJob, clock: Clock) -> list[Note]:
    notes = []
    if job.software.assumed:
        facts = tuple(job.software.fact_id(name) for name in job.software.assumed)
        notes.append(
            Note("assumed", f"{job.software.name or job.software.id}: {len(facts)} figures are assumed", facts)
        )
    notes += [
        Note("hint", f"some kernels are timed by laws at level {level!r}, not measured on this device")
        for level in ("universal", "published")
        if level in clock.levels
    ]
    if job.precision == "fp32":
        notes.append(Note("not-modelled", "Winograd forms of 3x3 convolutions in fp32"))
    return notes
