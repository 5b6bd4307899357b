"""Where the state of a simulation lies: one sequence of floats `x`, one of whole numbers `n`, and names of the places.

The loop is compiled where numba is installed, so its state is sequences and not objects; two of them, because each
argument of a compiled function costs time to compile and to pass. In this order: figures of the whole, step times
(`loop_law`), replicas, requests; then in `n` heaps of sequences that end, phases of blocks, codes of events, pieces of
shared beginnings, and in `x` times of events, state over time, times between tokens. A replica `r` lies at
`n[N_REPLICA] + r * REPLICA_AT` and `n[X_REPLICA] + r * REPLICA`, a request likewise.
"""

from __future__ import annotations

# Figures of operations that add up in a step: time; seconds of the matrix units at peak rate, plain and times the clock
# share they keep; time of kernels that they bound; kernels; operations; bytes.
CHANNELS = ("time_s", "busy_s", "kept_s", "bound_s", "launches", "flop", "bytes")
NONE = -1
# A request: floats, then whole numbers.
ARRIVED, FIRST, FINISHED, SINCE, THINK, STARTED, REQUEST = range(7)  # src: rl-numerics
(
    INPUT,
    OUTPUT,
    MADE,  # tokens made before it began to decode this time
    NEED,  # tokens to read when it is let in
    LEFT,  # of those, not read yet
    NEXT,
    PREVIOUS,
    START,  # step of its replica at which it began to decode
    PHASE,
    CONTEXT,  # cached tokens when it begins to decode
    BLOCKS,  # blocks of its own then
    SHARED,  # pieces that it shares
    PREEMPTED,
    HOME,
    PIECE,  # place of its first piece
    PIECES,
    CACHED,  # tokens found in the prefix cache
    DECODES,
    REQUEST_AT,
) = range(19)  # src: rl-numerics
# A replica: floats. Flows of the run come last, in the order of the bins.
(
    RUN_START,
    RUN_END,
    RUN_FIRST,
    RUN_SLOPE,
    CONTEXT_SUM,
    LAST_END,
    EXTRA,
    LINK_FREE,
    READ,
    PAIRS,
    FRESH_SUM,
    LIVE,  # 1 where all that a run makes counts, 0 where finished sequences are computed on
    READY,
    FLOWS,
) = range(14)  # src: rl-numerics
# What a bin holds besides levels: steps, their time, device time, operations, bytes, tokens made and read, preemptions.
F_STEPS, F_SPAN, F_DEVICE, F_FLOP, F_BYTES, F_MADE, F_READ, F_PREEMPTED, FLOWS_COUNT = range(9)  # src: rl-numerics
REPLICA = FLOWS + FLOWS_COUNT
# A replica: whole numbers.
(
    KIND,
    RUN_COUNT,
    DECODING,
    STEP,
    FREE,
    TOTAL,
    HEAD,
    TAIL,
    WAITING,
    LAST,
    RUNNING,
    PARTIAL,
    PROMPTS,
    DONE_HEAD,
    DONE_TAIL,
    HEAPED,
    HEAP_AT,
    PHASE_AT,
    PERIOD,
    FRESH,
    EVICTABLE,
    OLDEST,
    NEWEST,
    PIECE_AT,
    LAW,
    ROLE,
    ACTIVE,
    LIMIT,
    BUDGET,
    CHUNK,
    BLOCK,
    FIXED,
    POLICY,
    RESERVE,
    SWAP,
    PADDED,
    BATCH_LEFT,
    BATCH_END,
    HELD_BACK,  # blocks that the next step needs
    REPLICA_AT,
) = range(40)  # src: rl-numerics
IDLE, MIXED, READING, DECODE = range(4)  # src: rl-numerics
CHUNKED, PROMPTS_FIRST, STATIC = range(3)  # src: rl-numerics
BOTH, PREFILL, DECODER = range(3)  # src: rl-numerics
OFF, ON, STARTING = range(3)  # src: rl-numerics
# Levels of a bin: waiting, running, blocks in use, replicas that are paid for.
L_WAITING, L_RUNNING, L_BLOCKS, L_REPLICAS, LEVELS_COUNT = range(5)  # src: rl-numerics
BIN = 2 * LEVELS_COUNT + FLOWS_COUNT
# Figures of the whole: floats, then whole numbers.
(
    TRANSFER_S,
    LINK_LATENCY,
    SWAP_S,
    IMBALANCE_FRAC,
    TARGET,
    CHECK_S,
    STARTUP_S,
    IDLE_S,
    CALM_SINCE,
    SETUP,
) = range(10)  # src: rl-numerics
(
    REQUESTS,
    REPLICAS,
    ISSUED,
    CLOSED,
    UNFINISHED,
    PENDING,
    ROUTING,
    TURN,
    PIECES_COUNT,
    BINS,
    GAPS,
    SCALING,
    LEAST,
    MOST,
    IMBALANCE_COUNT,
    REFUSED,
    RUNS,
    N_REPLICA,
    N_REQUEST,
    N_CODES,
    N_PIECES,
    X_REPLICA,
    X_REQUEST,
    X_TIMES,
    X_BINS,
    X_GAPS,
    SETUP_AT,
) = range(27)  # src: rl-numerics
ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE = range(3)  # src: rl-numerics
# A piece: blocks of its own and blocks up to its end; on each replica: held, references, older and newer neighbour.
P_BLOCKS, P_END, PIECE_SIZE = range(3)  # src: rl-numerics
P_HELD, P_REFS, P_OLDER, P_NEWER, COPY_SIZE = range(5)  # src: rl-numerics
