"""The state of a simulation before it starts, as the loop wants it, and the record that is read from it afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ridgeline.des.compiled import working
from ridgeline.errors import BadPlan
from ridgeline.simulation import loop_law as law
from ridgeline.simulation import loop_layout as at
from ridgeline.simulation.cluster import Intervals, Trace
from ridgeline.simulation.engine_limits import UNLIMITED, ReplicaLimits
from ridgeline.simulation.options import Pool, SimulationOptions, Users
from ridgeline.simulation.steps import StepTable
from ridgeline.specs.requests import Counts, Floats, Requests

_ROLES = {"both": at.BOTH, "prefill": at.PREFILL, "decode": at.DECODER}
_ROUTES = {"round-robin": at.ROUND_ROBIN, "least-loaded": at.LEAST_LOADED, "prefix-aware": at.PREFIX_AWARE}
_POLICIES = {"chunked": at.CHUNKED, "prompts-first": at.PROMPTS_FIRST, "static": at.STATIC}
_LARGEST_ROWS = 4096  # src: rl-numerics
_GAP_LEAST_S, _GAPS_A_DECADE, _GAP_DECADES = 1e-5, 100, 9  # src: rl-numerics
_FIRST_WIDTH_S = 1e-3  # src: rl-numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A pool as the loop sees it: its limits, its policy and the seconds that moving a token or a block takes."""

    pool: Pool
    limits: ReplicaLimits
    table: StepTable
    read_tokens: Counts
    policy: str
    reserve: bool
    transfer_s: float = 0.0
    swap_s: float = 0.0


class World(NamedTuple):
    """Floats and whole numbers of a simulation, laid out as `loop_layout` says."""

    x: Any
    n: Any


def build(
    parts: tuple[Part, ...], requests: Requests, options: SimulationOptions, users: Users | None, compiled: bool
) -> World:
    """A fresh state. Requests are told from their first arrival on. `compiled`: for machine code."""
    count = requests.count
    replicas = [(index, part) for index, part in enumerate(parts) for _ in range(part.pool.replicas_count)]
    pieces, pieces_count = _pieces(requests, options, parts[0], len(replicas))
    setup, setup_at = _setup(parts, requests, options, users)
    setup_at[at.REPLICAS], setup_at[at.PIECES_COUNT] = len(replicas), pieces_count
    rows = min(_LARGEST_ROWS, max(part.limits.sequences_count for part in parts))
    laws, laws_at = law.place(tuple(part.table for part in parts), rows, at.SETUP, at.SETUP_AT)
    setup_at[at.X_REPLICA] = at.SETUP + len(laws)
    setup_at[at.N_REPLICA] = at.SETUP_AT + len(laws_at)
    setup_at[at.N_REQUEST] = setup_at[at.N_REPLICA] + len(replicas) * at.REPLICA_AT
    heap_at = setup_at[at.N_REQUEST] + count * at.REQUEST_AT
    phases_at = heap_at + sum(part.limits.sequences_count + 1 for _, part in replicas)
    setup_at[at.N_CODES] = phases_at + sum(_period(part) for _, part in replicas)
    times, codes = _first_events(options, users, count)
    setup_at[at.N_PIECES] = setup_at[at.N_CODES] + len(codes)
    floats, wholes = _replicas(replicas, options, (heap_at, phases_at, setup_at[at.N_PIECES]), pieces, pieces_count)
    first_s = float(requests.arrived_s[0]) if count else 0.0
    span_s = 0.0 if users is not None or not count else float(requests.arrived_s[-1]) - first_s
    bins = np.zeros(1 + options.intervals_count * at.BIN)
    bins[0] = max(_FIRST_WIDTH_S, span_s * (1.0 + 1.0 / options.intervals_count) / options.intervals_count)
    paid = int((wholes[:, at.ACTIVE] == at.ON).sum())
    bins[1 + at.L_REPLICAS] = paid
    bins[1 + at.LEVELS_COUNT + at.L_REPLICAS] = paid * bins[0]
    edges = _GAP_LEAST_S * 10.0 ** (np.arange(_GAPS_A_DECADE * _GAP_DECADES + 1) / _GAPS_A_DECADE)
    setup_at[at.GAPS] = len(edges)
    setup_at[at.X_REQUEST] = setup_at[at.X_REPLICA] + floats.size
    setup_at[at.X_TIMES] = setup_at[at.X_REQUEST] + count * at.REQUEST
    setup_at[at.X_BINS] = setup_at[at.X_TIMES] + len(times)
    setup_at[at.X_GAPS] = setup_at[at.X_BINS] + len(bins)
    asked = _request_wholes(requests, parts[0], setup_at[at.N_PIECES] + 2 * pieces_count, pieces_count > 0)
    sent = _request_floats(requests, users, first_s)
    empty = np.zeros(setup_at[at.N_CODES] - heap_at, dtype=np.int64)
    n = (setup_at, laws_at, wholes.ravel(), asked.ravel(), empty, codes, pieces)
    x = (setup, laws, floats.ravel(), sent.ravel(), times, bins, edges, np.zeros(len(edges)))
    wholes_of_all = np.concatenate([np.asarray(part, dtype=np.int64) for part in n])
    return World(working(np.concatenate(x), "float", compiled), working(wholes_of_all, "int", compiled))


