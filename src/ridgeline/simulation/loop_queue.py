"""Queues of the loop: who waits and runs at a replica, which sequence ends next, which events are to come."""

from __future__ import annotations

from typing import Any

from ridgeline.des.compiled import compiled
from ridgeline.simulation.loop_bins import add_level
from ridgeline.simulation.loop_layout import (
    HEAD,
    HEAP_AT,
    HEAPED,
    L_RUNNING,
    L_WAITING,
    LAST,
    N_CODES,
    N_REPLICA,
    N_REQUEST,
    NEXT,
    NONE,
    PENDING,
    PREVIOUS,
    REPLICA_AT,
    REQUEST_AT,
    RUNNING,
    TAIL,
    WAITING,
    X_TIMES,
)


@compiled
def wait(x: Any, n: Any, r: int, i: int, time_s: float) -> None:
    """Request `i` joins the end of the queue of replica `r`."""
    q = n[N_REPLICA] + r * REPLICA_AT
    tail = n[q + TAIL]
    n[n[N_REQUEST] + i * REQUEST_AT + NEXT] = NONE
    if tail == NONE:
        n[q + HEAD] = i
    else:
        n[n[N_REQUEST] + tail * REQUEST_AT + NEXT] = i
    n[q + TAIL] = i
    n[q + WAITING] += 1
    add_level(x, n, L_WAITING, time_s, 1.0)


@compiled
def wait_first(x: Any, n: Any, r: int, i: int, time_s: float) -> None:
    """Request `i` goes to the head of the queue (it ran before)."""
    q = n[N_REPLICA] + r * REPLICA_AT
    head = n[q + HEAD]
    n[n[N_REQUEST] + i * REQUEST_AT + NEXT] = head
    if head == NONE:
        n[q + TAIL] = i
    n[q + HEAD] = i
    n[q + WAITING] += 1
    add_level(x, n, L_WAITING, time_s, 1.0)


@compiled
def start_next(x: Any, n: Any, r: int, time_s: float) -> Any:
    """The head of the queue leaves it and joins those that run, as the latest of them."""
    q = n[N_REPLICA] + r * REPLICA_AT
    i = n[q + HEAD]
    at = n[N_REQUEST] + i * REQUEST_AT
    n[q + HEAD] = n[at + NEXT]
    if n[q + HEAD] == NONE:
        n[q + TAIL] = NONE
    n[q + WAITING] -= 1
    add_level(x, n, L_WAITING, time_s, -1.0)
    last = n[q + LAST]
    n[at + PREVIOUS] = last
    n[at + NEXT] = NONE
    if last != NONE:
        n[n[N_REQUEST] + last * REQUEST_AT + NEXT] = i
    n[q + LAST] = i
    n[q + RUNNING] += 1
    add_level(x, n, L_RUNNING, time_s, 1.0)
    return i


@compiled
def leave(x: Any, n: Any, r: int, i: int, time_s: float) -> None:
    """Request `i` no longer runs."""
    q, at = n[N_REPLICA] + r * REPLICA_AT, n[N_REQUEST] + i * REQUEST_AT
    before, after = n[at + PREVIOUS], n[at + NEXT]
    if before != NONE:
        n[n[N_REQUEST] + before * REQUEST_AT + NEXT] = after
    if after != NONE:
        n[n[N_REQUEST] + after * REQUEST_AT + PREVIOUS] = before
    else:
        n[q + LAST] = before
    n[q + RUNNING] -= 1
    add_level(x, n, L_RUNNING, time_s, -1.0)


@compiled
def _rise(keys: Any, base: int, at: int) -> None:
    key = keys[base + at]
    while at > 0:
        above = (at - 1) // 2
        if keys[base + above] <= key:
            break
        keys[base + at] = keys[base + above]
        at = above
    keys[base + at] = key


@compiled
def _sink(keys: Any, base: int, count: int, at: int) -> None:
    key = keys[base + at]
    child = 2 * at + 1
    while child < count:
        if child + 1 < count and keys[base + child + 1] < keys[base + child]:
            child += 1
        if keys[base + child] >= key:
            break
        keys[base + at] = keys[base + child]
        at = child
        child = 2 * at + 1
    keys[base + at] = key


@compiled
def push_end(x: Any, n: Any, r: int, key: int) -> None:
    """Note that a sequence ends: key = step * requests + request."""
    q = n[N_REPLICA] + r * REPLICA_AT
    count = n[q + HEAPED]
    n[n[q + HEAP_AT] + count] = key
    n[q + HEAPED] = count + 1
    _rise(n, n[q + HEAP_AT], count)


@compiled
def pop_end(x: Any, n: Any, r: int) -> None:
    """Forget the first of the noted ends."""
    q = n[N_REPLICA] + r * REPLICA_AT
    base, count = n[q + HEAP_AT], n[q + HEAPED] - 1
    n[q + HEAPED] = count
    n[base] = n[base + count]
    if count > 1:
        _sink(n, base, count, 0)


@compiled
def drop_end(x: Any, n: Any, r: int, key: int) -> None:
    """Forget the end of a sequence that is preempted (rare: a search)."""
    q = n[N_REPLICA] + r * REPLICA_AT
    base, count = n[q + HEAP_AT], n[q + HEAPED] - 1
    at = 0
    while n[base + at] != key:
        at += 1
    n[q + HEAPED] = count
    if at < count:
        n[base + at] = n[base + count]
        _sink(n, base, count, at)
        _rise(n, base, at)


@compiled
def _sooner(x: Any, n: Any, one: int, other: int) -> Any:
    """Whether event `one` of the heap comes before `other`: ties in order of code."""
    times, codes = n[X_TIMES], n[N_CODES]
    if x[times + one] == x[times + other]:
        return n[codes + one] < n[codes + other]
    return x[times + one] < x[times + other]


@compiled
def _swap(x: Any, n: Any, one: int, other: int) -> None:
    times, codes = n[X_TIMES], n[N_CODES]
    time_s, code = x[times + one], n[codes + one]
    x[times + one], n[codes + one] = x[times + other], n[codes + other]
    x[times + other], n[codes + other] = time_s, code


@compiled
def expect(x: Any, n: Any, time_s: float, code: int) -> None:
    """An event to come: ties in order of code."""
    at = n[PENDING]
    n[PENDING] = at + 1
    x[n[X_TIMES] + at], n[n[N_CODES] + at] = time_s, code
    while at > 0 and _sooner(x, n, at, (at - 1) // 2):
        _swap(x, n, at, (at - 1) // 2)
        at = (at - 1) // 2


@compiled
def next_event(x: Any, n: Any) -> Any:
    """Take out the first event and give its code."""
    code = n[n[N_CODES]]
    count = n[PENDING] - 1
    n[PENDING] = count
    _swap(x, n, 0, count)
    at, child = 0, 1
    while child < count:
        if child + 1 < count and _sooner(x, n, child + 1, child):
            child += 1
        if not _sooner(x, n, child, at):
            break
        _swap(x, n, at, child)
        at = child
        child = 2 * at + 1
    return code
