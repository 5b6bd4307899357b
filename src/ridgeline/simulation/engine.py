"""Request by request: an engine, its replicas and their router under the requests that come.

`simulate_serving(job, requests)` runs what `serving.estimate_serving` says in closed form, with the same steps, the
same capacity and the same engine facts, but with every request's own lengths and time of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ridgeline.des.compiled import can_compile, is_compiled, is_kept, machine_code
from ridgeline.errors import BadPlan
from ridgeline.serving.job import ServingJob
from ridgeline.simulation.cluster import Trace
from ridgeline.simulation.engine_limits import UNLIMITED, ReplicaLimits, read_tokens, replica_limits
from ridgeline.simulation.engine_world import Part, build, checked, read
from ridgeline.simulation.loop import run
from ridgeline.simulation.loop_layout import BOTH, PREFILL
from ridgeline.simulation.options import Pool, SimulationOptions, Users, tokens_of_a_step
from ridgeline.simulation.steps import Reach, StepTable, draft_values, head_values, step_table, with_speculation
from ridgeline.specs.requests import Requests

# Tokens and sequences up to which steps are tabulated; times of larger ones continue in a straight line.
_LARGEST_STEP = 131072  # src: rl-numerics
# Requests from which machine code pays: where an earlier process kept it, and where it has to be made.
_MANY_KEPT, _MANY_NEW = 5_000, 200_000  # src: rl-numerics


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A simulation with its tables of step times, ready to run (any number of times, each from the start)."""

    parts: tuple[Part, ...]
    requests: Requests
    options: SimulationOptions
    users: Users | None

    def run(self, compiled: bool | None = None) -> Trace:
        """Simulate to the last answer. The same input gives the same bytes, compiled or not.

        `compiled`: by machine code (None: where numba is installed and it is quicker, because the code is loaded, or
        kept by an earlier process and the requests are many, or so many that compiling pays).
        """
        if compiled is None:
            compiled = can_compile() and (
                is_compiled(run) or self.requests.count >= (_MANY_KEPT if is_kept(run) else _MANY_NEW)
            )
        world = build(self.parts, self.requests, self.options, self.users, compiled)
        loop = machine_code(run) if compiled else run
        loop(world.x, world.n, BOTH if len(self.parts) == 1 else PREFILL)
        first_s = float(self.requests.arrived_s[0]) if self.requests.count and self.users is None else 0.0
        return read(world, self.parts, self.requests, first_s)

    def with_requests(self, requests: Requests) -> Prepared:
        """The same engines under other requests of like lengths: limits and tables stay."""
        parts = tuple(
            Part(
                pool=part.pool,
                limits=part.limits,
                table=part.table,
                read_tokens=read_tokens(part.pool.job, requests),
                policy=part.policy,
                reserve=part.reserve,
                transfer_s=part.transfer_s,
                swap_s=part.swap_s,
            )
            for part in self.parts
        )
        return Prepared(parts=parts, requests=requests, options=self.options, users=self.users)


def simulate_serving(
    job: ServingJob, requests: Requests, options: SimulationOptions | None = None, users: Users | None = None
) -> Trace:
    """Simulate `job` (all its replicas, prompts and answers on the same devices) under `requests`.

    With `users` the arrivals in `requests` mean nothing: each user sends the next request in the list when it has
    thought. Raises `OutOfMemory` where a request of mean length does not fit; longer ones that cannot fit are refused
    and marked. Does not model: the time of tokenizers and networks, cuts of requests by their clients, stages of a
    pipeline out of step, uneven data-parallel groups.

    >>> from ridgeline.catalog import load_catalog
    >>> from ridgeline.intake import load_model
    >>> from ridgeline.specs import Load, ServingPlan
    >>> catalog = load_catalog(plugins=False)
    >>> system = catalog.system("dgx-a100")
    >>> job = ServingJob(model=load_model("llama-2-7b", catalog), plan=ServingPlan(), system=system,
    ...                  calibration=catalog.calibration(system.chip.id), engine=catalog.engine("vllm"),
    ...                  load=Load(input_tokens=150, output_tokens=15))
    >>> trace = simulate_serving(job, Requests.of([0.0, 0.1], [100, 200], [10, 20]))
    >>> bool((trace.first_token_s < trace.finished_s).all()), trace.steps_count
    (True, 30.0)
    """
    return prepare((Pool(job=job, replicas_count=job.plan.replica_count),), requests, options, users).run()


