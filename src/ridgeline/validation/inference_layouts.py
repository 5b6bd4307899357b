"""How a serving row lays its model on the devices: its columns, its benchmark's script, its engine's default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ridgeline.serving import layout_problems
from ridgeline.specs import EngineProfile, ServingPlan, System, Transformer
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_engines import mlperf_round

Choice = Literal["only", "best", "between"]

# Log standard deviation of a layout that is not stated: between the spread of sensible ones.
LAYOUT_SIGMA = 0.1
# Units that a tensor degree counts, a chip: NeuronCores; trn2 pairs its eight (logical cores of two): aws-neuron-docs.
CORES_PER_CHIP = {"inferentia1": 4, "inferentia2": 2, "trainium1": 2, "trainium2": 4}
# Engines that spread layers over devices, one after the other, unless they are told otherwise.
LAYER_SPLIT = frozenset({"llama-cpp", "llama-cpp-b6300", "exllamav2"})
# Sources whose expert degree is the whole tensor group, attention cut over it (data-parallel degree 1 in their files).
EXPERTS_OF_GROUP = ("ML.ENERGY leaderboard",)
# Mixtures for which TensorRT-LLM's benchmark script replicates attention (enable_attention_dp): trtllm-perf-overview.
ATTENTION_DP = ("qwen3-30b-a3b", "qwen3-235b-a22b", "llama-4-maverick", "gpt-oss-120b", "gpt-oss-20b", "deepseek-v3")
# Engines that can replicate attention inside a group that shares the experts.
REPLICATES_ATTENTION = frozenset({"tensorrt-llm", "vllm", "vllm-0.8", "sglang", "jetstream"})
_NODE_DEVICES = 8
_DSTACK = re.compile(r"gpu label '(\d+)x\w+ (\d)FP8")


@dataclass(frozen=True, slots=True)
class Layouts:
    """Plans of a row: the only one, those of which the submitter will have taken the best, or those between which the
    truth lies. `copies_count`: copies of the model of which the row's batch counts one."""

    plans: tuple[ServingPlan, ...]
    choice: Choice = "only"
    fills: tuple[tuple[str, float], ...] = ()
    copies_count: int = 1


def layouts_of(row: Row, model: Transformer, system: System, engine: EngineProfile, base: ServingPlan) -> Layouts:
    """Plans of a row, with the formats of `base`; `Unscored` where no device count is known."""
    stated_tp, pp, ep = row.count("tp"), row.count("pp"), row.count("ep")
    cores = CORES_PER_CHIP.get(system.chip.id, 1)
    tensor = None if stated_tp is None else max(1, stated_tp // cores)
    if stated_tp is not None and stated_tp >= cores:
        base = replace(base, head_units_count=cores)
    devices = row.count("n_devices")
    if devices is None:
        if tensor is None:
            raise Unscored("number of devices not stated")
        devices = tensor * (pp or 1)
    if (found := _DSTACK.search(row.text("note"))) is not None and tensor is None:
        copies = int(found.group(2))
        if not 1 <= copies <= devices:
            raise Unscored(f"{copies} copies on {devices} devices")
        plan = replace(base, tensor_count=devices // copies, replica_count=copies)
        fills = ((f"{copies} copies, each over {devices // copies} devices (label)", 0.02),)
        return Layouts((plan,), fills=fills, copies_count=copies)
    if row.text("source_title").startswith("TensorRT-LLM performance overview") and _experts(model) and ep is None:
        return _perf_overview(model, base, tensor or devices, pp or 1, devices)
    if ep and row.text("source_title").startswith(EXPERTS_OF_GROUP):
        plan = replace(base, tensor_count=devices, expert_count=ep)
        return Layouts((plan,), fills=(("attention cut over the devices that share the experts", 0.05),))
    if tensor is not None or pp is not None or ep is not None:
        return Layouts((_stated(base, devices, tensor, pp, ep),))
    if devices == 1:
        return Layouts((base,))
    if mlperf_round(row):
        plans = tuple(_candidates(model, system, base, devices, engine.id in REPLICATES_ATTENTION))
        if not plans:
            raise Unscored("no layout divides the model over the stated devices")
        return Layouts(plans, "best", (("layout: the one that rates best, as a submitter would choose", LAYOUT_SIGMA),))
    if engine.id in LAYER_SPLIT:
        plan = replace(base, pipeline_count=devices)
        return Layouts((plan,), fills=((f"layers over {devices} devices in turn, the engine's default", 0.05),))
    plan = replace(base, tensor_count=devices)
    return Layouts((plan,), fills=((f"tensor parallel over the {devices} devices", LAYOUT_SIGMA),))


def _experts(model: Transformer) -> int:
    return max((run.layer.experts_count for run in model.main.runs), default=0)


def _stated(base: ServingPlan, devices: int, tensor: int | None, pp: int | None, ep: int | None) -> ServingPlan:
    """Columns of a row: experts spread wider than attention mean attention replicated inside the group."""
    stages = pp or 1
    degree = tensor or (1 if ep else max(1, devices // stages))
    group = max(degree, ep or 1)
    return replace(
        base,
        tensor_count=group,
        pipeline_count=stages,
        expert_count=ep or 1,
        attention_data_count=group // degree if group % degree == 0 else 1,
        replica_count=max(1, devices // (group * stages)),
    )


def _perf_overview(model: Transformer, base: ServingPlan, tensor: int, stages: int, devices: int) -> Layouts:
    plan = replace(base, tensor_count=tensor, pipeline_count=stages, replica_count=max(1, devices // (tensor * stages)))
    if tensor == 1:
        return Layouts((plan,))
    if model.id in ATTENTION_DP:
        spread = replace(plan, expert_count=tensor, attention_data_count=tensor)
        fills = (("attention replicated, experts spread: the options that the source names for this model", 0.1),)
        return Layouts((spread,), fills=fills)
    if model.id.startswith("mixtral"):
        return Layouts((plan,), fills=(("experts cut over the tensor group (engines of this release)", 0.05),))
    both = (plan, replace(plan, expert_count=tensor))
    return Layouts(both, "between", (("degree of expert parallelism not stated: between none and all", 0.1),))


def _candidates(
    model: Transformer, system: System, base: ServingPlan, devices: int, replicates: bool
) -> Iterator[ServingPlan]:
    """Layouts within a node that use all devices; attention and experts of mixtures cut together or spread, attention
    replicated where the engine can (`replicates`)."""
    node = min(devices, max(1, system.levels[0].size_count or devices) if system.levels else devices, _NODE_DEVICES)
    tensor = 1
    while tensor <= node:
        if devices % tensor == 0:
            plan = replace(base, tensor_count=tensor, replica_count=devices // tensor)
            plans = [plan]
            if _experts(model) and tensor > 1:
                plans.append(replace(plan, expert_count=tensor))
                if replicates:
                    plans.append(replace(plan, expert_count=tensor, attention_data_count=tensor))
            yield from (each for each in plans if not layout_problems(model, each, system))
        tensor *= 2
