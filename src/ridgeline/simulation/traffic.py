"""What arrives: lengths of requests and the times between them, drawn from a passed-in generator.

Open loop: users come whatever the system does (Poisson, bursts, a recorded trace at another rate). Closed loop: so many
users send, wait for their answer, think, and send again; a slow system is then asked for less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ridgeline.core import model
from ridgeline.errors import BadRequests
from ridgeline.specs.requests import Counts, Floats, Requests


class Lengths(Protocol):
    """Draws input and output lengths of so many requests."""

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Counts, Counts]:
        """Input tokens (1 or more) and output tokens of `count` requests."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLengths:
    """Every request is of the same length."""

    input_tokens: int
    output_tokens: int

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Counts, Counts]:
        """`count` equal lengths; takes nothing from the generator."""
        return np.full(count, self.input_tokens, np.int64), np.full(count, self.output_tokens, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalLengths:
    """Input and output lengths that are log-normal, independent, with these means and coefficients of variation.

    Lengths of prompts and answers are skewed to the right in every published trace. Lengths above the largest
    (`input_most_tokens`, `output_most_tokens`) are cut to it, as engines do, which lowers the mean.
    """

    input_mean_tokens: float
    output_mean_tokens: float
    input_cv_frac: float
    output_cv_frac: float
    input_most_tokens: int
    output_most_tokens: int

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Counts, Counts]:
        """`count` pairs, whole and at least 1 (0 output stays 0)."""
        inputs = _lognormal(self.input_mean_tokens, self.input_cv_frac, count, generator)
        outputs = _lognormal(self.output_mean_tokens, self.output_cv_frac, count, generator)
        least = 1 if self.output_mean_tokens > 0 else 0
        return _whole(inputs, 1, self.input_most_tokens), _whole(outputs, least, self.output_most_tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EmpiricalLengths:
    """Pairs of input and output lengths drawn with replacement from recorded ones, so that both stay together."""

    input_tokens: Counts
    output_tokens: Counts

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Counts, Counts]:
        """`count` recorded pairs."""
        chosen = generator.integers(0, len(self.input_tokens), count)
        return self.input_tokens[chosen], self.output_tokens[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """`count` requests at a mean `rate_per_s`; `cv_frac` is the coefficient of variation of the times between them.

    1: Poisson; above: bursts (gamma gaps); below: more regular; 0: evenly spaced.
    """

    rate_per_s: float
    count: int
    lengths: Lengths
    cv_frac: float = 1.0

    def draw(self, generator: np.random.Generator) -> Requests:
        """One sample of the arrivals."""
        arrived_s = np.cumsum(gaps_s(self.rate_per_s, self.cv_frac, self.count, generator))
        inputs, outputs = self.lengths.draw(self.count, generator)
        kind = "Poisson" if self.cv_frac == 1 else f"gamma gaps, cv {self.cv_frac:g}"
        label = f"{kind} arrivals"
        return Requests(arrived_s=arrived_s, input_tokens=inputs, output_tokens=outputs, label=label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Recorded requests, with all gaps stretched to a mean rate where one is given, and cut to the first `count`."""

    requests: Requests
    rate_per_s: float | None = None
    count: int | None = None

    def draw(self, generator: np.random.Generator) -> Requests:
        """The same requests each time; takes nothing from the generator."""
        found = self.requests if self.count is None else self.requests.first(self.count)
        return found if self.rate_per_s is None else found.rescaled(self.rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """`users_count` users, each with one request under way at most; a mean `think_s` between answer and next request.

    Thinking times are exponential (0: the next request follows at once). `count` requests in all.
    """

    users_count: int
    count: int
    lengths: Lengths
    think_s: float = 0.0

    def draw(self, generator: np.random.Generator) -> tuple[Counts, Counts, Floats]:
        """Input and output lengths of the requests in the order in which they will be sent, and times thought ahead of
        each."""
        inputs, outputs = self.lengths.draw(self.count, generator)
        thought_s = generator.exponential(1.0, self.count) * self.think_s
        return inputs, outputs, thought_s


Traffic = OpenLoop | Replay | ClosedLoop


@model(id="gamma-gaps", sources=("rl-definition", "burstgpt-2024"), dimensional=False)
def gaps_s(rate_per_s: float, cv_frac: float, count: int, generator: np.random.Generator) -> Floats:
    """Times between arrivals [s]: gamma with mean 1/rate and standard deviation cv/rate.

        shape = 1 / cv^2, scale = cv^2 / rate

    A gamma law fits the gaps of recorded traffic better than an exponential one. Random, so exempt from rescaling.

    >>> gaps_s(4.0, 0.0, 2, np.random.default_rng(0)).tolist()
    [0.25, 0.25]
    """
    if cv_frac <= 0:
        return np.full(count, 1.0 / rate_per_s)
    return generator.gamma(1.0 / cv_frac**2, cv_frac**2 / rate_per_s, count)


def lengths_of(requests: Requests) -> EmpiricalLengths:
    """The lengths of recorded requests, to draw from."""
    if not requests.count:
        raise BadRequests("no recorded requests to draw lengths from")
    return EmpiricalLengths(input_tokens=requests.input_tokens, output_tokens=requests.output_tokens)


def _lognormal(mean: float, cv_frac: float, count: int, generator: np.random.Generator) -> Floats:
    """Log-normal numbers of this mean: the logarithm has variance ln(1 + cv^2) and mean ln(mean) - variance / 2."""
    if mean <= 0:
        return np.zeros(count)
    variance = math.log1p(cv_frac**2)
    return generator.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), count)


def _whole(values: Floats, least: int, most: int) -> Counts:
    return np.clip(np.rint(values), least, max(least, most)).astype(np.int64)
