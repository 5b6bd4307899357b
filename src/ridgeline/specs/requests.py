"""Requests as arrays: when each arrives, how long it is, and which beginnings it shares with others.

A million requests are a few tens of megabytes here; a record a request would be gigabytes. The arrays are made
read-only, so that a record stays what it was checked to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ridgeline.errors import BadRequests

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def _none() -> Counts:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Requests in order of arrival.

    `arrived_s`: seconds from the start, ascending (several may come at once). `input_tokens` (1 or more) and
    `output_tokens` (0: nothing is generated) are whole. Shared beginnings, for prefix caches: request i starts with
    the pieces `prefix_ids[prefix_offsets[i] : prefix_offsets[i + 1]]` of `prefix_tokens` tokens each; an id stands for
    the content of its piece and of everything before it, so two requests share as much as their lists begin alike.
    Without shared beginnings the three arrays are empty. `label` says where they come from.

    >>> load = Requests.of([0.0, 0.5], [100, 200], [10, 20], prefixes=[[(7, 64)], [(7, 64), (8, 32)]])
    >>> load.count, load.span_s, load.prefix_of(1)
    (2, 0.5, [(7, 64), (8, 32)])
    """

    arrived_s: Floats
    input_tokens: Counts
    output_tokens: Counts
    prefix_ids: Counts = field(default_factory=_none)
    prefix_tokens: Counts = field(default_factory=_none)
    prefix_offsets: Counts = field(default_factory=_none)
    label: str = ""

    def __post_init__(self) -> None:
        for name in ("arrived_s", *_COUNTS):
            kind = np.float64 if name == "arrived_s" else np.int64
            object.__setattr__(self, name, _frozen(name, getattr(self, name), kind))
        problems = self.check()
        if problems:
            raise BadRequests(f"requests{f' of {self.label}' if self.label else ''}: {'; '.join(problems)}")

    @classmethod
    def of(
        cls,
        arrived_s: npt.ArrayLike,
        input_tokens: npt.ArrayLike,
        output_tokens: npt.ArrayLike,
        prefixes: Sequence[Sequence[tuple[int, int]]] = (),
        label: str = "",
    ) -> Requests:
        """From anything like arrays; `prefixes` as a list of (id, tokens) for each request."""
        pieces = [piece for own in prefixes for piece in own]
        offsets = np.cumsum([0, *(len(own) for own in prefixes)]) if prefixes else _none()
        return cls(
            arrived_s=np.asarray(arrived_s, dtype=np.float64),
            input_tokens=_whole("input_tokens", input_tokens),
            output_tokens=_whole("output_tokens", output_tokens),
            prefix_ids=np.array([id for id, _ in pieces], dtype=np.int64),
            prefix_tokens=np.array([tokens for _, tokens in pieces], dtype=np.int64),
            prefix_offsets=np.asarray(offsets, dtype=np.int64),
            label=label,
        )

    @property
    def count(self) -> int:
        """How many requests there are."""
        return len(self.arrived_s)

    @property
    def span_s(self) -> float:
        """From the first to the last arrival [s]."""
        return float(self.arrived_s[-1] - self.arrived_s[0]) if self.count else 0.0

    @property
    def rate_per_s(self) -> float:
        """Mean rate of arrivals: gaps over their sum (inf where all come at once)."""
        return (self.count - 1) / self.span_s if self.span_s > 0 else float("inf")

    @property
    def has_prefixes(self) -> bool:
        """Whether any request may share its beginning with another."""
        return len(self.prefix_ids) > 0

    def prefix_of(self, index: int) -> list[tuple[int, int]]:
        """The pieces (id, tokens) that request `index` begins with."""
        if not self.has_prefixes:
            return []
        part = slice(self.prefix_offsets[index], self.prefix_offsets[index + 1])
        return list(zip(self.prefix_ids[part].tolist(), self.prefix_tokens[part].tolist(), strict=True))

    def with_arrivals(self, arrived_s: Floats) -> Requests:
        """The same requests at other times (ascending)."""
        return self._with(arrived_s=arrived_s)

    def rescaled(self, rate_per_s: float) -> Requests:
        """The same requests, all gaps stretched so that the mean rate of arrivals is `rate_per_s`.

        >>> Requests.of([0, 1, 4], [1, 1, 1], [1, 1, 1]).rescaled(1.0).arrived_s.tolist()
        [0.0, 0.5, 2.0]
        """
        if not rate_per_s > 0 or self.span_s <= 0:
            raise BadRequests(f"requests: a span of {self.span_s:g} s cannot be rescaled to {rate_per_s:g} requests/s")
        first = self.arrived_s[0] if self.count else 0.0
        return self.with_arrivals((self.arrived_s - first) * (self.rate_per_s / rate_per_s))

    def first(self, count: int) -> Requests:
        """The first `count` requests."""
        offsets = self.prefix_offsets[: count + 1]
        last = int(offsets[-1]) if len(offsets) else 0
        return Requests(
            arrived_s=self.arrived_s[:count],
            input_tokens=self.input_tokens[:count],
            output_tokens=self.output_tokens[:count],
            prefix_ids=self.prefix_ids[:last],
            prefix_tokens=self.prefix_tokens[:last],
            prefix_offsets=offsets if self.has_prefixes else _none(),
            label=self.label,
        )

    def check(self) -> list[str]:
        """What is wrong with the arrays; empty where nothing is."""
        count = len(self.arrived_s)
        found = [
            f"{name} has {len(getattr(self, name))} values, arrived_s has {count}"
            for name in ("input_tokens", "output_tokens")
            if len(getattr(self, name)) != count
        ]
        if found:
            return found
        if count and not np.isfinite(self.arrived_s).all():
            found.append(f"arrived_s of request {int(np.argmin(np.isfinite(self.arrived_s)))} is not a number")
        elif count and self.arrived_s[0] < 0:
            found.append(f"the first arrival is at {self.arrived_s[0]:g} s, before the start")
        elif (back := np.diff(self.arrived_s) < 0).any():
            found.append(f"request {int(np.argmax(back)) + 1} arrives before the one ahead of it")
        for name, least in (("input_tokens", 1), ("output_tokens", 0)):
            wrong = getattr(self, name) < least
            if wrong.any():
                at = int(np.argmax(wrong))
                found.append(f"{name} of request {at} is {int(getattr(self, name)[at])}, allowed {least} or more")
        return found + self._prefix_problems(count)

    def _prefix_problems(self, count: int) -> list[str]:
        ids, tokens, offsets = self.prefix_ids, self.prefix_tokens, self.prefix_offsets
        if not len(ids) and not len(tokens):
            whole = not len(offsets) or (len(offsets) == count + 1 and not offsets.any())
            return [] if whole else ["prefix_offsets without prefix_ids"]
        if len(tokens) != len(ids):
            return [f"prefix_tokens has {len(tokens)} values, prefix_ids has {len(ids)}"]
        ends = len(offsets) == count + 1 and offsets[0] == 0 and offsets[-1] == len(ids)
        if not ends or (np.diff(offsets) < 0).any():
            return [f"prefix_offsets must ascend from 0 to {len(ids)} in {count + 1} values"]
        if (tokens < 1).any():
            return ["prefix_tokens must be 1 or more"]
        summed = np.concatenate(([0], np.cumsum(tokens)))
        longer = summed[offsets[1:]] - summed[offsets[:-1]] > self.input_tokens
        return [f"the prefix of request {int(np.argmax(longer))} is longer than its input"] if longer.any() else []

    def _with(self, **changes: Any) -> Requests:
        fields = ("arrived_s", *_COUNTS, "label")
        return Requests(**{name: changes.get(name, getattr(self, name)) for name in fields})


_COUNTS = ("input_tokens", "output_tokens", "prefix_ids", "prefix_tokens", "prefix_offsets")


def _frozen(name: str, value: Any, kind: Any) -> npt.NDArray[Any]:
    array = np.array(value, dtype=kind) if not isinstance(value, np.ndarray) or value.dtype != kind else value
    if array.ndim != 1:
        raise BadRequests(f"requests: {name} must be one list of numbers, got {array.ndim} dimensions")
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _whole(name: str, value: npt.ArrayLike) -> Counts:
    array = np.asarray(value)
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise BadRequests(f"requests: {name} must be whole numbers")
    return array.astype(np.int64)
