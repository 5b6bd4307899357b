"""Time of a step inside the loop: tables of `simulation.steps`, interpolated, under the equations of `serving.step`.

Tables lie among the floats `x` of the simulation, their places among its whole numbers `n` (`loop_layout`). `place`
writes them; the rest reads them and is compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeline.des.compiled import compiled
from ridgeline.simulation.loop_layout import CHANNELS
from ridgeline.simulation.steps import StepTable

# Places of one law in `law_at`: offsets of the tables, then their lengths.
(
    TOKEN_KNOTS,
    TOKEN_VALUES,
    HEAD_KNOTS,
    HEAD_VALUES,
    COUNT_KNOTS,
    CONTEXT_KNOTS,
    DECODE_VALUES,
    DRAFT_VALUES,
    PROMPT_KNOTS,
    LENGTH_KNOTS,
    CACHED_KNOTS,
    PROMPT_VALUES,
    FIGURES,
    ROWS,
    TOKENS,
    HEADS,
    COUNTS,
    CONTEXTS,
    PROMPTS,
    LENGTHS,
    CACHEDS,
    ROWS_COUNT,
    FILLED,
    LAW_SIZE,
) = range(24)  # src: rl-numerics
# Places in the figures of a law; the last are scratch: sums of channels, then time, device time, operations, bytes.
STAGES, GROUPS, IMBALANCE, FLOOR, GRAPHS, HOST_STEP, HOST_SEQUENCE, HIDDEN, WIDTH, GAIN, SUM = range(
    11
)  # src: rl-numerics
N = len(CHANNELS)
TIME, BUSY, KEPT, BOUND, LAUNCHES, FLOP, BYTES = range(N)
ANSWER = SUM + N
STEP_S, DEVICE_S, STEP_FLOP, STEP_BYTES = range(ANSWER, ANSWER + 4)  # src: rl-numerics
FIGURES_COUNT = ANSWER + 4  # src: rl-numerics
# Figures of a row of decode steps at one context: time, device time, operations, bytes.
ROW = 4  # src: rl-numerics


def place(tables: tuple[StepTable, ...], sequences_count: int, floats_at: int, wholes_at: int) -> tuple[Any, Any]:
    """Flat floats and whole numbers of `tables`, with room for rows of decode steps of up to `sequences_count`.

    They will lie at `floats_at` and `wholes_at`, and places count from the start of all.
    """
    floats: list[Any] = []
    at: list[int] = []
    end = 0

    def put(values: Any) -> int:
        nonlocal end
        array = np.asarray(values, dtype=np.float64).ravel()
        floats.append(array)
        end += len(array)
        return floats_at + end - len(array)

    flags = wholes_at + len(tables) * LAW_SIZE
    for table in tables:
        parts = [table.token_knots, table.token_values, table.head_knots, table.head_values, table.sequence_knots]
        parts += [table.context_knots, table.decode_values, table.draft_values]
        parts += [table.prompt_knots, table.length_knots, table.cached_knots, table.prompt_values]
        figures = [table.stages, table.groups, table.imbalance_frac, table.kernel_floor_s, float(table.graphs)]
        figures += [table.host_step_s, table.host_sequence_s, table.hidden_frac]
        figures += [table.tokens_per_sequence, table.gain, *[0.0] * (FIGURES_COUNT - SUM)]
        knots = [table.token_knots, table.head_knots, table.sequence_knots, table.context_knots]
        knots += [table.prompt_knots, table.length_knots, table.cached_knots]
        offsets = [put(part) for part in (*parts, figures)]
        offsets.append(put(np.zeros((sequences_count + 1) * len(table.context_knots) * ROW)))
        at += [*offsets, *(len(each) for each in knots), sequences_count + 1, flags]
        flags += sequences_count + 1
    at += [0] * (flags - wholes_at - len(at))
    return np.concatenate(floats), np.array(at, dtype=np.int64)


@compiled
def cell(x: Any, knots: int, count: int, value: float) -> Any:
    """Which cell of the `count` knots from `x[knots]` on holds `value` (beyond the ends: the outer one)."""
    low, high = 0, count - 2
    while low < high:
        middle = (low + high + 1) // 2
        if x[knots + middle] <= value:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def _add_line(x: Any, knots: int, values: int, count: int, value: float, out: int) -> None:
    """Add the channels of a table of one coordinate at `value` to the sums at `out`."""
    i = cell(x, knots, count, value)
    low_at = x[knots + i]
    frac = (value - low_at) / (x[knots + i + 1] - low_at)
    at = values + i * N
    for channel in range(N):
        low = x[at + channel]
        x[out + channel] += low + frac * (x[at + N + channel] - low)


@compiled
def _add_decode(x: Any, n: Any, base: int, count: float, context: float, out: int) -> None:
    """Add decode attention of `count` sequences at `context`, and the drafts for them."""
    contexts = n[base + CONTEXTS]
    i = cell(x, n[base + COUNT_KNOTS], n[base + COUNTS], count)
    j = cell(x, n[base + CONTEXT_KNOTS], contexts, context)
    knots = n[base + COUNT_KNOTS]
    f = (count - x[knots + i]) / (x[knots + i + 1] - x[knots + i])
    knots = n[base + CONTEXT_KNOTS]
    g = (context - x[knots + j]) / (x[knots + j + 1] - x[knots + j])
    corner = i * contexts + j
    w00, w01, w10, w11 = (1.0 - f) * (1.0 - g), (1.0 - f) * g, f * (1.0 - g), f * g
    a = n[base + DECODE_VALUES] + corner * N
    b = a + contexts * N
    for channel in range(N):
        x[out + channel] += (
            w00 * x[a + channel] + w01 * x[a + N + channel] + w10 * x[b + channel] + w11 * x[b + N + channel]
        )
    a = n[base + DRAFT_VALUES] + corner * 3  # src: rl-numerics
    b = a + contexts * 3  # src: rl-numerics
    for part in range(3):  # src: rl-numerics
        channel = TIME if part == 0 else FLOP + part - 1
        x[out + channel] += (
            w00 * x[a + part] + w01 * x[a + 3 + part] + w10 * x[b + part] + w11 * x[b + 3 + part]  # src: rl-numerics
        )


@compiled
def _add_prompts(x: Any, n: Any, base: int, prompts: float, tokens: float, cached: float, out: int) -> None:
    """Add attention of `prompts` prompts of `tokens` new on `cached` tokens; less than one is one in some steps."""
    together = max(1.0, prompts)
    share = prompts / together
    lengths, cacheds = n[base + LENGTHS], n[base + CACHEDS]
    p0, q0, c0 = n[base + PROMPT_KNOTS], n[base + LENGTH_KNOTS], n[base + CACHED_KNOTS]
    i = cell(x, p0, n[base + PROMPTS], together)
    j = cell(x, q0, lengths, tokens)
    k = cell(x, c0, cacheds, cached)
    f = (together - x[p0 + i]) / (x[p0 + i + 1] - x[p0 + i])
    g = (tokens - x[q0 + j]) / (x[q0 + j + 1] - x[q0 + j])
    h = (cached - x[c0 + k]) / (x[c0 + k + 1] - x[c0 + k])
    for corner in range(8):  # src: rl-numerics
        di, dj, dk = corner // 4, (corner // 2) % 2, corner % 2  # src: rl-numerics
        weight = (f if di else 1.0 - f) * (g if dj else 1.0 - g) * (h if dk else 1.0 - h) * share
        if weight != 0.0:
            place_at = n[base + PROMPT_VALUES] + (((i + di) * lengths + j + dj) * cacheds + k + dk) * N
            for channel in range(N):
                x[out + channel] += weight * x[place_at + channel]


@compiled
def step(
    x: Any, n: Any, base: int, decoding: float, context: float, prompts: float, tokens: float, pairs: float
) -> None:
    """Time of a step of `decoding` sequences at mean `context` and `prompts` prompts of `tokens` new tokens in all.

    `pairs`: pairs of query and key that the new tokens ask for, from which the mean cached length follows so that the
    work is exact although lengths differ. All prompts are taken to end. The answer is left in the law's scratch.
    """
    fig = n[base + FIGURES]
    stages, groups = x[fig + STAGES], x[fig + GROUPS]
    batches = min(stages, max(1.0, (decoding + prompts) / groups))
    out = fig + SUM
    for channel in range(N):
        x[out + channel] = 0.0
    sent = decoding * x[fig + WIDTH]
    _add_line(x, n[base + TOKEN_KNOTS], n[base + TOKEN_VALUES], n[base + TOKENS], (sent + tokens) / batches, out)
    _add_line(x, n[base + HEAD_KNOTS], n[base + HEAD_VALUES], n[base + HEADS], (sent + prompts) / batches, out)
    if decoding > 0.0:
        _add_decode(x, n, base, decoding / batches, context, out)
    if prompts > 0.0:
        each = tokens / prompts
        cached = max(0.0, pairs / tokens - 0.5 * each)
        _add_prompts(x, n, base, prompts / batches, each, cached, out)
    kernels_s = x[out + TIME]
    device_s = kernels_s
    if x[fig + IMBALANCE] > 0.0 and batches == stages:
        device_s += x[fig + IMBALANCE] * kernels_s
    if prompts > 0.0 or x[fig + GRAPHS] == 0.0:
        device_s += max(0.0, x[out + LAUNCHES] * x[fig + FLOOR] - kernels_s)
    busy_s, bound_s = x[out + BUSY], x[out + BOUND]
    if busy_s > 0.0 and bound_s > 0.0:
        share = busy_s / device_s
        device_s += bound_s * (share * share) * (busy_s / x[out + KEPT] - 1.0)
    host_s = stages * x[fig + HOST_STEP] + x[fig + HOST_SEQUENCE] * ((decoding + prompts) / groups)
    x[fig + STEP_S] = device_s + host_s - x[fig + HIDDEN] * min(host_s, device_s)
    working = batches / stages
    x[fig + DEVICE_S] = device_s * working
    x[fig + STEP_FLOP] = x[out + FLOP] * working
    x[fig + STEP_BYTES] = x[out + BYTES] * working


@compiled
def row(x: Any, n: Any, base: int, decoding: int) -> Any:
    """Place of the figures of decode steps of `decoding` sequences at every context knot; computed once."""
    contexts = n[base + CONTEXTS]
    which = decoding if decoding < n[base + ROWS_COUNT] else 0
    start = n[base + ROWS] + which * contexts * ROW
    flag = n[base + FILLED] + which
    if which == 0 or n[flag] == 0:
        n[flag] = 1
        fig = n[base + FIGURES]
        for j in range(contexts):
            step(x, n, base, float(decoding), x[n[base + CONTEXT_KNOTS] + j], 0.0, 0.0, 0.0)
            for part in range(ROW):
                x[start + j * ROW + part] = x[fig + ANSWER + part]
    return start
