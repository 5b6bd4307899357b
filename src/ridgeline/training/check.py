"""Rules that a training layout must keep: each finds one kind of contradiction and says what would be allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from ridgeline.specs import Recurrence, SoftmaxAttention, System, TrainingPlan, Transformer
from ridgeline.workload.stages import dealt_counts, divides


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule: its code (for counts), the fields of the plan that break it, and a sentence."""

    code: str
    fields: tuple[str, ...]
    text: str


Rule = Callable[[Transformer, System, TrainingPlan], Iterator[Problem]]


def check_plan(model: Transformer, system: System, plan: TrainingPlan) -> list[Problem]:
    """Everything that is wrong with `plan` for `model` on `system`; empty where it can run (if it fits memory).

    Degrees must be positive before anything else is asked.
    """
    found = list(positive(model, system, plan))
    if found:
        return found
    return [problem for rule in RULES for problem in rule(model, system, plan)]


def positive(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """Degrees, batches and lengths are whole and at least 1 (0 where that means none); shares lie between 0 and 1."""
    for item in fields(plan):
        value = getattr(plan, item.name)
        if item.name.endswith(("_count", "_tokens")) and value is not None:
            least = 0 if item.default == 0 else 1
            whole = isinstance(item.default, float) or value == int(value)
            if value < least or not whole:
                text = f"{item.name} is {value}, must be a whole number from {least}"
                yield Problem("not-positive", (item.name,), text)
        if item.name.endswith("_frac") and not 0 <= value <= 1:
            yield Problem("not-positive", (item.name,), f"{item.name} is {value}, must lie between 0 and 1")


def batch(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """The global batch is a whole number of micro-batches for each data rank."""
    each = plan.data_count * plan.micro_batch_count
    if plan.global_batch_count % each:
        names = ("global_batch_count", "data_count", "micro_batch_count")
        text = f"global batch {plan.global_batch_count} is not a multiple of data degree x micro-batch = {each}"
        yield Problem("batch", names, text)


def heads(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """The tensor degree divides the query heads of every layer."""
    counts = {
        mixer.heads_count
        for stack in model.stacks
        for run in stack.runs
        for mixer in run.layer.mixers
        if isinstance(mixer, SoftmaxAttention)
    }
    for count in sorted(counts):
        if count % plan.tensor_count:
            text = f"tensor degree {plan.tensor_count} does not divide {count} attention heads"
            yield Problem("heads", ("tensor_count",), text)


def packing(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """Documents are no longer than the sequences that they are packed in, and something in those is real."""
    if not 0 <= plan.document_tokens <= plan.sequence_tokens:
        text = f"documents of {plan.document_tokens:g} tokens in sequences of {plan.sequence_tokens}"
        yield Problem("packing", ("document_tokens", "sequence_tokens"), text)
    if plan.real_frac <= 0:
        yield Problem("packing", ("real_frac",), "no token is real")
    if plan.adapter_rank and plan.trainable_frac >= 1:
        yield Problem("frozen", ("adapter_rank", "trainable_frac"), "adapters beside trained matrices")


def widths(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """The tensor degree divides the split side of every matrix (experts that are spread stay whole)."""
    wrong: set[int] = set()
    for stack in model.stacks:
        for run in stack.runs:
            for linear in run.layer.linears:
                if linear.split == "replicated" or (linear.role == "expert" and plan.expert_count > 1):
                    continue
                side = linear.outputs_count if linear.split == "column" else linear.inputs_count
                if linear.head_count is None and side % plan.tensor_count:
                    wrong.add(side)
    for side in sorted(wrong):
        yield Problem("width", ("tensor_count",), f"tensor degree {plan.tensor_count} does not divide width {side}")


def layers(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """Pipeline times virtual stages divides the layers, plainly or with embedding and head as one layer each."""
    chunks = plan.pipeline_count * plan.interleave_count
    count = model.layers_count
    if plan.ahead_count and model.ahead is None:
        yield Problem("layers", ("ahead_count",), f"{model.id} has no known modules that predict further tokens")
    if plan.first_layers_count is not None or plan.last_layers_count is not None:
        yield from _ends(count, chunks, plan)
    elif chunks > count or not divides(count, chunks):
        names = ("pipeline_count", "interleave_count")
        text = f"{plan.pipeline_count} stages x {plan.interleave_count} virtual do not divide {count} layers"
        yield Problem("layers", names, text)


def _ends(layers_count: int, chunks_count: int, plan: TrainingPlan) -> Iterator[Problem]:
    """What first and last stage leave divides over the stages between."""
    dealt = dealt_counts(layers_count, chunks_count, plan.first_layers_count, plan.last_layers_count)
    between = dealt[plan.first_layers_count is not None : len(dealt) - (plan.last_layers_count is not None)]
    if chunks_count < 2 or sum(dealt) != layers_count or min(dealt) < 0 or len(set(between)) > 1 or 0 in between:
        ends = f"{plan.first_layers_count or 'even'} and {plan.last_layers_count or 'even'}"
        names = ("first_layers_count", "last_layers_count", "pipeline_count", "interleave_count")
        text = f"stages at the ends of {ends} layers leave no even number of {layers_count} for {chunks_count} stages"
        yield Problem("layers", names, text)


def schedule(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """Interleaving needs a pipeline, and micro-batches in multiples of its depth; split backward passes likewise."""
    names: tuple[str, ...] = ("schedule", "pipeline_count", "interleave_count")
    if plan.splits_backward and plan.pipeline_count == 1:
        yield Problem("schedule", names, f"schedule {plan.schedule} fills the waiting of a pipeline; there is none")
        return
    wanted = 2 if plan.schedule == "zb-v" else 1
    if plan.splits_backward:
        if plan.interleave_count != wanted:
            text = f"schedule {plan.schedule} has {wanted} virtual stages a device, not {plan.interleave_count}"
            yield Problem("schedule", names, text)
        return
    if plan.interleave_count == 1:
        return
    if plan.pipeline_count == 1:
        yield Problem("schedule", ("interleave_count", "pipeline_count"), "virtual stages need a pipeline")
    elif plan.micro_batches_count % plan.pipeline_count:
        text = f"{plan.micro_batches_count} micro-batches are not a multiple of {plan.pipeline_count} stages"
        yield Problem("schedule", ("interleave_count", "pipeline_count", "global_batch_count"), text)


def sequence(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """Context parallelism cuts each sequence in 2 c pieces; sequence parallelism cuts what is left t ways."""
    pieces = 2 * plan.context_count if plan.context_count > 1 else 1
    if plan.sequence_tokens % pieces:
        text = f"context degree {plan.context_count} does not cut {plan.sequence_tokens} tokens into {pieces} pieces"
        yield Problem("sequence", ("context_count", "sequence_tokens"), text)
    elif plan.sequence_parallel and (plan.sequence_tokens // plan.context_count) % plan.tensor_count:
        text = f"sequence parallelism does not divide {plan.sequence_tokens // plan.context_count} tokens"
        yield Problem("sequence", ("sequence_parallel", "tensor_count"), text)
    scans = any(isinstance(m, Recurrence) for s in model.stacks for run in s.runs for m in run.layer.mixers)
    if plan.context_count > 1 and scans:
        yield Problem("sequence", ("context_count",), "context parallelism of recurrent layers is not modelled")


def experts(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """The expert degree divides the experts, and the ranks of one pipeline stage."""
    if plan.expert_count == 1:
        return
    counts = {run.layer.experts_count for run in model.main.runs if run.layer.experts_count}
    if not counts:
        yield Problem("experts", ("expert_count",), "expert parallelism for a model without experts")
    for count in sorted(counts):
        if count % plan.expert_count:
            text = f"expert degree {plan.expert_count} does not divide {count} experts"
            yield Problem("experts", ("expert_count",), text)
    ranks = plan.tensor_count * plan.context_count * plan.data_count
    if ranks % plan.expert_count:
        text = f"expert degree {plan.expert_count} does not divide the {ranks} ranks of a stage"
        yield Problem("experts", ("expert_count",), text)


def domain(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """The tensor group stays on the innermost level of the machine."""
    inner = system.levels[0].size_count if system.levels else 1
    size = system.devices_per_node_count if inner is None else inner
    if plan.tensor_count > size:
        name = system.levels[0].name if system.levels else "the device"
        text = f"tensor degree {plan.tensor_count} is wider than {name!r} of {system.id} ({size} devices)"
        yield Problem("domain", ("tensor_count",), text)


def devices(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """The machine comes in that size: whole nodes above one node, listed slices, not more than there are."""
    count, node = plan.devices_count, system.devices_per_node_count
    names = ("tensor_count", "pipeline_count", "context_count", "data_count")
    if system.max_devices_count is not None and count > system.max_devices_count:
        yield Problem("devices", names, f"{count} devices are more than {system.id} has ({system.max_devices_count})")
    if system.sizes_count and count not in system.sizes_count:
        sizes = ", ".join(str(size) for size in system.sizes_count)
        yield Problem("devices", names, f"{system.id} comes in {sizes} devices, not {count}")
    elif not system.sizes_count and count > node and count % node:
        yield Problem("devices", names, f"{count} devices are not whole nodes of {node}")


def sharding(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """Full sharding is not combined with a pipeline; groups of hybrid sharding divide the data ranks."""
    if plan.sharding in ("zero2", "zero3") and plan.pipeline_count > 1:
        text = f"{plan.sharding} moves weights or gradients each micro-batch and is not run in a pipeline"
        yield Problem("sharding", ("sharding", "pipeline_count"), text)
    group = plan.shard_group_count
    if group is not None and (plan.data_count * plan.context_count) % group:
        text = f"groups of {group} do not divide {plan.data_count * plan.context_count} data ranks"
        yield Problem("sharding", ("shard_group_count",), text)


def overlap(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """What the layout overlaps exists: a tensor group, in shards where products are cut; data ranks; a gather."""
    names: tuple[str, ...]
    if plan.keep_gathered and not (plan.sequence_parallel and plan.tensor_count > 1):
        names = ("keep_gathered", "sequence_parallel")
        yield Problem("sequence", names, "keep_gathered: nothing is gathered without sequence parallelism")
    names = ("tensor_overlap", "tensor_count")
    if plan.tensor_overlap not in (None, "none") and plan.tensor_count == 1:
        yield Problem("overlap", names, f"tensor overlap {plan.tensor_overlap} without a tensor group")
    elif plan.tensor_overlap in ("pipelined", "ring") and not plan.sequence_parallel:
        text = f"tensor overlap {plan.tensor_overlap} cuts gathers and scatters: it needs sequence parallelism"
        yield Problem("overlap", ("tensor_overlap", "sequence_parallel"), text)
    names = ("data_overlap", "data_count", "sharding")
    if plan.data_overlap in (None, "none"):
        return
    if plan.data_count * plan.context_count == 1:
        yield Problem("overlap", names, "data overlap without data ranks")
    elif plan.sharding == "zero3":
        yield Problem("overlap", names, "full sharding exchanges layer by layer: data overlap has nothing to hide")
    elif plan.data_overlap == "both" and plan.sharding == "none":
        yield Problem("overlap", names, "no weights are gathered without sharding")


def offload(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """What is offloaded layer by layer crosses a host link whose rate is known."""
    if (plan.offload_weights or plan.offload_activations) and system.chip.host_oneway_bytes_per_s is None:
        names = ("offload_weights", "offload_activations")
        yield Problem("offload", names, f"no published rate of the link between {system.chip.id} and its host")


def frozen(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """A format for frozen parameters needs frozen parameters."""
    if plan.frozen_precision and plan.trainable_frac >= 1:
        text = f"frozen weights in {plan.frozen_precision}: all parameters are trained"
        yield Problem("frozen", ("frozen_precision", "trainable_frac"), text)


def precision(model: Transformer, system: System, plan: TrainingPlan) -> Iterator[Problem]:
    """The chip has a matrix rate for the precision."""
    if not system.chip.has_peak(plan.precision):
        known = ", ".join(sorted(system.chip.peak_dense_flop_per_s))
        text = f"{system.chip.id} has no published rate for {plan.precision}; known: {known}"
        yield Problem("precision", ("precision",), text)


RULES: tuple[Rule, ...] = (
    batch,
    heads,
    packing,
    widths,
    layers,
    schedule,
    sequence,
    experts,
    domain,
    devices,
    sharding,
    overlap,
    offload,
    frozen,
    precision,
)
