"""Prompt and output lengths of a row: stated, else the mean of the data set that it names, else assumed in a range."""

from __future__ import annotations

from dataclasses import dataclass

from ridgeline.catalog import Catalog
from ridgeline.catalog.records import Fact
from ridgeline.validation.corpus import Row
from ridgeline.validation.each_row import Unscored
from ridgeline.validation.inference_engines import mlperf_round

RECORD = "request-lengths"
# How uncertain a published mean is as a stand-in for the lengths themselves (log standard deviation): assumed.
MEAN_SIGMA = 0.03
# Facts of `RECORD` for the data sets that titles name in brackets, and for sets of rows with one kind of prompt.
TITLES = ("lm-arena-chat", "gpqa", "sourcegraph-fim", "image-chat", "video-chat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of a request. `input_range` and `output_range` are given where a length is assumed and not known."""

    input_tokens: float
    output_tokens: float
    input_range: tuple[float, float] | None = None
    output_range: tuple[float, float] | None = None
    beams_count: float = 1.0
    fills: tuple[tuple[str, float], ...] = ()


def benchmark_of(model: str) -> str:
    """The MLPerf benchmark of a model column, without accuracy class and scenario.

    >>> benchmark_of("llama2-70b-interactive-99.9"), benchmark_of("llama3.1-8b-edge"), benchmark_of("gptj-99")
    ('llama2-70b', 'llama3.1-8b-edge', 'gptj')
    """
    name = model.lower().replace("_", ".")
    for ending in ("-99.9", "-99", "-interactive"):
        name = name.removesuffix(ending)
    return name


def lengths_of(row: Row, catalog: Catalog) -> Lengths:
    """Lengths of a row; `Unscored` where neither the row nor a data set says how long prompts are."""
    stated_in, stated_out = row.number("input_len"), row.number("output_len")
    if row.text("metric") == "decode_tok_s" and stated_in == 0 and stated_out:
        return Lengths(input_tokens=1.0, output_tokens=stated_out)
    if row.text("metric") == "prefill_tok_s" and stated_in:
        return Lengths(input_tokens=stated_in, output_tokens=1.0)
    if row.text("metric") == "ttft_ms" and stated_in and stated_out is None:
        return Lengths(input_tokens=stated_in, output_tokens=1.0)
    named = _data_set(row)
    fills: list[tuple[str, float]] = []
    ends: list[tuple[float, tuple[float, float] | None]] = []
    for column, stated, what in (("input", stated_in, "prompt"), ("output", stated_out, "output")):
        if stated is not None and (stated > 0 or column == "output"):
            ends.append((stated, None))
            continue
        fact = _fact(f"{named}.{column}", catalog)
        if fact is None:
            raise Unscored(f"length of the {what} not stated")
        value = float(fact.value)
        if fact.low is not None and fact.high is not None:
            ends.append((value, (fact.low, fact.high)))
            fills.append((f"{what} of {value:g} tokens assumed ({fact.low:g} to {fact.high:g}; {fact.id})", 0.0))
        else:
            ends.append((value, None))
            fills.append((f"{what} of {value:g} tokens, mean of {named} ({fact.source})", MEAN_SIGMA))
    (prompt, prompt_range), (output, output_range) = ends
    beams = _fact(f"{named}.beams", catalog)
    if beams is not None:
        fills.append((f"beam search of width {beams.value:g} ({beams.source})", 0.05))
    return Lengths(
        input_tokens=prompt,
        output_tokens=output,
        input_range=prompt_range,
        output_range=output_range,
        beams_count=float(beams.value) if beams is not None else 1.0,
        fills=tuple(fills),
    )


def _data_set(row: Row) -> str:
    """The data set that stands behind blank lengths."""
    if mlperf_round(row):
        return benchmark_of(row.text("model"))
    title = row.text("source_title")
    for name in TITLES:
        if f"({name})" in title:
            return name
    if "short prompt" in row.text("note"):
        return "short-prompt"
    if row.text("metric") in ("decode_tok_s", "tpot_ms") and row.text("batch_or_concurrency") in ("1", ""):
        return "chat-answer"
    return ""


def _fact(key: str, catalog: Catalog) -> Fact | None:
    record = catalog.record("assumptions", RECORD)
    return catalog.fact(f"{RECORD}.{key}") if key in record["facts"] else None


def latency_limits(benchmark: str, scenario: str, catalog: Catalog) -> dict[str, float]:
    """The limits of an MLPerf scenario as fields of a load; the percentile of the rules is the 99th, ours the 95th."""
    found = {}
    for key, name in (("ttft", "ttft_p95_s"), ("tpot", "tpot_p95_s"), ("e2e", "e2e_p95_s")):
        fact = _fact(f"{benchmark}.{scenario}_{key}", catalog)
        if fact is not None:
            found[name] = float(fact.value)
    return found
