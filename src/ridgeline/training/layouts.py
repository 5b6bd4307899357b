"""The layouts that a training job may take on a machine, with those that cannot be counted by reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product

from ridgeline.core import FrozenMap
from ridgeline.specs import SoftwareProfile, System, TrainingPlan, Transformer
from ridgeline.training.check import check_plan
from ridgeline.training.memory import peak_bytes

MEMORY = "memory"
_CONTEXT_TOKENS = 4096  # src: megatron-core-changelog (context parallelism is for sequences of 8k tokens and more)
_CHUNKS = {"zb-h1": 1, "zb-h2": 1, "zb-v": 2}
_MICRO_BATCHES = (1, 2, 4, 8)  # src: ridgeline-layouts
_EXPERT_DEGREES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # src: ridgeline-layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRequest:
    """What is asked: a model on `devices_count` devices of a system, under a software.

    `base` gives batch, sequence, precision and every field that is not searched; `pins` names fields of the plan that
    are already decided, with their values.
    """

    model: Transformer
    system: System
    software: SoftwareProfile
    devices_count: int
    base: TrainingPlan
    pins: FrozenMap[str, float | str | bool] = field(default_factory=FrozenMap)

    def options(self, name: str, found: Sequence[int]) -> Sequence[int]:
        """Values of one degree: the pinned one, else `found`."""
        return (int(self.pins[name]),) if name in self.pins else found


def layouts(request: LayoutRequest, rejected: dict[str, int] | None = None) -> Iterator[TrainingPlan]:
    """Layouts that keep every rule and fit memory, each with the least recompute that fits.

    Rejections are counted in `rejected` by the code of the first broken rule, or "memory".
    """
    counts = rejected if rejected is not None else {}
    for plan in candidates(request):
        problems = check_plan(request.model, request.system, plan)
        if problems:
            _count(counts, problems[0].code)
            continue
        fitted = least_recompute(request.model, request.system, request.software, plan, request.pins)
        if fitted is None:
            _count(counts, MEMORY)
        else:
            yield fitted


def candidates(request: LayoutRequest) -> Iterator[TrainingPlan]:
    """Combinations of degrees whose product is the number of devices; rules and memory are not asked yet."""
    devices, base = request.devices_count, request.base
    tensors = request.options("tensor_count", _tensor_degrees(request))
    pipelines = request.options("pipeline_count", _divisors(devices, request.model.layers_count))
    contexts = request.options("context_count", context_degrees(base.sequence_tokens))
    batches = request.options("micro_batch_count", _MICRO_BATCHES)
    experts = request.options("expert_count", expert_degrees(request.model))
    for tensor, pipeline, context, expert in product(tensors, pipelines, contexts, experts):
        if devices % (tensor * pipeline * context):
            continue
        data = devices // (tensor * pipeline * context)
        if int(request.pins.get("data_count", data)) != data:
            continue
        for interleave, micro, shards in product(
            request.options("interleave_count", _virtual_stages(request.model.layers_count, pipeline, base.schedule)),
            batches,
            _shardings(request, pipeline, tensor),
        ):
            fixed: dict[str, object] = dict(request.pins)
            yield replace(
                base,
                **{  # type: ignore[arg-type]
                    "sequence_parallel": request.software.sequence_parallel and tensor > 1,
                    **fixed,
                    "tensor_count": tensor,
                    "pipeline_count": pipeline,
                    "context_count": context,
                    "data_count": data,
                    "expert_count": expert,
                    "interleave_count": interleave,
                    "micro_batch_count": micro,
                    "sharding": shards,
                },
            )


def least_recompute(
    model: Transformer,
    system: System,
    software: SoftwareProfile,
    plan: TrainingPlan,
    pins: Mapping[str, object] = FrozenMap(),
) -> TrainingPlan | None:
    """`plan` with the least recompute with which it fits the memory of the device; None where nothing fits.

    None, then selective where that frees anything, then whole layers: as many as needed, in quarters.
    """
    available = system.chip.memory_bytes()
    for recompute, share in _recompute_options(plan, software, pins):
        tried = replace(plan, recompute=recompute, recompute_layers_frac=share)  # type: ignore[arg-type]
        if peak_bytes(model, tried, software) <= available:
            return tried
    return None


def _recompute_options(
    plan: TrainingPlan, software: SoftwareProfile, pins: Mapping[str, object]
) -> Iterator[tuple[str, float]]:
    if "recompute" in pins:
        yield str(pins["recompute"]), plan.recompute_layers_frac
        return
    yield "none", 1.0
    if software.attention == "unfused" or software.cheap_recompute:
        yield "selective", 1.0
    for quarter in range(1, 5):  # src: ridgeline-layouts
        yield "full", quarter / 4  # src: ridgeline-layouts


def _tensor_degrees(request: LayoutRequest) -> list[int]:
    levels = request.system.levels
    size = (levels[0].size_count if levels else 1) or request.system.devices_per_node_count
    widest = max(16, request.system.devices_per_node_count)  # src: ridgeline-layouts
    return [degree for degree in _powers(min(size, request.devices_count)) if degree <= widest]


def _powers(limit: int) -> list[int]:
    return [2**power for power in range(limit.bit_length()) if 2**power <= limit]


@lru_cache(maxsize=256)
def _divisors(devices: int, layers: int) -> tuple[int, ...]:
    """Pipeline depths: divisors of the devices that leave a layer to each stage."""
    return tuple(depth for depth in range(1, min(devices, layers) + 1) if devices % depth == 0)


def context_degrees(sequence_tokens: int) -> list[int]:
    """Context degrees worth a try for sequences of that length."""
    return [degree for degree in _powers(max(1, sequence_tokens // _CONTEXT_TOKENS)) if degree <= _MICRO_BATCHES[-1]]


def expert_degrees(model: Transformer) -> tuple[int, ...]:
    """Expert degrees that divide the experts of every mixture in `model`; 1 where it has none."""
    most = max((run.layer.experts_count for run in model.main.runs), default=0)
    return tuple(degree for degree in _EXPERT_DEGREES if degree == 1 or (most and most % degree == 0))


def _virtual_stages(layers: int, pipeline: int, schedule: str) -> list[int]:
    """One, and the finest, and one in between, of the counts of virtual stages that divide the layers.

    Schedules that split the backward pass have a number of their own.
    """
    if schedule in _CHUNKS:
        return [_CHUNKS[schedule]]
    if pipeline == 1:
        return [1]
    each = layers // pipeline if layers % pipeline == 0 else 1
    found = [count for count in range(1, each + 1) if each % count == 0]
    return sorted({found[0], found[len(found) // 2], found[-1]})


def _shardings(request: LayoutRequest, pipeline: int, tensor: int) -> list[str]:
    """The software's habit, and full sharding without other cuts where it can gather ahead."""
    if "sharding" in request.pins:
        return [str(request.pins["sharding"])]
    usual = request.software.sharding
    if usual == "zero3" and pipeline > 1:
        return ["zero1"]
    extra = ["zero3"] if pipeline == 1 and tensor == 1 and request.software.prefetch_layers_count > 0 else []
    return list(dict.fromkeys([usual, *extra]))


def _count(counts: dict[str, int], code: str) -> None:
    counts[code] = counts.get(code, 0) + 1