def _period(part: Part) -> int:
    """Steps after which a decoding sequence takes another block."""
    block = part.limits.block_tokens
    return max(1, int(block / part.table.gain)) if block < UNLIMITED else 1


def _request_floats(requests: Requests, users: Users | None, first_s: float) -> Any:
    found = np.full((requests.count, at.REQUEST), -1.0)
    found[:, at.ARRIVED] = requests.arrived_s - first_s if users is None else 0.0
    found[:, at.THINK] = 0.0 if users is None else users.thought_s
    found[:, at.FINISHED] = np.nan
    return found


def _request_wholes(requests: Requests, part: Part, sequence_at: int, shares: bool) -> Any:
    found = np.zeros((requests.count, at.REQUEST_AT), dtype=np.int64)
    found[:, at.INPUT] = part.read_tokens
    found[:, at.OUTPUT] = requests.output_tokens
    found[:, at.NEXT] = found[:, at.PREVIOUS] = found[:, at.HOME] = at.NONE
    if shares:
        found[:, at.PIECE] = sequence_at + requests.prefix_offsets[:-1]
        found[:, at.PIECES] = np.diff(requests.prefix_offsets)
    return found


def _pieces(requests: Requests, options: SimulationOptions, part: Part, replicas_count: int) -> tuple[Any, int]:
    """Shared beginnings: blocks of each piece, the pieces of each request, and a copy of their state a replica."""
    if not (options.prefix_cache and requests.has_prefixes):
        return np.zeros(1, dtype=np.int64), 0
    block = part.limits.block_tokens
    ids, first, index = np.unique(requests.prefix_ids, return_index=True, return_inverse=True)
    summed = np.concatenate(([0], np.cumsum(requests.prefix_tokens)))
    starts = np.repeat(summed[requests.prefix_offsets[:-1]], np.diff(requests.prefix_offsets))
    ends = (summed[1:] - starts) // block
    before = (summed[:-1] - starts) // block
    own = np.stack((ends[first] - before[first], ends[first]), axis=1)
    state = np.tile(np.array([0, 0, at.NONE, at.NONE]), replicas_count * len(ids))
    return np.concatenate((own.ravel(), index.ravel(), state)), len(ids)


