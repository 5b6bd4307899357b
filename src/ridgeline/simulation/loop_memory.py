"""Blocks of the key-value pool: who holds how many, when more are needed, which shared beginnings are cached."""

from __future__ import annotations

from typing import Any

from ridgeline.des.compiled import compiled
from ridgeline.simulation import loop_law as law
from ridgeline.simulation.loop_bins import add_level
from ridgeline.simulation.loop_layout import (
    BLOCK,
    BLOCKS,
    CACHED,
    CONTEXT,
    COPY_SIZE,
    DECODES,
    DECODING,
    EVICTABLE,
    FIXED,
    FREE,
    HELD_BACK,
    INPUT,
    L_BLOCKS,
    LAW,
    LEFT,
    N_PIECES,
    N_REPLICA,
    N_REQUEST,
    NEED,
    NEWEST,
    NONE,
    OLDEST,
    OUTPUT,
    P_BLOCKS,
    P_END,
    P_HELD,
    P_NEWER,
    P_OLDER,
    P_REFS,
    PERIOD,
    PHASE,
    PHASE_AT,
    PIECE,
    PIECE_AT,
    PIECE_SIZE,
    PIECES,
    REPLICA_AT,
    REQUEST_AT,
    RESERVE,
    SHARED,
    START,
    STEP,
)

_FIGURES, _GAIN = law.FIGURES, law.GAIN


@compiled
def gain(x: Any, n: Any, r: int) -> Any:
    """Tokens that a decoding sequence makes in a step of replica `r`."""
    base = n[n[N_REPLICA] + r * REPLICA_AT + LAW]
    return x[n[base + _FIGURES] + _GAIN]


