"""Notes that travel with a training estimate: what it leans on and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator

from ridgeline.core import Note
from ridgeline.specs import Recurrence
from ridgeline.training.clock import Clock, attention_family
from ridgeline.training.job import TrainingJob
from ridgeline.training.memory import SLACK, peak_memory
from ridgeline.units import show


def remarks(job: TrainingJob, clock: Clock) -> list[Note]:
    """All notes of one estimate."""
    return [*_room(job), *_software(job), *_laws(clock), *_model(job)]


def _room(job: TrainingJob) -> Iterator[Note]:
    """Whether a layout that fits still does when the allocator keeps as much as it is known to keep at worst."""
    software, available = job.software, job.system.chip.memory_bytes()
    if software.fragmentation_frac <= 0:
        return
    memory = peak_memory(job.model, job.plan, software)
    high = software.fragmentation_high_frac
    most = memory.value + memory.value_of(SLACK) * (high / software.fragmentation_frac - 1)
    if memory.value <= available < most:
        text = (
            f"memory is tight: with allocator slack of {high:.0%} instead of {software.fragmentation_frac:.0%},"
            f" as its range allows, it would take {show(most, 'bytes')} of {show(available, 'bytes')}"
        )
        yield Note("hint", text, (software.fact_id("fragmentation_frac"),))


def _software(job: TrainingJob) -> Iterator[Note]:
    software = job.software
    if software.assumed:
        facts = tuple(software.fact_id(name) for name in software.assumed)
        yield Note("assumed", f"{software.name or software.id}: {len(facts)} figures are assumed, with ranges", facts)
    if job.system.chip.kind != "gpu":
        yield Note("not-modelled", "spread between devices and the cost of overlap are known for GPUs only")
    wanted = software.attention
    if wanted not in ("unfused", "best") and attention_family(job.calibration, software) != wanted:
        text = f"no law for attention kernels {wanted!r} on {job.system.chip.id}; those that it prefers are used"
        yield Note("missing", text, (f"{job.system.chip.id}.efficiency.attention-prefill.{wanted}",))


def _laws(clock: Clock) -> Iterator[Note]:
    for level in ("universal", "published"):
        if level in clock.levels:
            yield Note("hint", f"some kernels are timed by laws at level {level!r}, not measured on this device")


def _model(job: TrainingJob) -> Iterator[Note]:
    layers = [run.layer for stack in job.model.stacks for run in stack.runs]
    if job.model.mtp_parameters_count and not (job.model.ahead and job.plan.ahead_count):
        yield Note("not-modelled", "multi-token-prediction layers take no part in the step")
    if job.plan.trainable_frac < 1 and not job.plan.adapter_rank:
        yield Note("not-modelled", "small products of adapters are left out where their rank is not said")
    if job.plan.frozen_precision and job.plan.sharding == "zero3":
        text = "full sharding is taken to gather them wide"
        yield Note("not-modelled", f"frozen weights in {job.plan.frozen_precision}: {text}")
    if job.plan.adapter_rank and any(layer.experts_count for layer in layers):
        yield Note("not-modelled", "adapters of experts: experts are taken to have none")
    if job.plan.schedule == "zb-v":
        text = "schedule zb-v: a feasible schedule is made and followed; the published one waits less"
        yield Note("not-modelled", text)
    if any(layer.experts_count for layer in layers):
        yield Note("not-modelled", "experts are taken to be evenly loaded")
    if any(isinstance(mixer, Recurrence) for layer in layers for mixer in layer.mixers):
        yield Note("not-modelled", "scans are timed by their traffic alone")
    if job.plan.precision in ("nvfp4", "mxfp4", "fp4"):
        yield Note("not-modelled", "layers that 4-bit recipes keep in wider formats are taken as 4 bit")
