"""Training software as dated facts: which kernels it has, what it overlaps, how it stores what it keeps.

The generation of the software is an input of first order: the same model on the same machine has moved by 30-60 %
between releases. A `SoftwareProfile` holds one release of one framework; its values come from
`catalog/data/software/`, each with its source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ridgeline.core import FrozenMap
from ridgeline.specs.plan import AdapterTargets, Recompute, Sharding

LossKernel = Literal["eager", "split", "fused", "in-place", "chunked"]
StateStyle = Literal["copy", "master-only"]
TensorOverlap = Literal["none", "backward", "pipelined"]
NetworkFusion = Literal["none", "norm"]
ExpertOverlap = Literal["none", "outside", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareProfile:
    """One release of a training framework, as far as it decides time and memory.

    Kernels: `attention` is the family passed to the device laws ("unfused": score matrices go through memory; "best":
    what the chip's own engines prefer).
    `fused_*`: whether that chain of element-wise work is one kernel; `fused_kernels`: element-wise work as a whole
    is compiled or hand-fused (else one kernel an operation). `loss`: "eager" (framework cross entropy in fp32),
    "split" (vocabulary-parallel, one kernel an operation), "fused" (compiled), "in-place" (one kernel in 16 bit
    logits), "chunked" (logits are never whole). `dropout`: its usual recipe trains with dropout; `random_bytes`:
    of a random number that a kernel of its own writes and dropout reads (0: dropout draws it itself). `wide_stream`:
    automatic mixed precision keeps norms, and the stream that they and the branches meet in, in fp32.
    `norm_reductions_count`: reductions, one after the other, that read what a norm is of before it is taken (0: one
    kernel does all); going back, one reads both operands.
    `logit_metrics_count` figures beside the loss (cross entropy, perplexity) are computed from the logits of every
    micro-batch, each by the framework's own cross entropy. `wide_softmax`: where the softmax is a kernel of its own,
    automatic mixed precision makes it in fp32, with casts around it (else a model cast as a whole keeps it in 16 bits).
    `joined_projections`: matrices that read the same input are one parameter; else their input gradients are summed
    afterwards. `fused_bias`: the product adds it; `fused_expert_bias`: so do products of experts.
    `fused_wgrad_accumulation`: weight-gradient GEMMs add into the gradient buffer themselves.

    Layered networks: `network_fusion` "norm" does a normalisation and the addition and activation behind it in one
    kernel; `channels_last`: 16-bit activations lie as matrix units read them, `channels_last_wide`: 32-bit ones too;
    `engines_overlap`: a compiler runs element-wise work on vector cores while the matrix engine multiplies;
    `fused_optimizer`: one kernel for all parameters; `depthwise_frac`: speed of its depthwise convolutions against
    those of current libraries.

    State: `gradient_precision` of the buffer ("same": the compute precision; "fp32-if-bf16": that, but
    fp32 for bf16), `reduce_precision` on the wire.
    `states`: "copy" keeps 16-bit weights beside the optimizer's fp32 master; "master-only" (FSDP) keeps the fp32
    shard alone and casts on gathering. `master_bytes` (0: pure 16-bit training) and `moment_bytes` (both Adam
    moments) per parameter. `flat_gradients`: the gradients of a layer are joined into one flat tensor (and cast
    to the wire's format) after every micro-batch. `narrow_weights`: 8-bit recipes keep the weights in 8 bit alone
    (both orientations).
    `casts_gradients`: 16-bit gradients are cast by kernels of their own before they are added to an fp32 buffer.
    `casts_weights`: 16-bit weights are made from fp32 ones in every micro-batch (automatic mixed precision).
    `clips_micro_batches`: gradients of every micro-batch are clipped (and checked, in 16 bits) before they are added.

    Overlap: `tensor_overlap` "backward" hides the sum of input gradients (and gathering inputs again) behind the
    weight-gradient GEMM, "pipelined" also cuts the other tensor collectives into pieces that run with their GEMMs;
    `data_overlap` reduces gradients behind the last backward pass; `gather_overlap` gathers updated weights behind the
    next forward pass;
    `pipeline_overlap` hides sends of interleaved schedules; `prefetch_layers_count` layers are gathered ahead by
    full sharding (0: gathered when needed), in the backward pass only with `prefetch_backward`; `context_overlap` hides
    the exchange of keys and values behind attention.
    `bucket_bytes` is the size of one gradient bucket; or `bucket_parameters_count` is, but at least
    `rank_bucket_parameters_count` for each rank, on the first virtual stage (the others are not cut).
    `owner_broadcast`: full sharding leaves whole tensors with one rank, which broadcasts them.

    `expert_launches`: the product of each local expert is a kernel of its own; routing decides its shape, so no graph
    holds it and the host issues it in time. `routed_launch_s`: what the host takes for each kernel of the part that
    routing shapes (0: `host_launch_s`). `whole_graphs`: products of all experts in block-scaled formats are one kernel
    that reads its counts on the device, so that one graph holds a whole step. `expert_overlap`: the exchange of tokens
    runs behind the other pass of another micro-batch: never, where it leaves the machine's innermost level, always.
    `cheap_recompute`: selective recompute makes norms and activations again (fine-grained), not attention scores.
    `recompute_stops_early`: what is computed again ends with the last tensor that is needed, before the last product.

    Adapters of the recipe: `adapter_rank` (0: not known) beside the matrices `adapter_targets`; `fused_adapter`: their
    scaling is part of their products.

    Defaults of the recipe: `sharding`, `recompute`, `sequence_parallel`, `interleaved` (pipelines use as many virtual
    stages as divide the layers). Host: `host_launch_s` a kernel where no graph is captured. Memory outside tensors:
    `context_bytes` (driver context and communication buffers), `fragmentation_frac` of the allocated bytes
    (`fragmentation_high_frac`: the upper end of its range), `exchange_buffer_bytes` of buckets that the allocator holds
    for collectives; `live_parameters_count`: gathered weights that full sharding keeps before it lets go of any.
    `host_optimizer_frac`: share of the bandwidth of the host's memory that an optimizer there achieves.
    Conditions: `overlap_slowdown_frac` of the time that compute and communication share; `spread_sigma_frac` between
    devices of one kind; `real_data_frac` by architecture: rate on real values over rate on the benchmark's.
    `release_sigma`: how much one configuration has moved between neighbouring releases (log standard deviation);
    `expert_sigma`: more of the same for mixtures of experts.
    """

    id: str
    name: str = ""
    framework: str = ""
    version: str = ""
    date: str = ""
    attention: str = "best"
    fused_kernels: bool = True
    fused_softmax: bool = True
    wide_softmax: bool = True
    fused_norm: bool = True
    fused_norm_gradient: bool = True
    fused_activation: bool = True
    fused_rope: bool = True
    fused_dropout_add: bool = True
    fused_bias_gradient: bool = True
    fused_bias: bool = True
    fused_expert_bias: bool = True
    joined_projections: bool = True
    fused_cast: bool = True
    fused_wgrad_accumulation: bool = True
    fused_permute: bool = True
    network_fusion: NetworkFusion = "none"
    channels_last: bool = True
    channels_last_wide: bool = False
    fused_optimizer: bool = True
    engines_overlap: bool = False
    depthwise_frac: float = 1.0
    loss: LossKernel = "fused"
    logit_metrics_count: int = 0
    dropout: bool = False
    random_bytes: float = 0.0
    wide_stream: bool = False
    norm_reductions_count: int = 0
    gradient_precision: str = "fp32"
    reduce_precision: str = "fp32"
    states: StateStyle = "copy"
    master_bytes: float = 4.0  # src: adam-fp32-master
    moment_bytes: float = 8.0  # src: adam-two-fp32-moments
    narrow_weights: bool = False
    flat_gradients: bool = False
    casts_gradients: bool = False
    casts_weights: bool = False
    clips_micro_batches: bool = False
    adapter_rank: int = 0
    adapter_targets: AdapterTargets = "all"
    fused_adapter: bool = False
    sharding: Sharding = "zero1"
    recompute: Recompute = "none"
    cheap_recompute: bool = False
    recompute_stops_early: bool = False
    sequence_parallel: bool = True
    interleaved: bool = False
    tensor_overlap: TensorOverlap = "none"
    data_overlap: bool = False
    gather_overlap: bool = False
    pipeline_overlap: bool = False
    prefetch_layers_count: int = 1
    prefetch_backward: bool = True
    owner_broadcast: bool = False
    context_overlap: bool = True
    deduplicated_dispatch: bool = False
    expert_launches: bool = True
    routed_launch_s: float = 0.0
    whole_graphs: bool = False
    expert_overlap: ExpertOverlap = "none"
    bucket_bytes: float = 0.0
    bucket_parameters_count: int = 0
    rank_bucket_parameters_count: int = 0
    graphs: bool = False
    host_launch_s: float = 0.0
    host_optimizer_frac: float = 1.0
    context_bytes: float = 0.0
    exchange_buffer_bytes: float = 0.0
    live_parameters_count: float = 0.0
    fragmentation_frac: float = 0.0
    fragmentation_high_frac: float = 0.0
    overlap_slowdown_frac: float = 0.0
    spread_sigma_frac: float = 0.0
    real_data_frac: FrozenMap[str, float] = field(default_factory=FrozenMap)
    release_sigma: float = 0.0
    expert_sigma: float = 0.0
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)
    assumed: tuple[str, ...] = ()

    def fact_id(self, field_name: str) -> str:
        """Id of the fact behind a field, for `uses`."""
        return self.facts.get(field_name, f"{self.id}.{field_name}")
