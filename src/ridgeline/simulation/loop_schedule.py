"""What a replica does next: which sequences advance, which prompts are read beside or before them, and for how long.

Three policies. Chunked: every step advances all sequences by a token and fills the token budget with prompts, the last
of them cut (vLLM V1, SGLang, TensorRT-LLM). Prompts first: while prompts wait and fit, steps read prompts alone (vLLM
V0 and engines that do not mix). Static: a batch starts together and ends together.
"""

from __future__ import annotations

import math
from typing import Any

from ridgeline.des.compiled import compiled
from ridgeline.simulation import loop_law as law
from ridgeline.simulation.loop_layout import (
    BATCH_END,
    BATCH_LEFT,
    BLOCKS,
    BUDGET,
    CHUNK,
    CHUNKED,
    CONTEXT,
    CONTEXT_SUM,
    DECODE,
    DECODES,
    DECODING,
    DONE_HEAD,
    DONE_TAIL,
    EVICTABLE,
    EXTRA,
    F_DEVICE,
    F_PREEMPTED,
    F_READ,
    F_SPAN,
    F_STEPS,
    FLOWS,
    FREE,
    FRESH,
    FRESH_SUM,
    HEAD,
    HEAP_AT,
    HEAPED,
    HELD_BACK,
    IDLE,
    INPUT,
    KIND,
    LAST,
    LAW,
    LEFT,
    LIMIT,
    MADE,
    MIXED,
    N_REPLICA,
    N_REQUEST,
    NEED,
    NONE,
    OUTPUT,
    PADDED,
    PAIRS,
    PARTIAL,
    PHASE,
    PHASE_AT,
    POLICY,
    PREEMPTED,
    PROMPTS,
    PROMPTS_FIRST,
    READ,
    READING,
    REPLICA,
    REPLICA_AT,
    REQUEST,
    REQUEST_AT,
    REQUESTS,
    RESERVE,
    RUN_COUNT,
    RUN_END,
    RUN_FIRST,
    RUN_SLOPE,
    RUN_START,
    RUNNING,
    SINCE,
    START,
    STARTED,
    STATIC,
    STEP,
    SWAP,
    SWAP_S,
    WAITING,
    X_REPLICA,
    X_REQUEST,
)
from ridgeline.simulation.loop_memory import gain, growth, let_in, note_phase, own_blocks, release, steps_that_fit
from ridgeline.simulation.loop_queue import drop_end, leave, push_end, start_next, wait_first

_cell, _row, _step = law.cell, law.row, law.step
_FIGURES, _CONTEXTS, _CONTEXT_KNOTS, _WIDTH = law.FIGURES, law.CONTEXTS, law.CONTEXT_KNOTS, law.WIDTH
_ROW, _STEP_S, _ANSWER = law.ROW, law.STEP_S, law.ANSWER
_TINY = 1e-9  # src: rl-numerics


@compiled
def begin_decode(x: Any, n: Any, r: int, i: int, since_s: float) -> None:
    """Request `i` makes a token in every step from now on; its last one was made at `since_s`."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    n[at + DECODES] = 1
    n[at + START] = n[q + STEP]
    steps = math.ceil((n[at + OUTPUT] - n[at + MADE]) / gain(x, n, r) - _TINY)
    end = n[q + STEP] + steps
    if n[q + POLICY] == STATIC:
        n[q + BATCH_END] = max(n[q + BATCH_END], end)
    else:
        push_end(x, n, r, end * n[REQUESTS] + i)
    note_phase(x, n, r, i)
    n[q + DECODING] += 1
    x[n[X_REPLICA] + r * REPLICA + CONTEXT_SUM] += n[at + CONTEXT]
    n[q + FRESH] += 1
    x[n[X_REPLICA] + r * REPLICA + FRESH_SUM] += since_s


@compiled
def end_decode(x: Any, n: Any, r: int, i: int) -> None:
    """Request `i` no longer advances (its blocks are returned before)."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    steps = n[q + STEP] - n[at + START]
    n[at + DECODES] = 0
    n[q + DECODING] -= 1
    if n[q + DECODING] == 0:
        x[n[X_REPLICA] + r * REPLICA + CONTEXT_SUM] = 0.0
    else:
        x[n[X_REPLICA] + r * REPLICA + CONTEXT_SUM] -= n[at + CONTEXT] + steps * gain(x, n, r)
    if n[q + RESERVE] == 0:
        n[n[q + PHASE_AT] + n[at + PHASE]] -= 1