def _replicas(
    replicas: list[tuple[int, Part]],
    options: SimulationOptions,
    places: tuple[int, int, int],
    pieces: Any,
    pieces_count: int,
) -> tuple[Any, Any]:
    """Floats and whole numbers of all replicas; `places`: where heaps, phases and pieces begin."""
    heap_at, phases_at, pieces_at = places
    floats = np.zeros((len(replicas), at.REPLICA))
    floats[:, at.RUN_END] = np.inf
    wholes = np.zeros((len(replicas), at.REPLICA_AT), dtype=np.int64)
    for name in (at.HEAD, at.TAIL, at.LAST, at.PARTIAL, at.DONE_HEAD, at.DONE_TAIL, at.OLDEST, at.NEWEST):
        wholes[:, name] = at.NONE
    copies = pieces_at + len(pieces) - len(replicas) * pieces_count * at.COPY_SIZE
    least = len(replicas) if options.scaling is None else options.scaling.least_count
    for k, (index, part) in enumerate(replicas):
        limits = part.limits
        values = {
            at.FREE: limits.blocks_count,
            at.TOTAL: limits.blocks_count,
            at.HEAP_AT: heap_at,
            at.PHASE_AT: phases_at,
            at.PERIOD: _period(part),
            at.PIECE_AT: copies + k * pieces_count * at.COPY_SIZE,
            at.LAW: at.SETUP_AT + index * law.LAW_SIZE,
            at.ROLE: _ROLES[part.pool.role],
            at.ACTIVE: at.ON if k < least else at.OFF,
            at.LIMIT: limits.sequences_count,
            at.BUDGET: limits.step_tokens,
            at.CHUNK: limits.chunk_tokens,
            at.BLOCK: limits.block_tokens,
            at.FIXED: limits.fixed_blocks,
            at.POLICY: _POLICIES[part.policy],
            at.RESERVE: int(part.reserve or limits.block_tokens >= UNLIMITED),
            at.SWAP: int(options.preemption == "swap"),
            at.PADDED: limits.sequences_count if part.pool.job.engine.padded_batch else 0,
        }
        for name, value in values.items():
            wholes[k, name] = value
        floats[k, at.LIVE] = float(part.policy != "static")
        heap_at += limits.sequences_count + 1
        phases_at += _period(part)
    return floats, wholes


def _setup(
    parts: tuple[Part, ...],
    requests: Requests,
    options: SimulationOptions,
    users: Users | None,
) -> tuple[Any, list[int]]:
    floats = np.zeros(at.SETUP)
    floats[at.TRANSFER_S] = parts[0].transfer_s
    floats[at.LINK_LATENCY] = options.link_latency_s
    floats[at.SWAP_S] = parts[-1].swap_s
    floats[at.IMBALANCE_FRAC] = options.imbalance_frac
    wholes = [0] * at.SETUP_AT
    wholes[at.REQUESTS] = requests.count
    wholes[at.CLOSED] = int(users is not None)
    wholes[at.ISSUED] = 0 if users is None else min(users.users_count, requests.count)
    wholes[at.UNFINISHED] = requests.count
    wholes[at.ROUTING] = _ROUTES[options.routing]
    wholes[at.BINS], wholes[at.IMBALANCE_COUNT] = options.intervals_count, options.imbalance_count
    wholes[at.PENDING] = wholes[at.ISSUED]
    if options.scaling is not None:
        scaling = options.scaling
        floats[at.TARGET], floats[at.CHECK_S] = scaling.target_count, scaling.check_s
        floats[at.STARTUP_S], floats[at.IDLE_S] = scaling.startup_s, scaling.calm_s
        wholes[at.SCALING], wholes[at.LEAST], wholes[at.MOST] = 1, scaling.least_count, parts[0].pool.replicas_count
        wholes[at.PENDING] += 1
    return floats, wholes


def _first_events(options: SimulationOptions, users: Users | None, count: int) -> tuple[Any, Any]:
    """A sorted list is a heap: the first request of each user, and the first look at the number of replicas."""
    sent = 0 if users is None else min(users.users_count, count)
    known = [] if users is None else [(float(users.thought_s[i]), i) for i in range(sent)]
    if options.scaling is not None:
        known.append((options.scaling.check_s, 2 * count))
    known.sort()
    room = 2 * count + len(known) + 64  # src: rl-numerics
    times, codes = np.zeros(room), np.zeros(room, dtype=np.int64)
    for k, (time_s, code) in enumerate(known):
        times[k], codes[k] = time_s, code
    return times, codes


