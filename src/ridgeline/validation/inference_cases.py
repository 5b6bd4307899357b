"""What a serving row means: model, engine, machine, formats, layouts and load, with every fill that it took."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from ridgeline.catalog import Catalog
from ridgeline.core import FrozenMap
from ridgeline.errors import CatalogError
from ridgeline.specs import EngineProfile, Load, ServingPlan, System, Transformer
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_engines import llm_engine, mlperf_round
from ridgeline.validation.inference_formats import formats_of
from ridgeline.validation.inference_layouts import Layouts, layouts_of
from ridgeline.validation.inference_lengths import Lengths, benchmark_of, latency_limits, lengths_of
from ridgeline.validation.inference_names import loaded, model_id

Mode = Literal["static", "closed", "open", "maximum"]

# Words of a note that name the checkpoint of a model, with the records of both.
CHECKPOINTS = (("FP8-meta", "llama-3.1-405b", "llama-3.1-405b-fp8"),)
_RATE = re.compile(r"asynchronous@([\d.]+)")
_AVERAGE_BATCH = re.compile(r"measured avg batch ([\d.]+)")
_SERVER_BATCH = re.compile(r"server batch size (\d+)")
# Sequences and tokens of a step that submitters to a benchmark allow where an engine's default is lower (assumed, 512
# to 2,048 and 8,192 to 65,536), and host time of a sequence without streaming: scheduler and update of its state.
_SUBMITTED_BATCH, _SUBMITTED_TOKENS = 1024, 16384  # src: vllm-docs
_IN_PROCESS_SEQUENCE_S = 15e-6  # src: simllm-204
# What the range of the popularity of experts makes of the fullest of eight ranks, half of a step (fullest_rows_frac).
_POPULARITY_SIGMA = 0.07
_COMPILED_LENGTH = re.compile(r"seq len (\d+)")
_CHUNKED = ("chunked-cpu", "hybrid-ods")
# Copying the logits of 32 slots to the host and choosing tokens there, from the runs that do not cut prompts (those
# that do are left out).
_ON_THE_HOST, _HOST_SAMPLING_S = "cpu-sampling", 24e-3  # src: optimum-neuron
_CHUNK_TOKENS = 1024  # src: optimum-neuron
# Requests of a run that a source queues at once, by lengths in and out (its table of data sets).
_OVERVIEW = "TensorRT-LLM performance overview"
_QUEUED_REQUESTS: dict[tuple[int, int], int] = {  # src: trtllm-perf-overview
    (128, 128): 30000,
    (128, 2048): 3000,
    (128, 4096): 1500,
    (500, 2000): 3000,
    (1000, 1000): 3000,
    (1000, 2000): 1500,
    (2048, 128): 3000,
    (2048, 2048): 1500,
    (5000, 500): 1500,
    (20000, 2000): 1000,
}
# Scenarios of MLPerf in which a client sends requests at random times.
_ARRIVING = ("server", "interactive")
_SPECULATIVE = ("speculative",)
# Notes of sources that start a whole batch at once and time it to its end.
_WHOLE_BATCH = ("static batch", "elapsed", "end-to-end batch latency")
# Share of free memory for the cache that the benchmark script of a source sets, where its engine's default differs.
POOL_FRACS = {"TensorRT-LLM performance overview": 0.95}  # trtllm-perf-overview: "in many cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmCase:
    """A serving row as Ridgeline's own records; `fills` with the log standard deviation that each adds."""

    row: Row
    model: Transformer
    engine: EngineProfile
    system: System
    layouts: Layouts
    load: Load
    lengths: Lengths
    mode: Mode
    fills: tuple[tuple[str, float], ...] = ()

    @property
    def at_random(self) -> bool:
        """Whether requests arrive at random (Poisson) under limits that all but one in a hundred keep."""
        return self.mode == "maximum" and self.row.text("batch_or_concurrency").lower() in _ARRIVING


def queued_requests(case: LlmCase) -> int | None:
    """Requests that the whole run of a case has, all queued at its start; None where no source says how many."""
    if case.mode != "maximum" or not case.row.text("source_title").startswith(_OVERVIEW):
        return None
    return _QUEUED_REQUESTS.get((int(case.load.input_tokens), int(case.load.output_tokens)))


def llm_case(row: Row, catalog: Catalog) -> LlmCase:
    """The case that a row states; `Unscored` with the fact that it lacks or the feature that is not modelled."""
    if any(word in row.text("note").lower() for word in _SPECULATIVE):
        raise Unscored("speculative decoding is not modelled")
    model, system = _model(row, catalog), system_of(row, catalog)
    named = llm_engine(row, catalog)
    engine, fills = _with_options(row, named.profile), [(text, 0.05) for text in named.fills]
    formats = formats_of(row, system.chip, engine, model)
    if not formats.checkpoint:
        model = without_formats(model)
    base = ServingPlan(
        weight_precision=formats.weight,
        activation_precision=formats.activation,
        kv_precision=formats.cache,
        max_batch_count=_server_batch(row),
    )
    layouts = layouts_of(row, model, system, engine, base)
    if any(plan.expert_count > 1 for plan in layouts.plans):
        fills.append(("experts differ in popularity (spread of 1.0 assumed, 0.5 to 1.5)", _POPULARITY_SIGMA))
    lengths = lengths_of(row, catalog)
    mode, load, remarks = _load(row, engine, lengths, catalog)
    if mode == "static" and load.concurrency_count:
        # A label that counts copies states the batch of one of them.
        load = replace(load, concurrency_count=load.concurrency_count * layouts.copies_count)
    return LlmCase(
        row=row,
        model=model,
        engine=engine,
        system=system,
        layouts=layouts,
        load=load,
        lengths=lengths,
        mode=mode,
        fills=(*fills, *formats.fills, *layouts.fills, *lengths.fills, *remarks),
    )


