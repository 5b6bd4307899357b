"""The shape of a scenario file. Key paths are public: `--set` takes them and files keep working.

Strict: an unknown key is an error. Each quantity is read by `ridgeline.units` (plain numbers and numeric texts too)
and has an allowed range. The records here stay at the door: `scenario.load` turns them into specs and plans.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ridgeline.scenario.quantities import (
    Batch,
    Carbon,
    Degree,
    DeviceRent,
    DeviceSizes,
    ElectricityPrice,
    Latency,
    Money,
    OutputTokens,
    Pue,
    Rate,
    SequenceTokens,
    Share,
    ShareAboveZero,
    ShareOfRun,
    Span,
    Tokens,
    Truth,
    Watts,
    Word,
    Years,
    one_of,
    quantity,
)

TRAINING_PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "tf32", "fp32")
SERVING_PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "int8", "nvfp4", "mxfp4", "fp4", "int4", "fp32")
# Formats that weights alone are stored in: 4 bits with a scale a group, and llama.cpp's blocks.
STORED_PRECISIONS = ("int4_g32", "int4_g64", "int4_g128", "nf4", "q4_0", "q4_k", "q4_k_m", "q5_k_m", "q6_k", "q8_0")
WEIGHT_PRECISIONS = (*SERVING_PRECISIONS, *STORED_PRECISIONS)
KV_PRECISIONS = ("bf16", "fp16", "fp8", "int8", "nvfp4", "fp4", "int4", "fp32")
OBJECTIVES = ("time", "cost", "energy", "devices")
POOLS = ("both", "aggregated", "disaggregated")
PRICE_KINDS = ("on-demand", "reserved-1y", "reserved-3y", "spot")

TrainingPrecision = Annotated[str, BeforeValidator(one_of(*TRAINING_PRECISIONS))]
WeightPrecision = Annotated[str, BeforeValidator(one_of(*WEIGHT_PRECISIONS))]
ServingPrecision = Annotated[str, BeforeValidator(one_of(*SERVING_PRECISIONS))]
KvPrecision = Annotated[str, BeforeValidator(one_of(*KV_PRECISIONS))]
Recompute = Annotated[str, BeforeValidator(one_of("none", "selective", "full"))]
Sharding = Annotated[str, BeforeValidator(one_of("none", "zero1", "zero2", "zero3"))]
Schedule = Annotated[str, BeforeValidator(one_of("1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v"))]
Pools = Annotated[str, BeforeValidator(one_of(*POOLS))]
Objective = Annotated[str, BeforeValidator(one_of(*OBJECTIVES))]
Files = Annotated[list[Word], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
StorageRate = Annotated[float, BeforeValidator(quantity("bandwidth", "1 MB/s", "1000 TB/s"))]
AdapterTargets = Annotated[str, BeforeValidator(one_of("all", "qkv"))]
SampleBytes = Annotated[float, BeforeValidator(quantity("bytes", "1 B", "1 TB"))]
LinkRates = Annotated[list[Annotated[float, BeforeValidator(quantity("bandwidth", "1 MB/s", "100 TB/s"))]], Field()]
SpareCount = Annotated[int, BeforeValidator(quantity("count", "0", "1e5", whole=True))]
SimulatedBatching = Annotated[str, BeforeValidator(one_of("engine", "chunked", "prompts-first", "static"))]
Preemption = Annotated[str, BeforeValidator(one_of("recompute", "swap"))]
Routing = Annotated[str, BeforeValidator(one_of("round-robin", "least-loaded", "prefix-aware"))]
StageKind = Annotated[str, BeforeValidator(one_of("decode", "resize", "convert", "model", "work"))]
StageUnit = Annotated[str, BeforeValidator(one_of("cpu", "accelerator", "video"))]
Transport = Annotated[str, BeforeValidator(one_of("shared", "copy", "protobuf", "base64", "json"))]
Volume = Annotated[float, BeforeValidator(quantity("bytes", "0 B", "1 TB"))]
Spread = Annotated[float, BeforeValidator(quantity("fraction", "0", "100"))]
Pause = Annotated[float, BeforeValidator(quantity("time", "0 s", "1 d"))]
Places = Annotated[int, BeforeValidator(quantity("count", "0", "1e8", whole=True))]
Seed = Annotated[int, BeforeValidator(quantity("count", "0", "1e15", whole=True))]
Basis = Annotated[str, BeforeValidator(one_of("rent", "own"))]
PriceKind = Annotated[str, BeforeValidator(one_of(*PRICE_KINDS))]


OF_THE_TRACE, OF_THE_STAGES = "trace", "-"
_one_input = quantity("count", "1", "1e8", whole=True)


def _input_tokens(value: Any) -> float:
    """A length, or 0 for that of the trace."""
    return 0 if value == OF_THE_TRACE else _one_input(value)


InputTokens = Annotated[int, BeforeValidator(_input_tokens)]


class Strict(BaseModel):
    """Base of all parts: unknown keys are errors, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class PackingFile(Strict):
    """`workload.train.packing`: documents packed in sequences see themselves alone.

    `document`: their mean length, each counted as often as it has tokens; `real`: share of the tokens that is no
    padding (the tokens of the run are real ones).
    """

    document: SequenceTokens | None = None
    real: ShareAboveZero = 1.0


