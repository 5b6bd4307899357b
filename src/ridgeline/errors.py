"""Every error that Ridgeline raises on purpose.

    RidgelineError
      UnitError                                     a quantity that cannot be read
      CatalogError   UnknownName, BadFact, MissingFact
      IntakeError    BadModelFile, BadRequests      somebody else's file that cannot be read
      ScenarioError  BadPlan
      Infeasible     OutOfMemory, NoFeasiblePlan    expected answers, exit code 3

A message says what is wrong, where (file and key path), what was found, what is allowed or nearest,
and what to do. The command line prints it in one piece and exits 2 (3 for `Infeasible`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# What `ridgeline list` can list, by the word for one of them; of others a few are named in the message.
_LISTED = {
    "device": "devices",
    "link": "links",
    "system": "systems",
    "model": "models",
    "engine": "engines",
    "software": "software",
    "source": "sources",
    "price": "prices",
    "tariff": "tariffs",
    "efficiency": "efficiency",
    "assumption": "assumptions",
    "id": "KIND",
}
_FEW = 40


class RidgelineError(Exception):
    """Base of all errors that a user can cause or must know about."""

    exit_code = 2


class UnitError(RidgelineError):
    """A quantity without a unit, with an unknown unit, or of another dimension."""


class CatalogError(RidgelineError):
    """The catalogue of facts is wrong or lacks something."""


class UnknownName(CatalogError):
    """An id that is neither an entry nor a declared alias; names the nearest, after `hint` where that says more."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "", hint: str = "") -> None:
        self.kind = kind
        self.name = name
        pool = list(known)
        self.nearest = tuple(nearest_names(name, pool))
        more = f"; {hint}" if hint else ""
        if self.nearest and not hint:
            more = f"; nearest: {', '.join(self.nearest)}"
        place = f"{where}: " if where else ""
        see = f" (see `ridgeline list {_LISTED[kind]}`)" if kind in _LISTED else ""
        if not see and len(pool) <= _FEW:
            more += f"; allowed: {', '.join(pool)}"
        super().__init__(f"{place}unknown {kind} {shown(name)}{more}{see}")


class BadFact(CatalogError):
    """A record in the catalogue that breaks the schema or its rules."""


class MissingFact(CatalogError):
    """A figure that no source gives, asked for by a model that needs it."""

    def __init__(self, fact_id: str, why: str = "") -> None:
        self.fact_id = fact_id
        reason = f" ({why})" if why else ""
        super().__init__(
            f"missing fact {fact_id}{reason}: no source in the catalogue gives it; add it with --catalog DIR"
        )


class IntakeError(RidgelineError):
    """A file from elsewhere that cannot be turned into a spec."""


class BadModelFile(IntakeError):
    """A model configuration with a missing key or of an unknown family."""


class BadRequests(IntakeError):
    """Requests (a trace file, or arrays made by hand) that cannot be: missing columns, times that go back, lengths."""


class ScenarioError(RidgelineError):
    """A scenario file or an option that cannot be understood."""


class BadPlan(ScenarioError):
    """A layout that contradicts itself, the model or the machine."""


class Infeasible(RidgelineError):
    """A well-posed question whose answer is no."""

    exit_code = 3


class OutOfMemory(Infeasible):
    """The plan needs more memory than the device has."""


class NoFeasiblePlan(Infeasible):
    """Every plan was rejected; carries the reasons with their counts."""

    def __init__(self, message: str, rejected: dict[str, int] | None = None) -> None:
        self.rejected = dict(rejected or {})
        super().__init__(message)


def shown(value: object, limit: int = 60) -> str:
    """A value as somebody wrote it, for a message; cut where it is long.

    >>> shown(True), shown(None), shown("5 parsecs")
    ('true', 'null', "'5 parsecs'")
    """
    words = {True: "true", False: "false", None: "null"}
    text = words[value] if isinstance(value, bool) or value is None else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def few(lines: Iterable[str], most: int = 20) -> list[str]:
    """The first lines of many, with how many more there are.

    >>> few(["a", "b", "c"], 2)
    ['a', 'b', 'and 1 more']
    """
    found = list(dict.fromkeys(lines))
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more"]


def nearest_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Names in `known` that look most like `name`, best first: those that differ only in case before all others.

    >>> nearest_names("Qwen3-32B", ["qwen3-8b", "qwen3-32b", "gpt-3"])
    ['qwen3-32b', 'qwen3-8b']
    """
    pool = sorted(set(known))
    same = [item for item in pool if item.lower() == name.lower()]
    lowered = {item.lower(): item for item in pool}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=limit, cutoff=0.5)
    return list(dict.fromkeys([*same, *(lowered[item] for item in close)]))[:limit]
