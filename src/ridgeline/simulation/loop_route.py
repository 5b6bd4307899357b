"""Which replica a request goes to, and how many replicas there are."""

from __future__ import annotations

from typing import Any

from ridgeline.des.compiled import compiled
from ridgeline.simulation.loop_bins import add_level
from ridgeline.simulation.loop_finish import issue_next
from ridgeline.simulation.loop_layout import (
    ACTIVE,
    ARRIVED,
    CALM_SINCE,
    CHECK_S,
    CONTEXT,
    DECODE,
    EVICTABLE,
    FREE,
    HEAD,
    HOME,
    IDLE,
    IDLE_S,
    IMBALANCE_COUNT,
    IMBALANCE_FRAC,
    INPUT,
    KIND,
    L_REPLICAS,
    LEAST,
    LIMIT,
    MADE,
    MOST,
    N_REPLICA,
    N_REQUEST,
    NEED,
    NONE,
    OFF,
    ON,
    PREFIX_AWARE,
    REFUSED,
    REPLICA_AT,
    REPLICAS,
    REQUEST,
    REQUEST_AT,
    REQUESTS,
    ROLE,
    ROUND_ROBIN,
    ROUTING,
    RUNNING,
    STARTING,
    STARTUP_S,
    TARGET,
    TOTAL,
    TURN,
    UNFINISHED,
    WAITING,
    X_REQUEST,
)
from ridgeline.simulation.loop_memory import found, full_blocks, release
from ridgeline.simulation.loop_queue import expect, wait
from ridgeline.simulation.loop_schedule import cut, schedule


@compiled
def _load(x: Any, n: Any, r: int) -> Any:
    return n[n[N_REPLICA] + r * REPLICA_AT + WAITING] + n[n[N_REPLICA] + r * REPLICA_AT + RUNNING]


@compiled
def _least_loaded(x: Any, n: Any, role: int) -> Any:
    best, least = NONE, 0
    for r in range(n[REPLICAS]):
        q = n[N_REPLICA] + r * REPLICA_AT
        if n[q + ACTIVE] == ON and n[q + ROLE] == role:
            load = _load(x, n, r)
            if best == NONE or load < least:
                best, least = r, load
    return best


@compiled
def _in_turn(x: Any, n: Any, role: int) -> Any:
    count = n[REPLICAS]
    for k in range(count):
        r = (n[TURN] + k) % count
        q = n[N_REPLICA] + r * REPLICA_AT
        if n[q + ACTIVE] == ON and n[q + ROLE] == role:
            n[TURN] = r + 1
            return r
    return NONE


@compiled
def _longest_prefix(x: Any, n: Any, i: int, role: int) -> Any:
    """The replica that has most of the request's beginning, unless the loads are too uneven."""
    calm = _least_loaded(x, n, role)
    least, highest, best, hits = _load(x, n, calm), 0, calm, found(x, n, calm, i)
    for r in range(n[REPLICAS]):
        q = n[N_REPLICA] + r * REPLICA_AT
        if n[q + ACTIVE] == ON and n[q + ROLE] == role:
            highest = max(highest, _load(x, n, r))
            known = found(x, n, r, i)
            if known > hits:
                best, hits = r, known
    uneven = highest - least > n[IMBALANCE_COUNT] and highest > x[IMBALANCE_FRAC] * least
    return calm if uneven else best


@compiled
def deliver(x: Any, n: Any, i: int, time_s: float, role: int) -> None:
    """Request `i` reaches a pool: choose its replica, refuse it if it can never run, queue it, wake the replica."""
    routing = n[ROUTING]
    if routing == ROUND_ROBIN:
        r = _in_turn(x, n, role)
    elif routing == PREFIX_AWARE:
        r = _longest_prefix(x, n, i, role)
    else:
        r = _least_loaded(x, n, role)
    q = n[N_REPLICA] + r * REPLICA_AT
    n[n[N_REQUEST] + i * REQUEST_AT + HOME] = r
    blocks = full_blocks(x, n, r, i)
    if blocks > n[q + TOTAL]:
        n[REFUSED] += 1
        n[UNFINISHED] -= 1
        issue_next(x, n, time_s)
        return
    alone = n[q + WAITING] == 0
    wait(x, n, r, i, time_s)
    if n[q + KIND] == IDLE:
        schedule(x, n, r, time_s)
    elif n[q + KIND] == DECODE and alone and n[q + RUNNING] < n[q + LIMIT]:
        block_free = n[q + FREE] + n[q + EVICTABLE]
        if block_free > 0:
            cut(x, n, r, time_s)


