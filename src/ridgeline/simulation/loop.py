"""The loop: the next thing that happens anywhere, until nothing is left to happen.

Three kinds of things: a request is sent, something that was expected comes (a user has thought, a cache has been
moved, a replica is ready, the number of replicas is looked at), or a replica ends a run of steps. At one time requests
come before what was expected, and that before replicas; replicas in their order.
"""

from __future__ import annotations

import math
from typing import Any

from ridgeline.des.compiled import compiled
from ridgeline.simulation.loop_finish import finish_run
from ridgeline.simulation.loop_layout import (
    ARRIVED,
    CLOSED,
    DECODER,
    ISSUED,
    PENDING,
    REPLICA,
    REPLICAS,
    REQUEST,
    REQUESTS,
    RUN_END,
    X_REPLICA,
    X_REQUEST,
    X_TIMES,
)
from ridgeline.simulation.loop_queue import next_event
from ridgeline.simulation.loop_route import arrive, moved, scale, started


@compiled
def _earliest(x: Any, n: Any) -> Any:
    """The replica whose run ends first."""
    found, end_s = 0, x[n[X_REPLICA] + RUN_END]
    for r in range(1, n[REPLICAS]):
        if x[n[X_REPLICA] + r * REPLICA + RUN_END] < end_s:
            found, end_s = r, x[n[X_REPLICA] + r * REPLICA + RUN_END]
    return found


@compiled
def run(x: Any, n: Any, entry: int) -> None:
    """Simulate to the end. `entry`: role of the replicas that take new requests."""
    requests = n[REQUESTS]
    opened = n[CLOSED] == 0
    while True:
        send_s = math.inf
        if opened and n[ISSUED] < requests:
            send_s = x[n[X_REQUEST] + n[ISSUED] * REQUEST + ARRIVED]
        event_s = x[n[X_TIMES] + 0] if n[PENDING] > 0 else math.inf
        which = _earliest(x, n)
        end_s = x[n[X_REPLICA] + which * REPLICA + RUN_END]
        if send_s <= event_s and send_s <= end_s:
            if send_s == math.inf:
                return
            n[ISSUED] += 1
            arrive(x, n, n[ISSUED] - 1, send_s, entry)
        elif event_s <= end_s:
            _come(x, n, event_s, entry)
        else:
            finish_run(x, n, which)


@compiled
def _come(x: Any, n: Any, time_s: float, entry: int) -> None:
    """Something expected happens: its code says what."""
    requests = n[REQUESTS]
    code = next_event(x, n)
    if code < requests:
        arrive(x, n, code, time_s, entry)
    elif code < 2 * requests:
        moved(x, n, code - requests, time_s, DECODER)
    elif code == 2 * requests:
        scale(x, n, time_s, code)
    else:
        started(x, n, code - 2 * requests - 1)
