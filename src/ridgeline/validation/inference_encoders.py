"""What a row of an encoder means: network, input length, engine, formats, copies and batch, with every fill."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from ridgeline.catalog import Catalog
from ridgeline.core import FrozenMap
from ridgeline.errors import CatalogError
from ridgeline.intake import transformer_from_config
from ridgeline.specs import Chip, EngineProfile, Load, ServingPlan, System, Transformer
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_cases import without_formats
from ridgeline.validation.inference_engines import mlperf_round
from ridgeline.validation.inference_formats import FORMATS, wide_of
from ridgeline.validation.inference_lengths import RECORD, benchmark_of
from ridgeline.validation.inference_names import loaded, model_id, spelling

Mode = Literal["batch", "maximum"]

# Spellings of tables beside those of the catalogue's ids and aliases, as `inference_names.spelling` writes them.
ENCODERS: dict[str, str] = {
    "bert-99": "bert-large",
    "bert-99.9": "bert-large",
    "bert-base": "bert-base",
    "bert-large": "bert-large",
    "bert-base-cased": "bert-base",
    "bert-large-uncased-squad": "bert-large",
    "bert-base-bert-base-cased": "bert-base",
    "bert-base-bert-base-uncased": "bert-base",
    "bert-base-bert-base-uncased-example": "bert-base",
    "bert-base-shape-encoder-12-layers-12-heads-x-64": "bert-base",
    "bert-6b-32-layers-32-heads-x-128": "bert-6b",
    "distilbert-base-distilbert-base-uncased": "distilbert-base",
    "distilbert-base-distilbert-base-uncased-finetuned-sst-2-english": "distilbert-base",
    "distilroberta-base-distilroberta-base": "distilroberta-base",
    "electra-base": "electra-base",
    "deberta-12-layers-hidden-384-ffn-1536-6-heads-vocab-128k-random-weights": "deberta-v3-xsmall",
    "vit-b-16": "vit-base-16",
    "vit-l-16": "vit-large-16",
    "vit-base-patch16-224": "vit-base-16",
    "vit-large-patch16-384": "vit-large-16-384",
    "vit-large-patch16-224": "vit-large-16",
    "vit": "vit-base-16",
    "vit-base": "vit-base-16",
    "vit-small": "vit-small-16",
    "vit-tiny": "vit-tiny-16",
    "deit-base": "deit-base-16",
    "deit-small": "deit-small-16",
    "deit-tiny": "deit-tiny-16",
    "swin-t": "swin-tiny",
    "swin-s": "swin-small",
    "swin-b": "swin-base",
    "swin-l": "swin-large",
    "swin-tiny": "swin-tiny",
}
# (words that must all stand in the engine text, profile, remark); the first match counts.
ENGINE_RULES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("fastertransformer",), "fastertransformer", ""),
    (("eff-ft",), "fastertransformer", ""),
    (("ft (",), "fastertransformer", ""),
    (("ft-int8",), "fastertransformer", ""),
    (("trt plugin",), "fastertransformer", ""),
    (("cpp",), "fastertransformer", ""),
    (("torch op",), "fastertransformer", ""),
    (("aitemplate",), "aitemplate", ""),
    (("neuron",), "neuron", ""),
    (("tt-nn",), "tt-metal", ""),
    (("openvino",), "openvino", ""),
    (("onnx",), "onnxruntime", ""),
    (("paddle-trt",), "paddle-trt", ""),
    (("tensorrt",), "tensorrt", ""),
    (("torchscript",), "pytorch-eager", ""),
    (("tf-fp16",), "tensorflow", ""),
    (("tf (",), "tensorflow", ""),
    (("tensorflow",), "tensorflow", ""),
    (("paddlepaddle",), "paddle", ""),
    (("mxnet",), "mxnet", ""),
    (("pytorch",), "pytorch-eager", ""),
    (("torch",), "pytorch-eager", ""),
    (("qualcomm",), "tensorrt", "Cloud AI SDK taken as a compiled engine of the TensorRT kind"),
)
# Cores of a Jetson against those of a server: a third of the speed of one thread (assumed), and how it widens answers.
MODULE_RATIO, MODULE_SIGMA = 3.0, 0.2
# Precision texts beside `FORMATS`; None: as its engine has it.
OTHER_FORMATS: dict[str, tuple[str, str]] = {
    "tf32": ("tf32", "tf32"),
    "fp32/tf32": ("tf32", "tf32"),
    "mixed precision": ("fp16", ""),
    "int8-v1": ("int8", "int8"),
    "int8-v2": ("int8", "int8"),
    "int8,fp16": ("int8", "int8"),
    "fp32 + int8": ("int8", "int8"),
    "fp32 / autocast matmult-bf16": ("bf16", ""),
    "fp32, bf16 / autocast matmult-bf16": ("bf16", ""),
    "no change.": ("fp32", ""),
    "google bfloat16.": ("bf16", ""),
}
BLANK_FORMATS = {"aitemplate": "fp16", "neuron": "bf16", "tt-metal": "bf16", "pytorch-eager": "fp16"}
# Engines that narrow stored weights at every call under automatic mixed precision.
FRAMEWORKS = frozenset({"pytorch-eager", "tensorflow", "paddle", "mxnet"})
LENGTH_SIGMA = 0.05
# Models whose layers are Python: between the floor of a scripted graph (20 us) and a published trace (45 us a launch).
PYTHON_FLOOR_S = 30e-6
# Attention in one kernel exists up to this length in FasterTransformer (fastertransformer-docs).
FUSED_TOKENS = 512
# NVIDIA's TensorFlow 1 example prints means over all batches, the first, slow ones among them; how much they weigh is
# not said (log standard deviation, assumed).
FIRST_BATCHES_SIGMA = 0.4
# Percentiles of a repeated run stand this little above its mean (log standard deviation of what is read as equal).
TAIL_SIGMA = 0.1
# OpenVINO's tables run GPUs for throughput alone: throughput times latency of every cell is 16 requests on cards and 4
# on integrated graphics, which have less than so many bytes a second of memory of their own.
LOADED_CARD, LOADED_INTEGRATED, LOADED_SIGMA = 16.0, 4.0, 0.2
CARD_BYTES_PER_S = 150e9
_SEQUENCE = re.compile(r"(?:seq(?:uence length)?)\s*(\d+)", re.IGNORECASE)
_SQUARE = re.compile(r"^(\d+)x(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderCase:
    """A row of an encoder as Ridgeline's own records; `fills` with the log standard deviation that each adds.

    `copies_count`: batches of the row's size that run side by side, one a device.
    """

    row: Row
    model: Transformer
    engine: EngineProfile
    system: System
    plan: ServingPlan
    load: Load
    mode: Mode
    input_range: tuple[float, float] | None = None
    fills: tuple[tuple[str, float], ...] = ()


def encoder_id(text: str, catalog: Catalog) -> str | None:
    """Catalogue id of the encoder that a row names, None where it names none."""
    name = spelling(text.rsplit("/", 1)[-1])
    if name in ENCODERS:
        return ENCODERS[name]
    return model_id(text, catalog)


def encoder_case(row: Row, id: str, catalog: Catalog) -> EncoderCase:
    """The case that a row states; `Unscored` with the fact that it lacks."""
    fills: list[tuple[str, float]] = []
    system, copies = machine_of(row, catalog)
    system = _with_wide_rate(system)
    model = _sized(without_formats(loaded(id, catalog)), id, row, catalog)
    engine = hosted(engine_of(row, catalog, fills), system.chip, fills)
    weight, activation = formats_of(row, system.chip, engine, fills)
    tokens, ends = _tokens(row, model, catalog, fills)
    if engine.id == "pytorch-eager" and "torchscript" not in row.text("engine").lower():
        engine = engine.with_(kernel_floor_s=PYTHON_FLOOR_S)
    if engine.id == "fastertransformer" and tokens > FUSED_TOKENS:
        engine = engine.with_(attention_family="unfused")
    devices = (row.count("n_devices") or 1) * copies
    plan = ServingPlan(weight_precision=weight, activation_precision=activation, kv_precision=activation)
    plan = _laid_out(row, plan, devices)
    mode, load = _load(row, tokens, plan, catalog, fills)
    if under_way := loaded_requests(row, system):
        fills.append((f"latency in the run for throughput, with {under_way:g} requests under way", LOADED_SIGMA))
        load = replace(load, concurrency_count=under_way * plan.replica_count)
    if row.text("metric") == "p99_ms":
        fills.append(("99th percentile read as the time of a batch", TAIL_SIGMA))
    if row.text("metric") != "samples_s" and "(TensorFlow/LanguageModeling" in row.text("source_title"):
        fills.append(("mean over all batches, the first ones among them", FIRST_BATCHES_SIGMA))
    return EncoderCase(
        row=row,
        model=model,
        engine=engine,
        system=system,
        plan=plan,
        load=load,
        mode=mode,
        input_range=ends,
        fills=tuple(fills),
    )


def machine_of(row: Row, catalog: Catalog) -> tuple[System, int]:
    """The machine, and devices of ours for each that the row counts (all of an instance where it counts instances)."""
    text = row.text("device")
    if not text:
        raise Unscored("device not stated")
    try:
        label = catalog.label(text, row.text("source_title"))
    except CatalogError as error:
        raise Unscored(str(error).splitlines()[0][:90]) from error
    if not label.system:
        raise Unscored(f"no standard system for {label.device}")
    system = catalog.system(label.system)
    if "EC2 instance type" in row.text("note"):
        return system, system.devices_per_node_count
    return system, label.devices_count


def _with_wide_rate(system: System) -> System:
    """Processors without 16-bit products do what an 8-bit network leaves wide in fp32."""
    chip = system.chip
    if chip.kind != "cpu" or chip.has_peak("bf16") or not chip.has_peak("fp32"):
        return system
    peaks = FrozenMap({**chip.peak_dense_flop_per_s, "bf16": chip.peak("fp32")})
    return replace(system, chip=replace(chip, peak_dense_flop_per_s=peaks))


def _sized(model: Transformer, id: str, row: Row, catalog: Catalog) -> Transformer:
    """Image encoders at the row's image size, which sets their tokens."""
    found = _SQUARE.match(row.text("input_shape_or_seq"))
    record = catalog.model_record(id)
    known = record.config.get("image_size")
    if found is None or known is None or int(found.group(1)) == known:
        return model
    config = {**record.config, "image_size": int(found.group(1))}
    return transformer_from_config(config, id=f"{id}-{found.group(1)}", where=f"line {row.line}")