class InputFile(Strict):
    """`workload.train.input`: what the input pipeline gives.

    `rate`: sequences a second that the processors of one node decode and tokenise; `sample`: bytes of a sequence in
    the file system, which all nodes together read at `storage`.
    """

    rate: Rate | None = None
    sample: SampleBytes | None = None
    storage: StorageRate | None = None


class TrainFile(Strict):
    """`workload.train`: the job, and optionally parts of the layout that are already decided.

    `tokens` in all; `sequence` in tokens; `global_batch` in sequences a step. What is left out of the layout is
    searched. `software` names a training stack of the catalogue. `trainable`: the share of the parameters that is
    trained (adapters); `frozen`: the format in which the others are stored. `adapter_rank`: rank of the pair of small
    matrices beside every matrix of the layers, which are what is trained. `predict_ahead` further tokens are
    predicted by the model's own modules. `first_layers`, `last_layers`: layers of the stages at the ends of the
    pipeline.
    """

    tokens: Tokens
    sequence: SequenceTokens
    global_batch: Batch
    precision: TrainingPrecision = "bf16"
    recompute: Recompute | None = None
    micro_batch: Batch | None = None
    tensor: Degree | None = None
    pipeline: Degree | None = None
    data: Degree | None = None
    context: Degree | None = None
    expert: Degree | None = None
    interleave: Degree | None = None
    sharding: Sharding | None = None
    schedule: Schedule | None = None
    sequence_parallel: Truth | None = None
    offload_optimizer: Truth | None = None
    offload_weights: Truth | None = None
    offload_activations: Truth | None = None
    trainable: Share | None = None
    frozen: WeightPrecision | None = None
    adapter_rank: Degree | None = None
    adapter_targets: AdapterTargets | None = None
    predict_ahead: Degree | None = None
    first_layers: Degree | None = None
    last_layers: Degree | None = None
    packing: PackingFile = PackingFile()
    input: InputFile = InputFile()
    software: Word | None = None


class SizingFile(Strict):
    """`workload.serve.sizing`: what `ridgeline serve` tries beside layouts and batches when it sizes the system.

    Formats of weights and cache (left out: the one of `precision` and `kv`), and whether prompts are read by the
    engines that decode ("aggregated"), by engines of their own ("disaggregated"), or whichever is better ("both").
    `simulate`: whether the best of each is put to the event simulation.
    """

    precisions: Annotated[list[WeightPrecision], Field(min_length=1, max_length=8)] | None = None
    kv: Annotated[list[KvPrecision], Field(min_length=1, max_length=8)] | None = None
    pools: Pools = "both"
    simulate: Truth = True


class TrafficFile(Strict):
    """`workload.serve.traffic`: how requests arrive and how long they are, where `ridgeline simulate` runs them.

    `trace`: a file of recorded requests, relative to the scenario; `workload.serve.rate` rescales it. `cv`: coefficient
    of variation of the times between arrivals (1: Poisson, above: bursts). `think`: mean time that a user of a closed
    loop takes between an answer and the next request. `input_cv` and `output_cv`: log-normal lengths around the means.
    """

    trace: Word | None = None
    cv: Spread | None = None
    think: Pause | None = None
    input_cv: Spread | None = None
    output_cv: Spread | None = None


class BatchingFile(Strict):
    """`workload.serve.batching`: the dynamic batcher in front of a model that answers in one pass.

    `max`: largest batch; `preferred`: sizes to form; `delay`: longest wait for others; `instances`: copies of the model
    on a device; `queue`: requests that may wait, later ones are refused; `timeout`: longest wait before one is dropped.
    """

    max: Batch | None = None
    preferred: Annotated[list[Batch], Field(max_length=64)] = []
    delay: Pause = 0.0
    instances: Degree = 1
    queue: Places | None = None
    timeout: Latency | None = None