@compiled
def growth(x: Any, n: Any, r: int, steps: int) -> Any:
    """Blocks that the decoding sequences take in the next `steps` steps."""
    q = n[N_REPLICA] + r * REPLICA_AT
    if n[q + RESERVE] == 1:
        return 0
    period, base, now = n[q + PERIOD], n[q + PHASE_AT], n[q + STEP]
    taken = (steps // period) * n[q + DECODING]
    for k in range(steps % period):
        taken += n[base + (now + k) % period]
    return taken


@compiled
def steps_that_fit(x: Any, n: Any, r: int, steps: int) -> Any:
    """Most steps up to `steps` for which there are blocks."""
    q = n[N_REPLICA] + r * REPLICA_AT
    room = n[q + FREE] + n[q + EVICTABLE]
    if growth(x, n, r, steps) <= room:
        return steps
    period = n[q + PERIOD]
    fit = (room // n[q + DECODING]) * period
    while growth(x, n, r, fit + 1) <= room:
        fit += 1
    return min(fit, steps)


@compiled
def note_phase(x: Any, n: Any, r: int, i: int) -> None:
    """Request `i` begins to decode: at which steps it will take a new block."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    if n[q + RESERVE] == 1:
        return
    block = n[q + BLOCK]
    slack = (block - n[at + CONTEXT] % block) % block
    phase = (n[q + STEP] + int(slack / gain(x, n, r))) % n[q + PERIOD]
    n[at + PHASE] = phase
    n[n[q + PHASE_AT] + phase] += 1


@compiled
def own_blocks(x: Any, n: Any, r: int, i: int) -> Any:
    """Blocks of its own that request `i` holds now."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    held = n[at + BLOCKS]
    if n[at + DECODES] == 0 or n[q + RESERVE] == 1:
        return held
    period = n[q + PERIOD]
    first = (n[at + PHASE] - n[at + START]) % period
    steps = n[q + STEP] - n[at + START]
    return held if steps <= first else held + (steps - 1 - first) // period + 1


@compiled
def full_blocks(x: Any, n: Any, r: int, i: int) -> Any:
    """Blocks of request `i` at its full length."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    tokens = n[at + INPUT] + max(1, n[at + OUTPUT]) - 1
    block = n[q + BLOCK]
    return (tokens + block - 1) // block + n[q + FIXED]


@compiled
def _unlink(x: Any, n: Any, r: int, p: int) -> None:
    """A cached piece leaves the list of those that nobody uses."""
    q = n[N_REPLICA] + r * REPLICA_AT
    base = n[q + PIECE_AT]
    older, newer = n[base + p * COPY_SIZE + P_OLDER], n[base + p * COPY_SIZE + P_NEWER]
    if older == NONE:
        n[q + OLDEST] = newer
    else:
        n[base + older * COPY_SIZE + P_NEWER] = newer
    if newer == NONE:
        n[q + NEWEST] = older
    else:
        n[base + newer * COPY_SIZE + P_OLDER] = older
    n[q + EVICTABLE] -= n[n[N_PIECES] + p * PIECE_SIZE + P_BLOCKS]


@compiled
def take(x: Any, n: Any, r: int, blocks: int) -> None:
    """Take `blocks` from what is free, after the oldest unused pieces where that is not enough."""
    q = n[N_REPLICA] + r * REPLICA_AT
    while n[q + FREE] < blocks and n[q + OLDEST] != NONE:
        oldest = n[q + OLDEST]
        _unlink(x, n, r, oldest)
        n[n[q + PIECE_AT] + oldest * COPY_SIZE + P_HELD] = 0
        n[q + FREE] += n[n[N_PIECES] + oldest * PIECE_SIZE + P_BLOCKS]
    n[q + FREE] -= blocks


@compiled
def found(x: Any, n: Any, r: int, i: int) -> Any:
    """Leading pieces of request `i` that replica `r` has cached (one token at least is left to read)."""
    at = n[N_REQUEST] + i * REQUEST_AT
    base, block = n[n[N_REPLICA] + r * REPLICA_AT + PIECE_AT], n[n[N_REPLICA] + r * REPLICA_AT + BLOCK]
    first, count = n[at + PIECE], n[at + PIECES]
    hits = 0
    while hits < count and n[base + n[first + hits] * COPY_SIZE + P_HELD] == 1:
        hits += 1
    while hits > 0 and n[n[N_PIECES] + n[first + hits - 1] * PIECE_SIZE + P_END] * block >= n[at + NEED]:
        hits -= 1
    return hits


@compiled
def let_in(x: Any, n: Any, r: int, i: int, time_s: float) -> Any:
    """Give request `i` its blocks if they are there; 0 if not. Sets what is left to read after cached pieces."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    block, need = n[q + BLOCK], n[at + NEED]
    pieces = n[at + PIECES] if need > 0 else 0
    first, base = n[at + PIECE], n[q + PIECE_AT]
    hits = found(x, n, r, i) if pieces > 0 else 0
    pinned = 0
    for k in range(hits):
        p = n[first + k]
        if n[base + p * COPY_SIZE + P_REFS] == 0:
            pinned += n[n[N_PIECES] + p * PIECE_SIZE + P_BLOCKS]
    had = n[n[N_PIECES] + n[first + hits - 1] * PIECE_SIZE + P_END] if hits > 0 else 0
    shared = n[n[N_PIECES] + n[first + pieces - 1] * PIECE_SIZE + P_END] if pieces > 0 else 0
    if n[q + RESERVE] == 1:
        whole = full_blocks(x, n, r, i)
    else:
        whole = (n[at + CONTEXT] + block - 1) // block + n[q + FIXED]
    own = max(0, whole - shared)
    fresh = shared - had + own
    if fresh + pinned + n[q + HELD_BACK] > n[q + FREE] + n[q + EVICTABLE]:
        return 0
    for k in range(hits):
        p = n[first + k]
        if n[base + p * COPY_SIZE + P_REFS] == 0:
            _unlink(x, n, r, p)
        n[base + p * COPY_SIZE + P_REFS] += 1
    take(x, n, r, fresh)
    used = fresh + pinned
    for k in range(hits, pieces):
        p = n[first + k]
        copy = base + p * COPY_SIZE
        if n[copy + P_HELD] == 1:  # cached behind a piece that is not, or left out so that a token is read
            n[q + FREE] += n[n[N_PIECES] + p * PIECE_SIZE + P_BLOCKS]
            if n[copy + P_REFS] == 0:
                _unlink(x, n, r, p)
            else:
                used -= n[n[N_PIECES] + p * PIECE_SIZE + P_BLOCKS]
        n[copy + P_HELD] = 1
        n[copy + P_REFS] += 1
    n[at + BLOCKS], n[at + SHARED] = own, pieces
    n[at + CACHED] = had * block
    n[at + LEFT] = max(0, need - had * block)
    add_level(x, n, L_BLOCKS, time_s, float(used))
    return 1


@compiled
def release(x: Any, n: Any, r: int, i: int, time_s: float) -> None:
    """Request `i` returns its blocks; pieces that nobody uses stay until room is needed, the last of them go first."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    own = own_blocks(x, n, r, i)
    n[q + FREE] += own
    freed = own
    base, first = n[q + PIECE_AT], n[at + PIECE]
    for back in range(n[at + SHARED]):
        p = n[first + n[at + SHARED] - 1 - back]
        copy = base + p * COPY_SIZE
        n[copy + P_REFS] -= 1
        if n[copy + P_REFS] == 0:
            newest = n[q + NEWEST]
            n[copy + P_OLDER], n[copy + P_NEWER] = newest, NONE
            if newest == NONE:
                n[q + OLDEST] = p
            else:
                n[base + newest * COPY_SIZE + P_NEWER] = p
            n[q + NEWEST] = p
            n[q + EVICTABLE] += n[n[N_PIECES] + p * PIECE_SIZE + P_BLOCKS]
            freed += n[n[N_PIECES] + p * PIECE_SIZE + P_BLOCKS]
    n[at + SHARED] = 0
    add_level(x, n, L_BLOCKS, time_s, -float(freed))