def _model(row: Row, catalog: Catalog) -> Transformer:
    name = model_id(row.text("model"), catalog)
    for words, plain, checkpoint in CHECKPOINTS:
        if name == plain and words in row.text("note"):
            name = checkpoint
    if name is None:
        raise Unscored(f"model {row.text('model')[:40]!r} has no configuration in the catalogue")
    return loaded(name, catalog)


@lru_cache(maxsize=512)
def without_formats(model: Transformer) -> Transformer:
    """The same network without the formats of its checkpoint, for rows that name their own."""
    return replace(model, precisions=FrozenMap())


def system_of(row: Row, catalog: Catalog) -> System:
    """The machine of a row: the one that its label or source means, else the standard one of the device."""
    text = row.text("device")
    if not text:
        raise Unscored("device not stated")
    try:
        label = catalog.label(text, row.text("source_title"))
    except CatalogError as error:
        raise Unscored(str(error).splitlines()[0][:90]) from error
    name = label.system
    if "runs on cpu" in row.text("note").lower() and label.cpu:
        name = catalog.standard_system(label.cpu)
    if not name:
        raise Unscored(f"no standard system for {label.device}")
    return catalog.system(name)


def _with_options(row: Row, engine: EngineProfile) -> EngineProfile:
    """Options that the source says its runs have."""
    for start, share in POOL_FRACS.items():
        if row.text("source_title").startswith(start):
            engine = engine.with_(pool_frac=share)
    if mlperf_round(row) and engine.id.startswith("vllm"):
        # A submission sets the limits of the scheduler for its machine and has no clients to stream to.
        count, tokens = engine.max_batch_count or 0, engine.max_batch_tokens or 0
        count, tokens = max(count, _SUBMITTED_BATCH), max(tokens, _SUBMITTED_TOKENS)
        engine = engine.with_(
            max_batch_count=count,
            max_batch_tokens=tokens,
            small_batch_count=count,
            small_batch_tokens=tokens,
            host_sequence_s=min(engine.host_sequence_s, _IN_PROCESS_SEQUENCE_S),
        )
    compiled = _COMPILED_LENGTH.search(row.text("note"))
    if compiled is not None and engine.padded_batch:
        # One program for prompts and one for decoding, both of the longest length, or prompts in compiled pieces.
        pieces = any(words in row.text("note") for words in _CHUNKED)
        engine = engine.with_(bucket_tokens=_CHUNK_TOKENS if pieces else int(compiled.group(1)))
        if _ON_THE_HOST in row.text("note"):
            engine = engine.with_(host_step_s=engine.host_step_s + _HOST_SAMPLING_S)
    return engine


def _server_batch(row: Row) -> int | None:
    found = _SERVER_BATCH.search(row.text("note"))
    return int(found.group(1)) if found else None


def _load(
    row: Row, engine: EngineProfile, lengths: Lengths, catalog: Catalog
) -> tuple[Mode, Load, list[tuple[str, float]]]:
    text = row.text("batch_or_concurrency").lower()
    load = Load(input_tokens=lengths.input_tokens, output_tokens=lengths.output_tokens, beams_count=lengths.beams_count)
    if text.startswith("max load") or text in ("offline", "throughput"):
        return "maximum", load, []
    if text in _ARRIVING:
        return "maximum", _limited(row, load, text, catalog), []
    if (rate := _RATE.search(text)) is not None:
        return "open", replace(load, rate_per_s=float(rate.group(1))), []
    if text == "singlestream":
        return "static", replace(load, concurrency_count=1.0, static_batch=True), []
    count, remarks = row.number("batch_or_concurrency"), []
    if (average := _AVERAGE_BATCH.search(row.text("note"))) is not None:
        return "closed", replace(load, concurrency_count=float(average.group(1))), []
    if count is None and not text:
        if row.text("metric") not in ("ttft_ms", "tpot_ms", "decode_tok_s", "prefill_tok_s", "latency_ms"):
            return "maximum", load, [("batch not stated: as many as the scheduler lets run", 0.05)]
        count = 1.0
        remarks.append(("batch not stated: one request", 0.05))
    if count is None:
        raise Unscored(f"batch {row.text('batch_or_concurrency')[:30]!r} is not understood")
    if _starts_together(row, engine, count):
        return "static", replace(load, concurrency_count=count, static_batch=True), remarks
    return "closed", replace(load, concurrency_count=count), remarks


def _starts_together(row: Row, engine: EngineProfile, count: float) -> bool:
    """Whether the batch starts and ends together rather than being refilled by clients."""
    if engine.batching == "static" or any(words in row.text("note") for words in _WHOLE_BATCH):
        return True
    return count <= 1.0 and row.text("metric") in ("decode_tok_s", "prefill_tok_s", "ttft_ms")


def _limited(row: Row, load: Load, scenario: str, catalog: Catalog) -> Load:
    """The limits under which the benchmark counts a rate."""
    if "interactive" in row.text("model").lower():
        scenario = "interactive"
    limits = latency_limits(benchmark_of(row.text("model")), scenario, catalog)
    if not limits and mlperf_round(row):
        raise Unscored(f"latency limits of this benchmark's {scenario} scenario not known")
    return replace(load, **limits)  # type: ignore[arg-type]