class SchedulerFile(Strict):
    """`workload.serve.scheduler`: how engines and their router behave in a simulation.

    `batching`: what the engine does ("engine"), or another kind. `preemption`: caches of sequences that yield are
    computed again or swapped to the host. `prefix_cache`: shared beginnings of a trace are kept. `routing`: to which
    replica a request goes. `draft_tokens` are proposed ahead in each step and each is `accepted` with that chance;
    `draft_layers`: layers that propose one, as a share of the model's (0: free). `prefill_replicas` of the replicas
    read prompts only and hand their caches to the others. `scale_target` requests a replica are aimed at by an
    autoscaler that keeps `scale_least` replicas and waits `scale_startup` for a new one.
    """

    batching: SimulatedBatching | None = None
    preemption: Preemption | None = None
    prefix_cache: Truth | None = None
    routing: Routing | None = None
    draft_tokens: Degree | None = None
    accepted: Share | None = None
    draft_layers: Share | None = None
    prefill_replicas: Degree | None = None
    scale_target: Degree | None = None
    scale_startup: Pause | None = None
    scale_least: Degree | None = None


class SimulateFile(Strict):
    """`simulate`: how long and how often a simulation runs.

    `warm_up`: share of the requests at the start that is not measured (left out: found from the latencies);
    `replications`: runs with other seeds; `slices`: parts of the run that levels over time are given for.
    """

    requests: Batch | None = None
    warm_up: ShareOfRun | None = None
    seed: Seed = 0
    replications: Degree = 1
    slices: Degree = 60


class ServeFile(Strict):
    """`workload.serve`: lengths in tokens, the load, latency limits, and optionally parts of the layout.

    `rate` in requests a second over all replicas, or `concurrency` in requests at once; neither: as much as the
    limits allow. `latency_p95` bounds a whole request. `precision` is that of the weights.
    """

    input: InputTokens
    output: OutputTokens = 0
    rate: Rate | None = None
    concurrency: Batch | None = None
    ttft_p95: Latency | None = None
    tpot_p95: Latency | None = None
    latency_p95: Latency | None = None
    precision: WeightPrecision | None = None
    activations: ServingPrecision | None = None
    kv: KvPrecision | None = None
    engine: Word | None = None
    tensor: Degree | None = None
    pipeline: Degree | None = None
    expert: Degree | None = None
    attention_data: Degree | None = None
    replicas: Degree | None = None
    max_batch: Batch | None = None
    max_batch_tokens: Batch | None = None
    sizing: SizingFile = SizingFile()
    traffic: TrafficFile = TrafficFile()
    batching: BatchingFile = BatchingFile()
    scheduler: SchedulerFile = SchedulerFile()

    @model_validator(mode="before")
    @classmethod
    def _lengths_of_the_trace(cls, data: Any) -> Any:
        """Lengths that are left out are those of the trace, where there is one."""
        traffic = data.get("traffic") if isinstance(data, Mapping) else None
        if isinstance(traffic, Mapping) and "trace" in traffic and "input" not in data:
            return {**data, "input": OF_THE_TRACE}
        return data


class StageFile(Strict):
    """`workload.pipeline.stages`: one stage, on the host's cores, the accelerator or its video engine.

    `after`: stages that it waits for (left out: the one ahead). `transport`: how its input comes. `time` and `moves`
    (bytes through memory) of a stage of `kind` work; a `model` on the accelerator; `width` and `height` of what a
    resize makes; `output`: bytes that it hands on; `items`: pieces of a frame that it works on one by one (crops);
    `system`: another one, whose accelerator it runs on; `batch`: frames at once when they wait; `workers`: threads of
    an asynchronous pipeline.
    """

    name: Word
    kind: StageKind
    on: StageUnit | None = None
    system: Word | None = None
    after: Files | None = None
    transport: Transport | None = None
    time: Latency | None = None
    moves: Volume | None = None
    output: Volume | None = None
    model: Word | None = None
    precision: ServingPrecision | None = None
    engine: Word | None = None
    width: Degree | None = None
    height: Degree | None = None
    items: Degree = 1
    batch: Degree = 1
    workers: Degree | None = None


class PipelineFile(Strict):
    """`workload.pipeline`: stages that every frame of `streams` sources goes through on one machine.

    `rate`: frames a second of each stream (left out: as fast as it goes); `buffers`: frames of a stream under way;
    `queue`: places in front of a stage. `cores` of the host; `video_engines` of the accelerator; `shared_memory`: host
    and accelerator read the same memory; `dma`: copies do not hold a core. `width` and `height` of a frame.
    """

    system: Word
    stages: Annotated[list[StageFile], Field(min_length=1, max_length=64)]
    streams: Degree = 1
    rate: Rate | None = None
    buffers: Degree = 4
    queue: Degree = 4
    cores: Degree | None = None
    video_engines: Degree = 1
    shared_memory: Truth | None = None
    dma: Truth = True
    width: Degree = 1920
    height: Degree = 1080


