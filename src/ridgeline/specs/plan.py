"""What we decide: layouts, batches, precisions, schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sharding = Literal["none", "zero1", "zero2", "zero3"]
Recompute = Literal["none", "selective", "full"]
Schedule = Literal["1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v"]
TensorOverlapChoice = Literal["none", "backward", "pipelined", "ring"]
DataOverlapChoice = Literal["none", "gradients", "both"]
AdapterTargets = Literal["all", "qkv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """A layout of a training job. Degrees multiply: devices = tensor * pipeline * context * data.

    `expert` divides the data (times context) ranks for the experts only. `sequence_parallel` shards norms and
    residuals over the tensor group. `interleave_count` is the virtual stages a device holds (1: plain 1F1B).
    `sharding`: "none" (DDP), "zero1" (optimizer states, also Megatron's distributed optimizer), "zero2"
    (gradients too), "zero3" (parameters too; FSDP). `shard_group_count`: devices over which sharding reaches
    (None: all data ranks; smaller: HSDP). `recompute`: "none", "selective" (attention scores), "full";
    `recompute_layers_frac` is the share of layers that recompute.

    `keep_gathered`: with sequence parallelism, inputs of matrices are kept whole as they were gathered instead of in
    shards that are gathered again (more memory, one exchange less). `tensor_overlap` and `data_overlap` say what is
    overlapped where the layout decides it (None: what the software does): tensor "ring" passes pieces from neighbour
    to neighbour while the products run in as many pieces; data "gradients" sums gradients behind the backward pass,
    "both" also gathers weights behind the forward pass. `offload_*`: held in the memory of the host and moved over its
    link when needed: optimizer states, weights of the layers, activations kept for the backward pass.

    `trainable_frac` of the parameters is trained (adapters: next to none); `frozen_precision` is the format in which
    the other parameters of the layers are stored ("": as they are computed with). `adapter_rank`: rank of the
    pair of small matrices beside matrices of the layers, which are what is trained (0: no such pairs);
    `adapter_targets`: beside "all" of them, or "qkv", those that make queries, keys and values.

    `schedule`: "1f1b", "interleaved" (with `interleave_count` above 1), "gpipe", or one that splits the backward pass:
    "zb-h1", "zb-h2", "zb-v" (two chunks a device, dealt out and back, so that `interleave_count` is 2).
    `ahead_count`: further tokens that are predicted (multi-token prediction); each passes the model's module and head.
    `first_layers_count`, `last_layers_count`: layers of the first and last (virtual) stage (None: as even as it goes).

    `document_tokens`: sequences are packed of documents that see themselves alone, of this mean length weighted by
    length (0: a sequence is one document). `real_frac`: share of the tokens that is no padding. `node_samples_per_s`,
    `storage_samples_per_s`: sequences that the processors of one node, and the storage of all, give a second (0: no
    limit).
    """

    tensor_count: int = 1
    pipeline_count: int = 1
    data_count: int = 1
    context_count: int = 1
    expert_count: int = 1
    interleave_count: int = 1
    micro_batch_count: int = 1
    global_batch_count: int = 1
    sequence_tokens: int
    precision: str = "bf16"
    sequence_parallel: bool = True
    sharding: Sharding = "zero1"
    shard_group_count: int | None = None
    recompute: Recompute = "none"
    recompute_layers_frac: float = 1.0
    schedule: Schedule = "1f1b"
    offload_optimizer: bool = False
    trainable_frac: float = 1.0
    frozen_precision: str = ""
    keep_gathered: bool = False
    tensor_overlap: TensorOverlapChoice | None = None
    data_overlap: DataOverlapChoice | None = None
    offload_weights: bool = False
    offload_activations: bool = False
    adapter_rank: int = 0
    adapter_targets: AdapterTargets = "all"
    first_layers_count: int | None = None
    last_layers_count: int | None = None
    ahead_count: int = 0
    document_tokens: float = 0.0
    real_frac: float = 1.0
    node_samples_per_s: float = 0.0
    storage_samples_per_s: float = 0.0

    @property
    def splits_backward(self) -> bool:
        """Whether weight gradients are made apart from input gradients, to fill what a pipeline would wait."""
        return self.schedule in ("zb-h1", "zb-h2", "zb-v")

    @property
    def devices_count(self) -> int:
        """Devices that the layout needs."""
        return self.tensor_count * self.pipeline_count * self.context_count * self.data_count

    @property
    def micro_batches_count(self) -> int:
        """Micro-batches that each pipeline runs in a step (whole only for a plan that divides)."""
        return self.global_batch_count // (self.data_count * self.micro_batch_count)

    def label(self) -> str:
        """The layout in a few letters, for tables."""
        parts = [f"tp{self.tensor_count}", f"pp{self.pipeline_count}", f"dp{self.data_count}"]
        if self.context_count > 1:
            parts.append(f"cp{self.context_count}")
        if self.expert_count > 1:
            parts.append(f"ep{self.expert_count}")
        if self.interleave_count > 1:
            parts.append(f"v{self.interleave_count}")
        parts.append(f"mb{self.micro_batch_count}")
        if self.sharding != "none":
            parts.append(self.sharding)
        if self.recompute != "none":
            parts.append(f"recompute-{self.recompute}")
        return " ".join([*parts, *self._choices()])

    def _choices(self) -> list[str]:
        """What the layout decides beyond degrees, batches, sharding and recompute."""
        found: list[str] = []
        if self.splits_backward:
            found.append(self.schedule)
        if self.first_layers_count is not None or self.last_layers_count is not None:
            found.append(f"ends-{self.first_layers_count or 'even'}-{self.last_layers_count or 'even'}")
        if self.ahead_count:
            found.append(f"ahead-{self.ahead_count}")
        if self.adapter_rank:
            found.append(f"rank-{self.adapter_rank}")
        if self.trainable_frac < 1:
            found.append(f"adapters-on-{self.frozen_precision}" if self.frozen_precision else "adapters")
        if self.keep_gathered:
            found.append("keep-gathered")
        if self.tensor_overlap is not None:
            found.append(f"tensor-overlap-{self.tensor_overlap}")
        if self.data_overlap is not None:
            found.append(f"data-overlap-{self.data_overlap}")
        moved = (("weights", self.offload_weights), ("activations", self.offload_activations))
        return found + [f"offload-{name}" for name, offloaded in moved if offloaded]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """A layout of one serving replica, and how many of them.

    Devices of a replica = tensor * pipeline. `expert` spreads experts over the replica's devices;
    `attention_data_count` replicates attention over so many groups inside it (then the tensor degree applies to
    the experts only). `max_batch_count` and `max_batch_tokens` are the engine's limits (None: its default).
    `head_units_count`: parts of a device (cores with memory ports of their own) that each hold whole heads, so that a
    tensor degree of d devices cuts heads over d times as many.
    """

    tensor_count: int = 1
    pipeline_count: int = 1
    expert_count: int = 1
    attention_data_count: int = 1
    replica_count: int = 1
    head_units_count: int = 1
    weight_precision: str = "bf16"
    activation_precision: str = "bf16"
    kv_precision: str = "bf16"
    engine: str = ""
    max_batch_count: int | None = None
    max_batch_tokens: int | None = None

    @property
    def devices_per_replica_count(self) -> int:
        """Devices of one replica."""
        return self.tensor_count * self.pipeline_count

    @property
    def devices_count(self) -> int:
        """Devices of all replicas."""
        return self.devices_per_replica_count * self.replica_count

    def label(self) -> str:
        """The layout in a few letters, for tables."""
        parts = [f"tp{self.tensor_count}"]
        if self.pipeline_count > 1:
            parts.append(f"pp{self.pipeline_count}")
        if self.expert_count > 1:
            parts.append(f"ep{self.expert_count}")
        if self.attention_data_count > 1:
            parts.append(f"attention-dp{self.attention_data_count}")
        parts.append(f"x{self.replica_count}")
        parts.append(f"w-{self.weight_precision} kv-{self.kv_precision}")
        return " ".join(parts)
