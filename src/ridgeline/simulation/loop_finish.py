"""What happens when a step or a run of steps ends: tokens are made, sequences end, prompts become sequences."""

from __future__ import annotations

import math
from typing import Any

from ridgeline.des.compiled import compiled
from ridgeline.simulation.loop_bins import add_gap, add_level, add_run
from ridgeline.simulation.loop_layout import (
    BATCH_END,
    CLOSED,
    CONTEXT,
    CONTEXT_SUM,
    DECODE,
    DECODES,
    DECODING,
    DONE_HEAD,
    F_MADE,
    FINISHED,
    FIRST,
    FLOWS,
    FRESH,
    FRESH_SUM,
    HEAP_AT,
    HEAPED,
    ISSUED,
    KIND,
    L_BLOCKS,
    LAST,
    LAST_END,
    LINK_FREE,
    LINK_LATENCY,
    LIVE,
    MADE,
    N_REPLICA,
    N_REQUEST,
    NONE,
    OUTPUT,
    PHASE,
    POLICY,
    PREFILL,
    READING,
    REPLICA,
    REPLICA_AT,
    REQUEST,
    REQUEST_AT,
    REQUESTS,
    ROLE,
    RUN_COUNT,
    RUN_END,
    RUN_FIRST,
    RUN_START,
    RUNNING,
    RUNS,
    SINCE,
    STATIC,
    STEP,
    THINK,
    TRANSFER_S,
    UNFINISHED,
    X_REPLICA,
    X_REQUEST,
)
from ridgeline.simulation.loop_memory import gain, growth, release, take
from ridgeline.simulation.loop_queue import expect, leave, pop_end
from ridgeline.simulation.loop_schedule import add_decode_flows, begin_decode, end_decode, schedule


@compiled
def issue_next(x: Any, n: Any, time_s: float) -> None:
    """A user whose request has ended thinks, then sends the next one (closed loop)."""
    i = n[ISSUED]
    if n[CLOSED] == 1 and i < n[REQUESTS]:
        n[ISSUED] = i + 1
        expect(x, n, time_s + x[n[X_REQUEST] + i * REQUEST + THINK], i)


@compiled
def _end(x: Any, n: Any, r: int, i: int, time_s: float) -> None:
    """Request `i` has its last token."""
    at = n[N_REQUEST] + i * REQUEST_AT
    release(x, n, r, i, time_s)
    if n[at + DECODES] == 1:
        if n[n[N_REPLICA] + r * REPLICA_AT + POLICY] == STATIC:
            made = n[at + OUTPUT] - n[at + MADE]
            x[n[X_REPLICA] + r * REPLICA + FLOWS + F_MADE] += made
        end_decode(x, n, r, i)
    leave(x, n, r, i, time_s)
    n[at + MADE] = n[at + OUTPUT]
    x[n[X_REQUEST] + i * REQUEST + FINISHED] = time_s
    n[UNFINISHED] -= 1
    issue_next(x, n, time_s)


@compiled
def _note_gaps(x: Any, n: Any, r: int) -> None:
    """Times between tokens of the sequences that advanced: the first step of a run may come after a pause."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    end_s, count = x[f + RUN_END], n[q + RUN_COUNT]
    first_s = end_s
    if count > 1:
        first_s = x[f + RUN_START] + x[f + RUN_FIRST]
    each = gain(x, n, r)
    fresh = n[q + FRESH]
    known = n[q + DECODING] - fresh
    if known > 0:
        add_gap(x, n, (first_s - x[f + LAST_END]) / each, known * each)
    if fresh > 0:
        add_gap(x, n, (first_s - x[f + FRESH_SUM] / fresh) / each, fresh * each)
    if count > 1:
        mean_s = (end_s - first_s) / (count - 1)
        add_gap(x, n, mean_s / each, n[q + DECODING] * (count - 1) * each)
    n[q + FRESH] = 0
    x[f + FRESH_SUM] = 0.0
    x[f + LAST_END] = end_s


@compiled
def _advance(x: Any, n: Any, r: int, time_s: float) -> None:
    """All sequences have made the tokens of the run."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    count, decoding = n[q + RUN_COUNT], n[q + DECODING]
    taken = growth(x, n, r, count)
    if taken > 0:
        take(x, n, r, taken)
        add_level(x, n, L_BLOCKS, time_s, float(taken))
    n[q + STEP] += count
    made = decoding * count * gain(x, n, r)
    x[f + CONTEXT_SUM] += made
    x[f + FLOWS + F_MADE] += made * x[f + LIVE]
    _note_gaps(x, n, r)


@compiled
def _prompts_done(x: Any, n: Any, r: int, time_s: float) -> None:
    """Prompts that were read to their end give a first token and decode, move to another pool, or end."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    i = n[q + DONE_HEAD]
    while i != NONE:
        at = n[N_REQUEST] + i * REQUEST_AT
        following = n[at + PHASE]
        if n[at + OUTPUT] > 0:
            n[at + MADE] += 1
            x[f + FLOWS + F_MADE] += 1.0
        if x[n[X_REQUEST] + i * REQUEST + FIRST] < 0.0:
            x[n[X_REQUEST] + i * REQUEST + FIRST] = time_s
        else:
            add_gap(x, n, time_s - x[n[X_REQUEST] + i * REQUEST + SINCE], 1.0)
        if n[at + MADE] >= n[at + OUTPUT]:
            _end(x, n, r, i, time_s)
        elif n[q + ROLE] == PREFILL:
            leave(x, n, r, i, time_s)
            busy_s = n[at + CONTEXT] * x[TRANSFER_S]
            start_s = max(time_s, x[f + LINK_FREE])
            x[f + LINK_FREE] = start_s + busy_s
            x[n[X_REQUEST] + i * REQUEST + SINCE] = time_s
            expect(x, n, start_s + busy_s + x[LINK_LATENCY], n[REQUESTS] + i)
        else:
            begin_decode(x, n, r, i, time_s)
        i = following


@compiled
def _batch_done(x: Any, n: Any, r: int, time_s: float) -> None:
    """A static batch has reached its longest answer: all leave."""
    q = n[N_REPLICA] + r * REPLICA_AT
    while n[q + RUNNING] > 0:
        _end(x, n, r, n[q + LAST], time_s)


@compiled
def finish_run(x: Any, n: Any, r: int) -> None:
    """Apply the run of replica `r` that ends now and start the next."""
    q, f = n[N_REPLICA] + r * REPLICA_AT, n[X_REPLICA] + r * REPLICA
    time_s, kind = x[f + RUN_END], n[q + KIND]
    n[RUNS] += 1
    if kind == DECODE:
        add_decode_flows(x, n, r)
    if kind != READING and n[q + DECODING] > 0:
        _advance(x, n, r, time_s)
    requests, step = n[REQUESTS], n[q + STEP]
    base = n[q + HEAP_AT]
    while n[q + HEAPED] > 0 and n[base] // requests <= step:
        i = n[base] % requests
        pop_end(x, n, r)
        _end(x, n, r, i, time_s)
    if kind != DECODE:
        _prompts_done(x, n, r, time_s)
    elif n[q + POLICY] == STATIC and step >= n[q + BATCH_END]:
        _batch_done(x, n, r, time_s)
    add_run(x, n, r)
    x[f + RUN_END] = math.inf
    schedule(x, n, r, time_s)