class WorkloadFile(Strict):
    """`workload`: a model (catalogue id, or a path to a config.json) and what to do with it; or a `pipeline`."""

    model: Word
    train: TrainFile | None = None
    serve: ServeFile | None = None
    pipeline: PipelineFile | None = None

    @model_validator(mode="before")
    @classmethod
    def _models_of_the_stages(cls, data: Any) -> Any:
        """A pipeline has models in its stages."""
        if isinstance(data, Mapping) and "pipeline" in data and "model" not in data:
            return {**data, "model": OF_THE_STAGES}
        return data


class CandidateFile(Strict):
    """One machine to try: a system of the catalogue and how many devices of it.

    `rent` (a device and hour) and `purchase` (a device) replace the catalogue's prices with one's own. `links`: rate of
    one direction of the innermost link of each device of a node, where they differ (one card in a narrower slot).
    """

    system: Word
    devices: DeviceSizes
    links: Annotated[LinkRates, Field(max_length=1024)] = []
    rent: DeviceRent | None = None
    purchase: Money | None = None


class SiteFile(Strict):
    """`site`: where the machine stands."""

    name: Word | None = None
    electricity: ElectricityPrice | None = None
    pue: Pue | None = None
    carbon: Carbon | None = None


class LimitsFile(Strict):
    """`limits`: plans beyond them are infeasible. `power` is the mean draw of the site, overhead included."""

    deadline: Span | None = None
    budget: Money | None = None
    power: Watts | None = None


class FailuresFile(Strict):
    """`failures`: what interrupts a training run; each key replaces a published figure.

    `between`: mean time between failures of one node; `restart`: from a failure that was noticed to useful steps;
    `storage`: rate of the whole storage that takes checkpoints; `interval`: from one checkpoint to the next (left out:
    the best one); `asynchronous`: checkpoints are written in the background; `spares`: nodes in reserve (left out:
    always enough).
    """

    between: Span | None = None
    restart: Span | None = None
    storage: StorageRate | None = None
    interval: Span | None = None
    asynchronous: Truth | None = None
    spares: SpareCount | None = None


class CostFile(Strict):
    """`cost`: how money is counted. `depreciation` and `utilisation` replace the assumed values."""

    basis: Basis | None = None
    price: PriceKind = "on-demand"
    depreciation: Years | None = None
    utilisation: ShareAboveZero | None = None
    network: Share | None = None


class ScenarioFile(Strict):
    """A whole scenario. `calibration`: a file, or several, of laws fitted to one's own measurements."""

    workload: WorkloadFile
    candidates: Annotated[list[CandidateFile], Field(min_length=1, max_length=64)]
    site: SiteFile = SiteFile()
    limits: LimitsFile = LimitsFile()
    failures: FailuresFile = FailuresFile()
    objective: Objective = "cost"
    cost: CostFile = CostFile()
    calibration: Annotated[Files, Field(max_length=64)] = []
    simulate: SimulateFile = SimulateFile()
    name: Word | None = None

    @model_validator(mode="before")
    @classmethod
    def _machine_of_the_pipeline(cls, data: Any) -> Any:
        """A pipeline names its machine itself."""
        workload = data.get("workload") if isinstance(data, Mapping) else None
        pipeline = workload.get("pipeline") if isinstance(workload, Mapping) else None
        if isinstance(pipeline, Mapping) and "system" in pipeline and "candidates" not in data:
            return {**data, "candidates": [{"system": pipeline["system"], "devices": 1}]}
        return data


@dataclass(frozen=True, slots=True)
class Leaf:
    """A place in the schema that holds one value."""


Shape = Any  # a Strict class, a list with one Shape, or Leaf


def children(shape: type[Strict]) -> dict[str, Shape]:
    """The keys that may stand in `shape`, with what each holds."""
    return {name: _shape_of(item.annotation) for name, item in shape.model_fields.items()}


def shape_at(shape: Shape, path: tuple[str | int, ...]) -> Shape | None:
    """What the schema has at `path`; None where it has nothing."""
    here: Shape = shape
    for part in path:
        if isinstance(here, Leaf):
            return None
        if isinstance(here, list):
            here = here[0]
            continue
        here = children(here).get(str(part))
        if here is None:
            return None
    return here


def _shape_of(annotation: Any) -> Shape:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return [_shape_of(arguments[0])]
    if origin in (typing.Union, types.UnionType):
        inner = [_shape_of(item) for item in arguments if item is not type(None)]
        return next((item for item in inner if not isinstance(item, Leaf)), Leaf())
    if origin is Annotated:
        return _shape_of(arguments[0])
    return Leaf()
