"""Serving engines as facts, and the load that is put on them.

Much of what separates a measured serving figure from the kernels' sum belongs to the engine and not to the chip: host
time a step and a sequence, whether graphs hide launches, how much memory becomes cache, how requests are let in.
An `EngineProfile` holds these for one engine at one version; its figures come from `catalog/data/engines/`, each
with its source and, where it is assumed, its range.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from ridgeline.core import FrozenMap
from ridgeline.specs.chip import Chip

Admission = Literal["no-evict", "evict"]
PoolBasis = Literal["total", "free", "static", "none"]
Batching = Literal["continuous", "static", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """What one engine at one version adds to, or takes from, the hardware.

    Time: a step costs the host `host_step_s` plus `host_sequence_s` for each running sequence;
    `host_hidden_frac` of the smaller of host and device time runs behind the other (asynchronous scheduling).
    `graphs`: decode steps are replayed as one graph, so kernels carry no launch cost of their own;
    `kernel_floor_s`: least time from one kernel to the next where there is no graph; `layer_floor_s`: the same for a
    convolution or normalisation of a layered network, whose module, descriptors and choice of kernel a framework looks
    up at every call (0: as any kernel). `host_sigma`, `floor_sigma` and `traffic_sigma`: spread (of the logarithm) of
    host figures, floors and the traffic of small kernels; `release_sigma`: that of one configuration between releases.
    `stored_precision`: format in which weights are kept and from which every call narrows them (automatic mixed
    precision); "": they are stored as they are used. `channels_last`: layout of images in memory; matrix units work in
    this one, and a library that is handed the other turns input and output around.
    Kernels: `expert_family` names those of expert products where a release has its own; `attention_family` those of
    attention (and of expert products, where the engine's are known by that name); `query_reread_frac`: share of the
    key-value reads that every query head of a group repeats (0 with grouped-query kernels; early engines had none).
    Fusion: `fused_projections`: Q, K and V, and gate and up, run as one GEMM. `fused_epilogues`: bias, activation and
    residual addition happen inside the products, so that norms alone remain between them. `fused_quantisation`:
    activations are narrowed by the kernel that makes them; else one kernel before each product in a narrow format.
    `launches_frac` scales the count of small kernels of a layer (1: norm, rope, cache write, activation fused as
    engines of 2024 do), `traffic_frac` their bytes. `hidden_precision`: format in which hidden states are kept between
    kernels ("": that of 16-bit activations). `expand_rows_count`: products of more rows than this first write narrow
    weights out in the wide format (0: every product expands them on the fly). `fused_relative`: one kernel looks up and
    adds the positions of disentangled attention.
    Memory: the key-value pool is `pool_frac` of what is left after weights and workspace (`pool_basis` "free"), or
    that share of the whole device less weights, workspace and context ("total") or less weights alone ("static", the
    rest holding everything else); "none": no pool, caches are allocated as needed. `context_bytes`: driver context,
    communication buffers and captured graphs. `workspace_bytes` is fixed scratch. `block_tokens`: cache granule.
    `window_cache`: windowed layers keep only their window.
    Scheduling: `max_batch_count`, `max_batch_tokens` a step; `mixed_steps`: prompts are processed in the same steps
    as running sequences; `admission` "no-evict" keeps room for a request's last token before it starts.
    `budget_of_context`: a step may hold as many tokens as the model's longest context, because prompts are not cut.
    Engines that choose limits by device have a second pair, `small_batch_count` and `small_batch_tokens`, for devices
    with less than `large_device_bytes` of memory and for `small_architectures`.
    `bucket_tokens`: shapes are compiled, lengths padded up to powers of two from this one (0: dynamic shapes).
    `stream_rows_count`: products of up to so many rows are kernels that stream the matrix once (0: none).
    `padded_batch`: every decode step computes all slots of the batch that was compiled, taken or not.
    `all_experts`: every token of a prompt passes through all experts and those it did not choose are weighted with
    zero; decode steps do so too once their choices are as many as the experts, and below that load one a choice.
    `masked_experts`: with experts spread over devices every one keeps a row for each choice of every token; rows of
    experts that live elsewhere are zeroed, and pass through activation, quantisation and weighted sum.
    `gather_exchange`: where attention is replicated, every device gathers the tokens of all before the experts and
    their outputs are reduced and scattered after; else copies go to the devices of the chosen experts and back.
    `expert_sort_s`: what ordering the choices of a layer by expert takes beyond small kernels that wait for nothing.
    `facts` maps a field to its fact id; `assumed` names the fields that rest on an assumption.
    """

    id: str
    name: str = ""
    version: str = ""
    host_step_s: float = 0.0
    host_sequence_s: float = 0.0
    host_hidden_frac: float = 0.0
    host_sigma: float = 0.0
    floor_sigma: float = 0.0
    traffic_sigma: float = 0.0
    release_sigma: float = 0.0
    graphs: bool = True
    kernel_floor_s: float = 0.0
    layer_floor_s: float = 0.0
    stored_precision: str = ""
    channels_last: bool = True
    attention_family: str = ""
    expert_family: str = ""
    query_reread_frac: float = 0.0
    fused_projections: bool = True
    fused_epilogues: bool = False
    fused_quantisation: bool = True
    launches_frac: float = 1.0
    traffic_frac: float = 1.0
    hidden_precision: str = ""
    expand_rows_count: int = 0
    fused_relative: bool = False
    pool_basis: PoolBasis = "total"
    pool_frac: float = 1.0
    context_bytes: float = 0.0
    workspace_bytes: float = 0.0
    block_tokens: int = 1
    window_cache: bool = True
    max_batch_count: int | None = None
    max_batch_tokens: int | None = None
    budget_of_context: bool = False
    small_batch_count: int | None = None
    small_batch_tokens: int | None = None
    large_device_bytes: float = 0.0
    small_architectures: tuple[str, ...] = ()
    mixed_steps: bool = True
    admission: Admission = "no-evict"
    batching: Batching = "continuous"
    bucket_tokens: int = 0
    padded_batch: bool = False
    all_experts: bool = False
    masked_experts: bool = False
    gather_exchange: bool = False
    expert_sort_s: float = 0.0
    stream_rows_count: int = 0
    date: str = ""
    facts: FrozenMap[str, str] = field(default_factory=FrozenMap)
    assumed: tuple[str, ...] = ()

    def fact_id(self, field_name: str) -> str:
        """Id of the fact behind a field, for `uses`."""
        return self.facts.get(field_name, f"{self.id}.{field_name}")

    def batch_limits(self, chip: Chip) -> tuple[int | None, int | None]:
        """Most sequences and most tokens of a step that the engine allows by default on `chip` (None: no limit)."""
        small = chip.architecture in self.small_architectures or chip.memory_bytes() < self.large_device_bytes
        if small and self.large_device_bytes > 0:
            return self.small_batch_count, self.small_batch_tokens
        return self.max_batch_count, self.max_batch_tokens

    def with_(self, **changes: object) -> EngineProfile:
        """The profile with some fields changed (options that a user sets on the engine)."""
        return replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of a serving system: request lengths, how many at once, and the latencies to keep.

    Exactly one of `rate_per_s` (open loop: Poisson arrivals), `concurrency_count` (closed loop: so many clients that
    send again at once) or neither (maximum load: an endless queue) says how much. `static_batch` makes the
    concurrency one batch that starts together and ends together, prompts first. `output_tokens` 0: no generation
    (encoders, embeddings). `encoder_tokens`: length of the encoder's or tower's input where the model has one and
    does not fix it. `beams_count`: candidates that beam search carries for each request; they share the prompt's cache,
    each decodes and reads on its own, and one is answered. Limits are central figures unless the name says p95.
    """

    input_tokens: float
    output_tokens: float = 0.0
    rate_per_s: float | None = None
    concurrency_count: float | None = None
    static_batch: bool = False
    encoder_tokens: float | None = None
    beams_count: float = 1.0
    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    e2e_p95_s: float | None = None

    @property
    def total_tokens(self) -> float:
        """Tokens of a finished request."""
        return self.input_tokens + self.output_tokens