def read(w: World, parts: tuple[Part, ...], requests: Requests, first_s: float) -> Trace:
    """The record of a run that has ended."""
    x, n = np.asarray(w.x, dtype=np.float64), np.asarray(w.n, dtype=np.int64)
    count = requests.count
    floats = x[n[at.X_REQUEST] :][: count * at.REQUEST].reshape(count, at.REQUEST)
    wholes = n[n[at.N_REQUEST] :][: count * at.REQUEST_AT].reshape(count, at.REQUEST_AT)
    bins = x[n[at.X_BINS] : n[at.X_GAPS]]
    answered = np.isfinite(floats[:, at.FINISHED])

    def time_of(field: int) -> Floats:
        found: Floats = np.where(answered, floats[:, field] + first_s, np.nan)
        return found

    edges = int(n[at.GAPS])
    gaps = x[n[at.X_GAPS] :]
    end_s = float(np.max(floats[answered, at.FINISHED], initial=0.0))
    return Trace(
        arrived_s=floats[:, at.ARRIVED] + first_s,
        started_s=time_of(at.STARTED),
        first_token_s=time_of(at.FIRST),
        finished_s=time_of(at.FINISHED),
        input_tokens=requests.input_tokens,
        output_tokens=requests.output_tokens,
        preemptions=wholes[:, at.PREEMPTED].copy(),
        cached_tokens=wholes[:, at.CACHED].copy(),
        replica=wholes[:, at.HOME].copy(),
        answered=answered.astype(np.int64),
        gap_edges_s=gaps[:edges],
        gap_counts=gaps[edges : 2 * edges - 1],
        intervals=_intervals(bins, parts, first_s, end_s),
        end_s=end_s + first_s,
        steps_count=float(bins[1:].reshape(-1, at.BIN)[:, 2 * at.LEVELS_COUNT + at.F_STEPS].sum()),
        runs_count=int(n[at.RUNS]),
    )


def _intervals(bins: Floats, parts: tuple[Part, ...], first_s: float, end_s: float) -> Intervals:
    width = float(bins[0])
    count = min(len(bins) // at.BIN, int(end_s / width) + 1)
    table = bins[1:].reshape(-1, at.BIN)[:count]
    changes, moments = table[:, : at.LEVELS_COUNT], table[:, at.LEVELS_COUNT : 2 * at.LEVELS_COUNT]
    before = np.cumsum(changes, axis=0) - changes
    levels = before + moments / width
    flows = table[:, 2 * at.LEVELS_COUNT :]
    edges: Floats = np.arange(count + 1, dtype=np.float64) * width
    spans = np.full(count, width)
    if count and end_s > edges[count - 1]:
        # The last interval ends with the last request; nothing is waiting or running after it.
        spans[-1] = end_s - edges[count - 1]
        levels[-1] = (before[-1] * width + moments[-1]) / spans[-1]
        levels[-1, at.L_REPLICAS] = before[-1, at.L_REPLICAS] + changes[-1, at.L_REPLICAS]
        edges[count] = end_s
    total = sum(part.limits.blocks_count * part.pool.replicas_count for part in parts)
    steps = flows[:, at.F_STEPS]
    paid = np.maximum(levels[:, at.L_REPLICAS], 1.0)
    return Intervals(
        edges_s=edges + first_s,
        waiting_count=levels[:, at.L_WAITING],
        running_count=levels[:, at.L_RUNNING],
        replicas_count=levels[:, at.L_REPLICAS],
        cache_frac=levels[:, at.L_BLOCKS] / total,
        steps_count=steps,
        step_s=np.divide(flows[:, at.F_SPAN], steps, out=np.zeros(count), where=steps > 0),
        busy_frac=flows[:, at.F_DEVICE] / spans / paid,
        flop_per_s=flows[:, at.F_FLOP] / spans,
        bytes_per_s=flows[:, at.F_BYTES] / spans,
        made_tokens_per_s=flows[:, at.F_MADE] / spans,
        read_tokens_per_s=flows[:, at.F_READ] / spans,
        preemptions_count=flows[:, at.F_PREEMPTED],
    )


def checked(pools: tuple[Pool, ...], options: SimulationOptions) -> None:
    """Raise `BadPlan` where pools and options contradict each other."""
    roles = sorted(pool.role for pool in pools)
    if roles not in (["both"], ["decode", "prefill"]):
        raise BadPlan(f"simulation: pools {', '.join(roles) or 'none'}; allowed one of both, or prefill and decode")
    if roles != ["both"] and options.link_bytes_per_s is None:
        raise BadPlan("simulation: separate prefill and decode pools need link_bytes_per_s, the rate of one device")
    if roles != ["both"] and options.scaling is not None:
        raise BadPlan("simulation: scaling of separate prefill and decode pools is not modelled")
    if options.preemption == "swap" and options.swap_bytes_per_s is None:
        raise BadPlan("simulation: preemption by swapping needs swap_bytes_per_s, the rate of one device to its host")
    for pool in pools:
        if pool.replicas_count < 1:
            raise BadPlan(f"simulation: a pool of {pool.replicas_count} replicas")
        if pool.job.reads_by_encoder:
            raise BadPlan(f"simulation: {pool.job.model.id} reads by an encoder; only decoders are simulated")