def engine_of(row: Row, catalog: Catalog, fills: list[tuple[str, float]]) -> EngineProfile:
    """The profile that an engine text means; `Unscored` where none does."""
    text = row.text("engine").lower()
    if not text:
        raise Unscored("engine not stated")
    for words, name, remark in ENGINE_RULES:
        if all(word in text for word in words):
            if remark:
                fills.append((remark, 0.1))
            return _as_run(catalog.engine(name), row, text)
    raise Unscored(f"engine {row.text('engine')[:40]!r} is not modelled")


def hosted(engine: EngineProfile, chip: Chip, fills: list[tuple[str, float]]) -> EngineProfile:
    """The engine on a module whose own small cores issue the kernels, several times slower than those of a server.

    >>> from ridgeline.catalog import load_catalog
    >>> catalog = load_catalog()
    >>> round(hosted(catalog.engine("tensorrt"), catalog.chip("jetson-agx-orin-64"), []).kernel_floor_s * 1e6, 3)
    15.0
    """
    if chip.kind != "edge" or engine.graphs:
        return engine
    fills.append(("host times of servers, taken three times as long on a module's cores", MODULE_SIGMA))
    return engine.with_(
        kernel_floor_s=MODULE_RATIO * engine.kernel_floor_s,
        layer_floor_s=MODULE_RATIO * engine.layer_floor_s,
        host_step_s=MODULE_RATIO * engine.host_step_s,
    )