def prepare(
    pools: tuple[Pool, ...], requests: Requests, options: SimulationOptions | None = None, users: Users | None = None
) -> Prepared:
    """Check `pools` and tabulate their steps. One pool of role "both", or one each of "prefill" and "decode"."""
    options = options or SimulationOptions()
    checked(pools, options)
    if not requests.count:
        raise BadPlan("simulation: no requests")
    if users is not None and (users.users_count < 1 or len(users.thought_s) != requests.count):
        raise BadPlan(f"simulation: {users.users_count} users with {len(users.thought_s)} thinking times")
    ordered = sorted(pools, key=lambda pool: pool.role == "decode")
    parts = tuple(_part(pool, requests, options) for pool in ordered)
    return Prepared(parts=parts, requests=requests, options=options, users=users)


def prepare_table(
    table: StepTable,
    job: ServingJob,
    limits: ReplicaLimits,
    requests: Requests,
    policy: str = "chunked",
    replicas_count: int = 1,
    options: SimulationOptions | None = None,
    users: Users | None = None,
) -> Prepared:
    """A simulation with step times and limits of one's own (queues of theory, measured steps); `job` lends its name."""
    pool = Pool(job=job, replicas_count=replicas_count)
    part = Part(
        pool=pool,
        limits=limits,
        table=table,
        read_tokens=requests.input_tokens,
        policy=policy,
        reserve=policy == "static",
    )
    return Prepared(parts=(part,), requests=requests, options=options or SimulationOptions(), users=users)


def _part(pool: Pool, requests: Requests, options: SimulationOptions) -> Part:
    job = pool.job
    limits = replica_limits(job, requests)
    policy = policy_of(job, options)
    table = step_table(job, reach_of(job, limits, requests, options))
    return Part(
        pool=pool,
        limits=limits,
        table=_speculating(table, job, options) if pool.role != "prefill" else table,
        read_tokens=read_tokens(job, requests),
        policy=policy,
        reserve=job.engine.admission == "no-evict" or policy == "static",
        transfer_s=limits.block_bytes / limits.block_tokens / (options.link_bytes_per_s or float("inf")),
        swap_s=limits.block_bytes / (options.swap_bytes_per_s or float("inf")),
    )


def policy_of(job: ServingJob, options: SimulationOptions) -> str:
    """How the engine of `job` puts steps together: "chunked", "prompts-first" or "static"."""
    if options.batching != "engine":
        return options.batching
    if job.load.static_batch or job.engine.batching != "continuous":
        return "static"
    return "chunked" if job.engine.mixed_steps else "prompts-first"


def reach_of(job: ServingJob, limits: ReplicaLimits, requests: Requests, options: SimulationOptions) -> Reach:
    """How far tables of step times have to go for `requests`."""
    whole = read_tokens(job, requests) + requests.output_tokens
    longest = float(np.max(whole))
    width = 1.0 + (options.speculation.draft_tokens if options.speculation else 0)
    prompts = longest if limits.chunk_tokens >= UNLIMITED else min(longest, float(limits.chunk_tokens))
    sequences = min(limits.sequences_count, _LARGEST_STEP) * width
    budget = min(float(limits.step_tokens), _LARGEST_STEP, float(np.sum(whole)))
    return Reach(
        sequences_count=sequences,
        step_tokens=max(budget, prompts, sequences),
        prompt_tokens=prompts,
        context_tokens=longest,
    )


def _speculating(table: StepTable, job: ServingJob, options: SimulationOptions) -> StepTable:
    """The table of an engine that proposes tokens ahead."""
    how = options.speculation
    if how is None:
        return table
    if how.draft_tokens < 1 or not 0.0 <= how.accepted_frac <= 1.0:
        raise BadPlan(f"simulation: speculation of {how.draft_tokens} tokens accepted at {how.accepted_frac:g}")
    passes = float(how.draft_tokens)
    if how.draft is not None:
        values = draft_values(how.draft, table, passes)
    else:
        values = head_values(table, how.layers_frac, passes)
    return with_speculation(table, 1.0 + passes, tokens_of_a_step(passes, how.accepted_frac), values)
