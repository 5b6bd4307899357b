"""What arrives in a simulation, as the scenario says it: drawn, replayed, or users in a closed loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ridgeline.core import Note
from ridgeline.errors import ScenarioError
from ridgeline.intake import Trace
from ridgeline.scenario.load import Scenario
from ridgeline.scenario.schema import ScenarioFile, ServeFile
from ridgeline.simulation.traffic import (
    ClosedLoop,
    FixedLengths,
    Lengths,
    LognormalLengths,
    OpenLoop,
    Replay,
    Traffic,
    lengths_of,
)

DEFAULT_REQUESTS = 10_000
_TURNS = 20  # requests of each user of a closed loop, at least
_MOST_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The traffic, in words and as a recipe. `users_from_room`: as many users as the system takes (maximum load)."""

    traffic: Traffic
    text: str
    requests_count: int
    users_from_room: bool = False
    notes: tuple[Note, ...] = ()

    @property
    def random(self) -> bool:
        """Whether another seed gives other requests."""
        return not isinstance(self.traffic, Replay)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"text": self.text, "requests": self.requests_count}


def require_serve(scenario: Scenario) -> ServeFile:
    """`workload.serve`, or `ScenarioError`."""
    serve = scenario.file.workload.serve
    if serve is None:
        raise ScenarioError(f"{scenario.place('workload')}: has no `serve`; training steps are not simulated")
    return serve


def with_users(loop: ClosedLoop, users_count: int, asked: int | None) -> ClosedLoop:
    """The loop with so many users, and enough requests for each where their number is not `asked` for."""
    count = loop.count if asked is not None else max(loop.count, _TURNS * users_count)
    return replace(loop, users_count=users_count, count=count)


def users_of(traffic: Traffic) -> int:
    """Users of a closed loop; 0 where requests come whatever the system does."""
    return min(traffic.users_count, traffic.count) if isinstance(traffic, ClosedLoop) else 0


def traffic_of(file: ScenarioFile, trace: Trace | None, longest_tokens: int | None = None) -> Drawn:
    """The traffic of a scenario with `workload.serve`; drawn lengths stay below `longest_tokens`."""
    serve, asked = file.workload.serve, file.simulate.requests
    if serve is None:
        raise ScenarioError("workload: has no `serve`")
    notes = list(trace.notes) if trace is not None else []
    replayed = trace is not None and trace.timed and serve.concurrency is None and serve.traffic.cv is None
    if trace is not None and replayed:
        count = trace.requests.count if asked is None else min(asked, trace.requests.count)
        if asked is not None and asked > trace.requests.count:
            notes.append(Note("hint", f"the trace has {trace.requests.count:,} requests, {asked:,} were asked for"))
        at_once = trace.requests.span_s <= 0
        if at_once and serve.rate is not None:
            told = f"all requests of {trace.requests.label} arrive at once, which no rate can stretch"
            raise ScenarioError(f"workload.serve.rate: {told}; leave the rate out, or give traffic.cv to draw arrivals")
        own = at_once or abs((serve.rate or 0.0) / trace.requests.rate_per_s - 1.0) < 1e-9
        replay = Replay(requests=trace.requests, rate_per_s=None if own else serve.rate, count=count)
        how = (
            "at once" if at_once else f"{trace.requests.rate_per_s:.4g}/s" if own else f"rescaled to {serve.rate:.4g}/s"
        )
        text = f"{count:,} requests of {trace.requests.label}, {how}"
        return Drawn(traffic=replay, text=text, requests_count=count, notes=tuple(notes))
    count = max(DEFAULT_REQUESTS, _TURNS * (serve.concurrency or 0)) if asked is None else asked
    lengths, words = _lengths(trace, serve, longest_tokens or _MOST_TOKENS)
    notes += _unused(serve)
    if serve.rate is not None:
        cv = 1.0 if serve.traffic.cv is None else serve.traffic.cv
        traffic: Traffic = OpenLoop(rate_per_s=serve.rate, count=count, lengths=lengths, cv_frac=cv)
        kind = "Poisson arrivals" if cv == 1 else f"arrivals with cv {cv:g}"
        text = f"{kind}, {serve.rate:.4g}/s, {words}"
        return Drawn(traffic=traffic, text=text, requests_count=count, notes=tuple(notes))
    think_s = serve.traffic.think or 0.0
    users = serve.concurrency or 1
    thinking = f" thinking {think_s:g} s between requests" if think_s else ""
    text = f"{users:,} users{thinking}, {words}" if serve.concurrency else f"as many users as fit, {words}"
    return Drawn(
        traffic=ClosedLoop(users_count=users, count=count, lengths=lengths, think_s=think_s),
        text=text,
        requests_count=count,
        users_from_room=serve.concurrency is None,
        notes=tuple(notes),
    )


def _lengths(trace: Trace | None, serve: ServeFile, longest: int) -> tuple[Lengths, str]:
    """The law of lengths, and what to call it."""
    if trace is not None:
        return lengths_of(trace.requests), f"lengths drawn from {trace.requests.label}"
    words = f"{serve.input:,} tokens in, {serve.output:,} out"
    traffic = serve.traffic
    if traffic.input_cv is None and traffic.output_cv is None:
        return FixedLengths(input_tokens=serve.input, output_tokens=serve.output), words
    spread = (traffic.input_cv or 0.0, traffic.output_cv or 0.0)
    lengths = LognormalLengths(
        input_mean_tokens=serve.input,
        output_mean_tokens=serve.output,
        input_cv_frac=spread[0],
        output_cv_frac=spread[1],
        input_most_tokens=max(1, longest - serve.output),
        output_most_tokens=max(1, longest - serve.input),
    )
    return lengths, f"{words} on average (log-normal, cv {spread[0]:g} and {spread[1]:g})"


def _unused(serve: ServeFile) -> Iterator[Note]:
    if serve.rate is None and serve.concurrency is None:
        yield Note("fill", "neither rate nor concurrency: as many users as the closed form lets run at once send again")