@compiled
def _preempt(x: Any, n: Any, r: int, time_s: float) -> None:
    """The latest of those that run gives up its blocks and goes to the head of the queue."""
    q = n[N_REPLICA] + r * REPLICA_AT
    i = n[q + LAST]
    at = n[N_REQUEST] + i * REQUEST_AT
    blocks = own_blocks(x, n, r, i)
    decodes = n[at + DECODES]
    release(x, n, r, i, time_s)
    leave(x, n, r, i, time_s)
    if decodes == 1:
        made = n[at + MADE] + int((n[q + STEP] - n[at + START]) * gain(x, n, r))
        made = min(made, n[at + OUTPUT] - 1)
        steps = math.ceil((n[at + OUTPUT] - n[at + MADE]) / gain(x, n, r) - _TINY)
        drop_end(x, n, r, (n[at + START] + steps) * n[REQUESTS] + i)
        end_decode(x, n, r, i)
        n[at + MADE] = made
        x[n[X_REQUEST] + i * REQUEST + SINCE] = time_s
        n[at + CONTEXT] = n[at + INPUT] + made
        n[at + NEED] = n[at + CONTEXT]
        if n[q + SWAP] == 1:
            n[at + NEED] = 0
            n[at + CONTEXT] -= 1
            x[n[X_REPLICA] + r * REPLICA + EXTRA] += blocks * x[SWAP_S]
    else:
        n[q + PARTIAL] = NONE
    n[at + PREEMPTED] += 1
    x[n[X_REPLICA] + r * REPLICA + FLOWS + F_PREEMPTED] += 1.0
    wait_first(x, n, r, i, time_s)


@compiled
def _make_room(x: Any, n: Any, r: int, time_s: float) -> Any:
    """Preempt until the blocks of one step are there; how many were preempted."""
    q = n[N_REPLICA] + r * REPLICA_AT
    count = 0
    needed = growth(x, n, r, 1)
    while needed > n[q + FREE] + n[q + EVICTABLE] and n[q + RUNNING] > 1:
        _preempt(x, n, r, time_s)
        count += 1
        needed = growth(x, n, r, 1)
    n[q + HELD_BACK] = needed
    return count


