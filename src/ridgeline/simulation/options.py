"""What a simulation may be asked to do: batching, memory, speculation, routing, scaling, users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ridgeline.core import model as formula
from ridgeline.serving.job import ServingJob
from ridgeline.specs.requests import Floats

Batching = Literal["engine", "chunked", "prompts-first", "static"]
Routing = Literal["round-robin", "least-loaded", "prefix-aware"]
Role = Literal["both", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Tokens are proposed ahead and verified together.

    `draft_tokens` are proposed in each step, each of them accepted with chance `accepted_frac` if those before it were.
    They come from a model of its own (`draft`, a job on the same devices) or from extra layers of the model itself,
    `layers_frac` of its layers with its head for each token (multi-token prediction). Verification sends
    1 + `draft_tokens` tokens a sequence through the matrices and reads the cache once.
    """

    draft_tokens: int
    accepted_frac: float
    draft: ServingJob | None = None
    layers_frac: float = 0.0


@formula(id="speculative-tokens", sources=("leviathan-2023",), valid={"accepted_frac": (0, 1)})
def tokens_of_a_step(draft_tokens: float, accepted_frac: float) -> float:
    """Tokens that a step yields on average when `draft_tokens` are verified: (1 - a^(k + 1)) / (1 - a).

    The first rejected token is replaced by the model's own, so that a step yields one at least. Assumes that
    acceptances are independent.

    >>> round(tokens_of_a_step(4, 0.8), 4), tokens_of_a_step(4, 1.0), tokens_of_a_step(4, 0.0)
    (3.3616, 5.0, 1.0)
    """
    if accepted_frac >= 1.0:
        return draft_tokens + 1.0
    tokens: float = (1.0 - accepted_frac ** (draft_tokens + 1.0)) / (1.0 - accepted_frac)
    return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Replicas come and go with the load, by the rule of Kubernetes' horizontal autoscaler.

    Every `check_s` the number of waiting and running requests over `target_count` a replica, rounded up, is compared
    with the replicas at hand; new ones serve after `startup_s` (weights loaded, graphs captured); a replica that has
    nothing to do is given back when fewer have sufficed for `calm_s`. Between `least_count` and the replicas of the
    pool.
    """

    target_count: float
    startup_s: float
    least_count: int = 1
    check_s: float = 15.0  # src: kubernetes-hpa
    calm_s: float = 300.0  # src: kubernetes-hpa


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Users:
    """A closed loop: `users_count` users, each of whom sends the next request `thought_s` after the answer to the last.

    `thought_s`: one value for each request, in the order in which they are sent.
    """

    users_count: int
    thought_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How engines and the router behave beyond what engine profile and plan say.

    `batching` "engine": as the profile says (chunked where it mixes prompts and decoding, else prompts first; static
    where it or the load is). `preemption`: blocks of a sequence that has to yield are computed again, or copied to the
    host and back at `swap_bytes_per_s` of a device. `prefix_cache`: beginnings with known ids are kept and shared.
    Prefix-aware routing goes to the replica with the longest cached beginning unless the fullest replica has
    `imbalance_count` requests more than the emptiest and `imbalance_frac` times as many. `link_bytes_per_s` (of one
    device) and `link_latency_s`: the way of a cache from a prefill to a decode replica. `intervals_count`: how many
    intervals the state over time is told in.
    """

    batching: Batching = "engine"
    preemption: Literal["recompute", "swap"] = "recompute"
    swap_bytes_per_s: float | None = None
    prefix_cache: bool = True
    routing: Routing = "least-loaded"
    imbalance_count: int = 64  # src: smg-cache-aware
    imbalance_frac: float = 1.5  # src: smg-cache-aware
    speculation: Speculation | None = None
    scaling: Scaling | None = None
    link_bytes_per_s: float | None = None
    link_latency_s: float = 0.0
    intervals_count: int = 1024  # src: rl-numerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Equal replicas: `job` says of what, `role` what for ("both": whole requests)."""

    job: ServingJob
    replicas_count: int = 1
    role: Role = "both"