def _as_run(profile: EngineProfile, row: Row, text: str) -> EngineProfile:
    """The profile with what the row's way of running changes.

    TensorFlow's layout pass puts channels first on GPUs except for products in 16 bits (tensorflow-docs). Mixed
    precision in a framework narrows fp32 weights at every call; NVIDIA's examples run it where a precision says
    16 bits, and lay images channels last for it. FasterTransformer has fused attention for 16 bits from Turing on, and
    its first INT8 mode keeps the 32-bit sums of products and residuals (fastertransformer-docs).
    """
    precision = row.text("precision").lower()
    example = row.text("source_title").startswith("NVIDIA DeepLearningExamples")
    if profile.id in FRAMEWORKS and ("mixed" in precision or (example and precision == "fp16")):
        last = profile.channels_last or (example and "Classification" in row.text("source_title"))
        return profile.with_(stored_precision="fp32", channels_last=last)
    if profile.id == "tensorflow" and precision in ("tf32", "fp32/tf32"):
        return profile.with_(channels_last=False)
    if profile.id == "fastertransformer":
        if precision == "int8-v1":
            return profile.with_(hidden_precision="fp32", fused_quantisation=False)
        if precision in ("fp32", "tf32"):
            return profile.with_(attention_family="unfused")
    return profile.with_(fused_relative=True) if "w/ plugin" in text else profile