@compiled
def _read(x: Any, n: Any, r: int, i: int, chunk: int) -> None:
    """Put `chunk` tokens of the prompt of `i` into the step in the making."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    f = n[X_REPLICA] + r * REPLICA
    before = n[at + NEED] - n[at + LEFT]
    n[at + LEFT] -= chunk
    n[q + PROMPTS] += 1
    x[f + READ] += chunk
    x[f + PAIRS] += chunk * (before + 0.5 * chunk)
    n[q + PARTIAL] = NONE
    if n[at + LEFT] > 0:
        n[q + PARTIAL] = i
        return
    n[at + PHASE] = NONE
    tail = n[q + DONE_TAIL]
    if tail == NONE:
        n[q + DONE_HEAD] = i
    else:
        n[n[N_REQUEST] + tail * REQUEST_AT + PHASE] = i  # until it decodes, the phase is the link to the next one
    n[q + DONE_TAIL] = i


@compiled
def _let_in(x: Any, n: Any, r: int, time_s: float) -> Any:
    """Let the head of the queue in if there is a place and blocks; NONE if not."""
    q = n[N_REPLICA] + r * REPLICA_AT
    i = n[q + HEAD]
    if i == NONE or n[q + RUNNING] >= n[q + LIMIT] or let_in(x, n, r, i, time_s) == 0:
        return NONE
    start_next(x, n, r, time_s)
    if x[n[X_REQUEST] + i * REQUEST + STARTED] < 0.0:
        x[n[X_REQUEST] + i * REQUEST + STARTED] = time_s
    if n[n[N_REQUEST] + i * REQUEST_AT + NEED] == 0:
        if n[q + SWAP] == 1 and n[n[N_REQUEST] + i * REQUEST_AT + PREEMPTED] > 0:
            x[n[X_REPLICA] + r * REPLICA + EXTRA] += n[n[N_REQUEST] + i * REQUEST_AT + BLOCKS] * x[SWAP_S]
        begin_decode(x, n, r, i, x[n[X_REQUEST] + i * REQUEST + SINCE])
        n[q + HELD_BACK] += 1
    return i


@compiled
def _chunked(x: Any, n: Any, r: int, time_s: float) -> None:
    q = n[N_REPLICA] + r * REPLICA_AT
    preempted = _make_room(x, n, r, time_s)
    width = int(x[n[n[q + LAW] + _FIGURES] + _WIDTH])
    budget = n[q + BUDGET] - n[q + DECODING] * width
    partial = n[q + PARTIAL]
    if partial != NONE:
        chunk = min(n[n[N_REQUEST] + partial * REQUEST_AT + LEFT], min(budget, n[q + CHUNK]))
        if chunk > 0:
            _read(x, n, r, partial, chunk)
            budget -= chunk
    while budget > 0 and preempted == 0 and n[q + PARTIAL] == NONE:
        i = _let_in(x, n, r, time_s)
        if i == NONE:
            break
        left = n[n[N_REQUEST] + i * REQUEST_AT + LEFT]
        if left > 0:
            chunk = min(left, min(budget, n[q + CHUNK]))
            _read(x, n, r, i, chunk)
            budget -= chunk
        else:
            budget -= width
    _go(x, n, r, time_s)


@compiled
def _prompts_first(x: Any, n: Any, r: int, time_s: float) -> None:
    q = n[N_REPLICA] + r * REPLICA_AT
    preempted = _make_room(x, n, r, time_s)
    budget = n[q + BUDGET]
    while preempted == 0 and n[q + WAITING] > 0:
        need = n[n[N_REQUEST] + n[q + HEAD] * REQUEST_AT + NEED]
        if need > budget and n[q + PROMPTS] > 0:
            break
        i = _let_in(x, n, r, time_s)
        if i == NONE:
            break
        left = n[n[N_REQUEST] + i * REQUEST_AT + LEFT]
        if left > 0:
            _read(x, n, r, i, left)
            budget -= left
    _go(x, n, r, time_s)


@compiled
def _static(x: Any, n: Any, r: int, time_s: float) -> None:
    """A batch is what waits when the one before has ended; its prompts are read in passes, then all decode."""
    q = n[N_REPLICA] + r * REPLICA_AT
    if n[q + RUNNING] == 0:
        n[q + BATCH_LEFT] = min(n[q + WAITING], n[q + LIMIT])
        n[q + BATCH_END] = n[q + STEP]
    budget = n[q + BUDGET]
    while n[q + BATCH_LEFT] > 0:
        need = n[n[N_REQUEST] + n[q + HEAD] * REQUEST_AT + NEED]
        if need > budget and n[q + PROMPTS] > 0:
            break
        i = _let_in(x, n, r, time_s)
        if i == NONE:
            n[q + BATCH_LEFT] = 0
            break
        n[q + BATCH_LEFT] -= 1
        budget -= n[n[N_REQUEST] + i * REQUEST_AT + LEFT]
        _read(x, n, r, i, n[n[N_REQUEST] + i * REQUEST_AT + LEFT])
    _go(x, n, r, time_s)


@compiled
def _go(x: Any, n: Any, r: int, time_s: float) -> None:
    """Start the step with prompts that was put together, or decode steps, or nothing."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    extra = x[f + EXTRA]
    x[f + EXTRA] = 0.0
    x[f + RUN_START] = time_s
    if n[q + PROMPTS] == 0:
        if n[q + DECODING] == 0:
            n[q + KIND] = IDLE
            x[f + RUN_END] = math.inf
            return
        _decode(x, n, r, time_s + extra)
        return
    base = n[q + LAW]
    kind = MIXED if n[q + POLICY] == CHUNKED else READING
    decoding = n[q + DECODING] if kind == MIXED else 0
    context = x[f + CONTEXT_SUM] / decoding if decoding > 0 else 0.0
    if decoding > 0:
        decoding = max(decoding, n[q + PADDED])
    prompts = float(n[q + PROMPTS])
    _step(x, n, base, float(decoding), context, prompts, x[f + READ], x[f + PAIRS])
    fig = n[base + _FIGURES]
    n[q + KIND], n[q + RUN_COUNT] = kind, 1
    x[f + RUN_FIRST] = x[fig + _STEP_S] + extra
    x[f + RUN_END] = time_s + x[fig + _STEP_S] + extra
    x[f + FLOWS + F_STEPS] += 1.0
    x[f + FLOWS + F_SPAN] += x[fig + _STEP_S] + extra
    for part in range(1, _ROW):
        x[f + FLOWS + F_DEVICE + part - 1] += x[fig + _ANSWER + part]
    x[f + FLOWS + F_READ] += x[f + READ]
    x[f + READ] = x[f + PAIRS] = 0.0
    n[q + PROMPTS] = 0