@compiled
def arrive(x: Any, n: Any, i: int, time_s: float, role: int) -> None:
    """Request `i` is sent."""
    at = n[N_REQUEST] + i * REQUEST_AT
    x[n[X_REQUEST] + i * REQUEST + ARRIVED] = time_s
    n[at + NEED] = n[at + INPUT]
    n[at + CONTEXT] = n[at + INPUT]
    deliver(x, n, i, time_s, role)


@compiled
def moved(x: Any, n: Any, i: int, time_s: float, role: int) -> None:
    """The cache of request `i` has reached the decode pool; the replica that read the prompt has its blocks back."""
    at = n[N_REQUEST] + i * REQUEST_AT
    before = n[at + HOME]
    release(x, n, before, i, time_s)
    n[at + NEED] = 0
    n[at + CONTEXT] = n[at + INPUT] + n[at + MADE] - 1
    deliver(x, n, i, time_s, role)
    if n[n[N_REPLICA] + before * REPLICA_AT + KIND] == IDLE and n[n[N_REPLICA] + before * REPLICA_AT + HEAD] != NONE:
        schedule(x, n, before, time_s)


@compiled
def scale(x: Any, n: Any, time_s: float, code: int) -> None:
    """Compare the load with the target and start or stop replicas; look again after a while."""
    load = paid = 0
    for r in range(n[REPLICAS]):
        load += _load(x, n, r)
        if n[n[N_REPLICA] + r * REPLICA_AT + ACTIVE] != OFF:
            paid += 1
    wanted = int(load / x[TARGET])
    if wanted * x[TARGET] < load:
        wanted += 1
    wanted = max(n[LEAST], min(n[MOST], wanted))
    if wanted >= paid:
        x[CALM_SINCE] = time_s
    for r in range(n[REPLICAS]):
        if paid < wanted and n[n[N_REPLICA] + r * REPLICA_AT + ACTIVE] == OFF:
            n[n[N_REPLICA] + r * REPLICA_AT + ACTIVE] = STARTING
            paid += 1
            add_level(x, n, L_REPLICAS, time_s, 1.0)
            expect(x, n, time_s + x[STARTUP_S], 2 * n[REQUESTS] + 1 + r)
    if wanted < paid and time_s - x[CALM_SINCE] >= x[IDLE_S]:
        _stop_one(x, n, time_s)
    if n[UNFINISHED] > 0:
        expect(x, n, time_s + x[CHECK_S], code)


@compiled
def _stop_one(x: Any, n: Any, time_s: float) -> None:
    """The least loaded replica that runs takes no more requests and is given back when its last one ends."""
    r = _last_on(x, n)
    if r != NONE:
        n[n[N_REPLICA] + r * REPLICA_AT + ACTIVE] = OFF
        add_level(x, n, L_REPLICAS, time_s, -1.0)


@compiled
def _last_on(x: Any, n: Any) -> Any:
    """An idle replica that could be stopped, the last first (NONE: all work)."""
    for back in range(n[REPLICAS]):
        r = n[REPLICAS] - 1 - back
        if n[n[N_REPLICA] + r * REPLICA_AT + ACTIVE] == ON and _load(x, n, r) == 0:
            return r
    return NONE


@compiled
def started(x: Any, n: Any, r: int) -> None:
    """A replica is ready for requests."""
    n[n[N_REPLICA] + r * REPLICA_AT + ACTIVE] = ON