def formats_of(row: Row, chip: Chip, engine: EngineProfile, fills: list[tuple[str, float]]) -> tuple[str, str]:
    """Formats of weights and of products; `Unscored` where the precision is not known."""
    text = row.text("precision").lower()
    if not text:
        wide = wide_of(chip, BLANK_FORMATS.get(engine.id, ""))
        fills.append((f"{wide} assumed, the usual format of the engine", 0.1))
        return wide, wide
    known = OTHER_FORMATS.get(text) or FORMATS.get(text)
    if known is None:
        raise Unscored(f"precision {row.text('precision')!r} is not known")
    stored, fed = known
    cleared = text == "fp32/tf32" and engine.id.startswith("tensorrt")  # the source's script clears TF32 for its fp32
    if stored == "tf32" and (cleared or "tf32" not in chip.peak_dense_flop_per_s):
        stored = fed = "fp32"
    if fed in ("int8", "fp8") and not chip.has_peak(fed):
        fed = ""
    return stored, fed or wide_of(chip, stored)


def loaded_requests(row: Row, system: System) -> float:
    """Requests under way in a latency row that was taken in the run for throughput (0: it was not)."""
    opened = row.text("source_title").startswith("OpenVINO") and row.text("scenario").lower() == "latency"
    if not opened or system.chip.kind != "gpu":
        return 0.0
    card = (system.chip.memory_bandwidth_bytes_per_s or 0.0) > CARD_BYTES_PER_S
    return LOADED_CARD if card else LOADED_INTEGRATED


def _tokens(
    row: Row, model: Transformer, catalog: Catalog, fills: list[tuple[str, float]]
) -> tuple[float, tuple[float, float] | None]:
    """Tokens of one input: stated (half where the engine drops padding and the source says so), or of the data set."""
    if model.encoder_tokens and not model.others:
        return float(model.encoder_tokens), None
    if mlperf_round(row):
        fact = catalog.fact(f"{RECORD}.{_benchmark(row)}.input")
        fills.append((f"input of {fact.value:g} tokens assumed ({fact.low:g} to {fact.high:g}; {fact.id})", 0.0))
        ends = (fact.low, fact.high) if fact.low is not None and fact.high is not None else None
        return float(fact.value), ends
    note = row.text("note")
    found = _SEQUENCE.search(row.text("input_shape_or_seq")) or re.search(r"sequence-length=(\d+)", note)
    if found is None:
        if model.others:  # text beside a tower: a short label
            return 16.0, None
        if "squad" in row.text("model").lower() or row.text("source_title").startswith("Tenstorrent"):
            fills.append(("input of 384 tokens, the length of the task", LENGTH_SIGMA))
            return 384.0, None
        if row.text("source_title").startswith("OpenVINO"):
            fills.append(("input of 124 tokens, as the source's other rows of this model", LENGTH_SIGMA))
            return 124.0, None
        raise Unscored("input length not stated")
    length = float(found.group(1))
    if model.id == "bert-6b":
        fills.append(("half of the length taken as padding that is dropped: the full one would pass the peak", 0.1))
        return length / 2, None
    if "real mean length is half of seq" in note:
        # One sequence is a single draw between nothing and the whole length.
        return length / 2, (length / 10, 9 * length / 10) if row.number("batch") == 1 else None
    return length, None


def _benchmark(row: Row) -> str:
    return benchmark_of(row.text("model"))


def _laid_out(row: Row, plan: ServingPlan, devices: int) -> ServingPlan:
    """Copies over the devices; a single batch over several devices is cut (the source says tensor parallel)."""
    if devices > 1 and row.text("metric") in ("latency_ms", "p99_ms") and "NVLink" in row.text("note"):
        return replace(plan, tensor_count=devices)
    return replace(plan, replica_count=devices)


def _load(
    row: Row, tokens: float, plan: ServingPlan, catalog: Catalog, fills: list[tuple[str, float]]
) -> tuple[Mode, Load]:
    load = Load(input_tokens=tokens, output_tokens=0.0)
    scenario, batch = row.text("scenario").lower(), row.number("batch")
    if batch is not None:
        return "batch", replace(load, concurrency_count=batch * plan.replica_count)
    if scenario == "singlestream" or (scenario == "latency" and row.text("metric") != "samples_s"):
        return "batch", replace(load, concurrency_count=float(plan.replica_count))
    if scenario == "multistream":
        return "batch", replace(load, concurrency_count=8.0 * plan.replica_count)
    if scenario == "server":
        key = f"{RECORD}.{_benchmark(row)}.server_e2e"
        limit = float(catalog.fact(key).value)
        # A query waits for the batch under way before its own: both must end within the limit.
        return "maximum", replace(load, e2e_p95_s=limit / 2)
    if scenario in ("offline", "throughput"):
        return "maximum", load
    raise Unscored("batch not stated")