@compiled
def interpolated(x: Any, n: Any, base: int, decoding: int, context: float, part: int) -> Any:
    """One figure of a decode step: time, device time, operations, bytes."""
    start = _row(x, n, base, decoding)
    knots = n[base + _CONTEXT_KNOTS]
    j = _cell(x, knots, n[base + _CONTEXTS], context)
    frac = (context - x[knots + j]) / (x[knots + j + 1] - x[knots + j])
    low = x[start + j * _ROW + part]
    return low + frac * (x[start + (j + 1) * _ROW + part] - low)


@compiled
def _decode(x: Any, n: Any, r: int, time_s: float) -> None:
    """Decode steps until a sequence ends, blocks run out, or the next knot of the context is reached."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    base = n[q + LAW]
    decoding = n[q + DECODING]
    context = x[f + CONTEXT_SUM] / decoding
    rate = gain(x, n, r)
    if n[q + HEAPED] > 0:
        count = n[n[q + HEAP_AT]] // n[REQUESTS] - n[q + STEP]
    else:
        count = n[q + BATCH_END] - n[q + STEP]
    knots, cells = n[base + _CONTEXT_KNOTS], n[base + _CONTEXTS]
    j = _cell(x, knots, cells, context)
    if j + 2 < cells:
        count = min(count, int((x[knots + j + 1] - context) / rate) + 1)
    count = max(1, steps_that_fit(x, n, r, max(1, count)))
    computed = max(decoding, n[q + PADDED])
    first_s = interpolated(x, n, base, computed, context, 0)
    start = _row(x, n, base, computed)
    rise = x[start + (j + 1) * _ROW] - x[start + j * _ROW]
    slope_s = rise / (x[knots + j + 1] - x[knots + j]) * rate
    n[q + KIND], n[q + RUN_COUNT] = DECODE, count
    x[f + RUN_START] = time_s
    x[f + RUN_FIRST], x[f + RUN_SLOPE] = first_s, slope_s
    x[f + RUN_END] = time_s + count * first_s + slope_s * (0.5 * count * (count - 1))


@compiled
def add_decode_flows(x: Any, n: Any, r: int) -> None:
    """Note what the decode steps of the run did (their number may have been cut)."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    count, decoding = n[q + RUN_COUNT], n[q + DECODING]
    context = x[f + CONTEXT_SUM] / decoding + gain(x, n, r) * 0.5 * (count - 1)
    computed = max(decoding, n[q + PADDED])
    base = n[q + LAW]
    x[f + FLOWS + F_STEPS] += count
    x[f + FLOWS + F_SPAN] += x[f + RUN_END] - x[f + RUN_START]
    for part in range(1, _ROW):
        x[f + FLOWS + F_DEVICE + part - 1] += count * interpolated(x, n, base, computed, context, part)


@compiled
def cut(x: Any, n: Any, r: int, time_s: float) -> None:
    """Let the decode steps under way end with the first that ends at `time_s` or later."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    first_s, slope_s = x[f + RUN_FIRST], x[f + RUN_SLOPE]
    passed_s = time_s - x[f + RUN_START]
    if passed_s <= first_s:
        count = 1
    else:
        half = first_s - 0.5 * slope_s
        root = math.sqrt(max(0.0, half * half + 2.0 * slope_s * passed_s))
        count = max(1, min(n[q + RUN_COUNT], int(2.0 * passed_s / (half + root))))
        while count * first_s + slope_s * (0.5 * count * (count - 1)) < passed_s:
            count += 1
        while count > 1 and (count - 1) * first_s + slope_s * (0.5 * (count - 1) * (count - 2)) >= passed_s:
            count -= 1
    if count < n[q + RUN_COUNT]:
        n[q + RUN_COUNT] = count
        end_s = x[f + RUN_START] + count * first_s + slope_s * (0.5 * count * (count - 1))
        x[f + RUN_END] = max(time_s, end_s)


@compiled
def schedule(x: Any, n: Any, r: int, time_s: float) -> None:
    """Decide what replica `r` does from `time_s` on."""
    q = n[N_REPLICA] + r * REPLICA_AT
    n[q + DONE_HEAD] = NONE
    n[q + DONE_TAIL] = NONE
    policy = n[q + POLICY]
    if policy == CHUNKED:
        _chunked(x, n, r, time_s)
    elif policy == PROMPTS_FIRST:
        _prompts_first(x, n, r, time_s)
    else:
        _static(x, n, r, time_s)
