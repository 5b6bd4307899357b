"""Step times for a simulation: what `step_time` says of any step, tabulated in the few numbers that a step consists of.

A step of B sequences at mean context S beside P prompts of q new tokens on c cached ones is a sum of operations, and
each of them sees part of these numbers only: matrices, exchange and small kernels the tokens of the step, the head the
rows that end in a token, decode attention B and S, prompt attention P, q and c. So four small tables stand for all
steps. Which operation belongs where is not listed by name but found by comparing steps that differ in one respect.
Tables hold additive figures (`CHANNELS`); launches, clock and host, which are not additive, are put on top by the same
equations as in `serving.step` (`simulation.loop_law`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.job import ServingJob
from ridgeline.serving.step import hidden_frac, imbalance_frac, step_time
from ridgeline.simulation.loop_layout import CHANNELS
from ridgeline.simulation.steps_bench import PROBE, Bench
from ridgeline.workload.engine_step import Step

Array = NDArray[np.float64]

_TILE, _FINE = 16.0, 128.0  # src: ridgeline-kernel-laws
# Distance of tile edges of matrices, by rows.
_WIDTHS = ((128.0, 16.0), (1024.0, 64.0), (4096.0, 128.0))  # src: ridgeline-kernel-laws
_WIDEST = 256.0  # src: ridgeline-kernel-laws


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far the tables have to go: most sequences and tokens of a step, longest prompt and longest context."""

    sequences_count: float
    step_tokens: float
    prompt_tokens: float
    context_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Tables of one job. `*_knots` are coordinates of one micro-batch, `*_values` [..., channel].

    `decode_values` [sequences, context, channel], `prompt_values` [prompts, new tokens, cached tokens, channel],
    `draft_values` [sequences, context, (time_s, flop, bytes)]: what drafting adds to a step (none: zeros).
    `tokens_per_sequence`: tokens that a decoding sequence sends through the matrices in a step; `gain`: those of them
    that stay. The rest are figures of plan and engine as in `serving.step`.
    """

    token_knots: Array
    token_values: Array
    head_knots: Array
    head_values: Array
    sequence_knots: Array
    context_knots: Array
    decode_values: Array
    draft_values: Array
    prompt_knots: Array
    length_knots: Array
    cached_knots: Array
    prompt_values: Array
    stages: float = 1.0
    groups: float = 1.0
    imbalance_frac: float = 0.0
    kernel_floor_s: float = 0.0
    graphs: bool = True
    host_step_s: float = 0.0
    host_sequence_s: float = 0.0
    hidden_frac: float = 0.0
    tokens_per_sequence: float = 1.0
    gain: float = 1.0


def step_table(job: ServingJob, reach: Reach) -> StepTable:
    """Tables of `job` up to `reach` (beyond it they continue in a straight line)."""
    bench = Bench(job)
    stages = float(job.plan.pipeline_count)
    tokens = _token_knots(max(2.0, reach.step_tokens))
    counts = _sequence_knots(max(2.0, reach.sequences_count))
    contexts = _halves(_TILE, max(2.0 * _TILE, reach.context_tokens))
    rows = _token_knots(max(2.0, reach.sequences_count))
    longest = max(2.0, min(reach.prompt_tokens, reach.step_tokens))
    prompts = _octaves(max(2.0, min(reach.sequences_count, reach.step_tokens)))
    lengths = _length_knots(longest)
    cached = np.concatenate(
        ([0.0], max(PROBE, reach.context_tokens) / 2.0 ** np.arange(3.0, -1.0, -1.0))
    )  # src: rl-numerics
    return StepTable(
        token_knots=tokens,
        token_values=bench.table("tokens", [bench.decoding(n, PROBE) for n in tokens]),
        head_knots=rows,
        head_values=bench.table("head", [bench.decoding(r, PROBE) for r in rows]),
        sequence_knots=counts,
        context_knots=contexts,
        decode_values=bench.decode_table(counts, contexts),
        draft_values=np.zeros((len(counts), len(contexts), 3)),  # src: rl-numerics
        prompt_knots=prompts,
        length_knots=lengths,
        cached_knots=cached,
        prompt_values=bench.prompt_table(prompts, lengths, cached),
        stages=stages,
        groups=float(job.plan.attention_data_count),
        imbalance_frac=imbalance_frac(job.model.layers_count, job.plan.pipeline_count),
        kernel_floor_s=job.engine.kernel_floor_s,
        graphs=job.engine.graphs,
        host_step_s=job.engine.host_step_s,
        host_sequence_s=job.engine.host_sequence_s,
        hidden_frac=hidden_frac(job),
    )


def linear_table(step_s: float = 0.0, sequence_s: float = 0.0, token_s: float = 0.0) -> StepTable:
    """Steps of a server that is no chip: `step_s`, `sequence_s` for each sequence and prompt, `token_s` for each token.

    With `step_s` alone every sequence advances at the same rate whatever their number (so many servers side by side),
    with `sequence_s` alone they share one server evenly: the closed forms of queues come out of the same loop.
    """
    knots = np.array([0.0, 1.0])
    line = np.zeros((2, len(CHANNELS)))
    tokens = line.copy()
    tokens[1, 0] = token_s
    return StepTable(
        token_knots=knots,
        token_values=tokens,
        head_knots=knots,
        head_values=line,
        sequence_knots=knots,
        context_knots=knots,
        decode_values=np.zeros((2, 2, len(CHANNELS))),
        draft_values=np.zeros((2, 2, 3)),  # src: rl-numerics
        prompt_knots=knots + 1.0,
        length_knots=knots,
        cached_knots=knots,
        prompt_values=np.zeros((2, 2, 2, len(CHANNELS))),
        host_step_s=step_s,
        host_sequence_s=sequence_s,
    )


def with_speculation(table: StepTable, tokens: float, gain: float, draft: Array | None) -> StepTable:
    """`table` for steps that verify `tokens` tokens a sequence, of which `gain` stay on average, with drafts."""
    values = table.draft_values if draft is None else draft
    return replace(table, tokens_per_sequence=tokens, gain=gain, draft_values=values)


def draft_values(draft: ServingJob, table: StepTable, passes: float) -> Array:
    """Cost of `passes` decode steps of the model of `draft` on the grid of `table`: device time, operations, bytes.

    The host's part is not repeated: engines draft inside the step.
    """
    found = np.zeros((len(table.sequence_knots), len(table.context_knots), 3))  # src: rl-numerics
    for i, count in enumerate(table.sequence_knots):
        for j, context in enumerate(table.context_knots):
            time = step_time(draft, Step(decode_count=float(count), context_tokens=float(context)))
            found[i, j] = passes * np.array([time.device_s, time.flop, time.moved_bytes])
    return found


def head_values(table: StepTable, layers_frac: float, passes: float) -> Array:
    """Cost of `passes` of extra layers of the model itself (multi-token prediction): `layers_frac` of its layers and
    its head, one token a sequence."""
    found = np.zeros((len(table.sequence_knots), len(table.context_knots), 3))  # src: rl-numerics
    picked = [CHANNELS.index(name) for name in ("time_s", "flop", "bytes")]
    for i, count in enumerate(table.sequence_knots):
        for out, channel in enumerate(picked):
            body = np.interp(count, table.token_knots, table.token_values[:, channel])
            head = np.interp(count, table.head_knots, table.head_values[:, channel])
            found[i, :, out] = passes * (layers_frac * (body + table.decode_values[i, :, channel]) + head)
    return found


def _halves(low: float, high: float) -> Array:
    """Two knots an octave from `low` to `high`; whole numbers."""
    steps = math.ceil(2.0 * math.log2(high / low))
    knots: Array = np.unique(np.round(low * np.exp2(np.arange(steps + 1) / 2.0)))
    return knots


def _sequence_knots(high: float) -> Array:
    """Every count up to 16, then eight knots an octave: waves of blocks make decode attention rise in steps."""
    few = np.arange(1.0, min(_TILE, math.ceil(high)) + 1.0)
    if high <= _TILE:
        return few
    steps = math.ceil(8.0 * math.log2(high / _TILE))  # src: rl-numerics
    more = np.round(_TILE * np.exp2(np.arange(1.0, steps + 1.0) / 8.0))  # src: rl-numerics
    knots: Array = np.unique(np.concatenate((few, more)))
    return knots


def _octaves(high: float) -> Array:
    knots: Array = np.exp2(np.arange(math.ceil(math.log2(high)) + 1.0))
    return knots


def _token_knots(high: float) -> Array:
    """Every count below 16 (experts, streamed products), then both sides of each edge at which matrices take another
    tile: 16 rows up to 128, 64 up to 1024, 128 up to 4096, then sixteen an octave. Two far ones follow, so that what
    lies beyond continues the slope of many tiles and not that inside of one."""
    found = list(np.arange(1.0, _TILE))
    edge = 0.0
    while edge < high:
        wide = _WIDEST * max(1.0, math.floor(edge / (_TILE * _WIDEST)))
        edge += next((width for below, width in _WIDTHS if edge < below), wide)
        found += [edge, edge + 1.0]
    return np.array([*found[:-1], 2.0 * edge, 8.0 * edge])  # src: rl-numerics


def _length_knots(high: float) -> Array:
    """Both sides of each edge at which a prompt takes another tile of queries: 128 up to 1024, then four an octave."""
    found = [1.0, _TILE, 2.0 * _TILE]
    edge = _TILE * 4.0  # src: ridgeline-kernel-laws
    found += [edge, edge + 1.0]
    edge = 0.0
    while edge < high:
        grown = edge * (2.0**0.25 - 1.0)  # src: rl-numerics
        edge += _FINE * max(1.0, math.floor(grown / _FINE))
        found += [edge, edge + 1.0]
    return np.array(found[:-1])
