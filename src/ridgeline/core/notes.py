"""Typed remarks that travel with an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["assumed", "secondary", "out-of-range", "missing", "fill", "not-modelled", "hint"]
KINDS: tuple[Kind, ...] = ("assumed", "secondary", "out-of-range", "missing", "fill", "not-modelled", "hint")


@dataclass(frozen=True, slots=True)
class Note:
    """One remark: its kind, a sentence, and the facts that it is about.

    `assumed` and `secondary`: the answer leans on such a fact. `out-of-range`: a formula was used outside its
    stated validity. `missing`: a figure is not known and something was left out for it. `fill`: the input did
    not say and the documented default was taken. `not-modelled`: an effect that Ridgeline leaves out.
    """

    kind: Kind
    text: str
    facts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"kind": self.kind, "text": self.text, "facts": list(self.facts)}


def merge(*groups: Iterable[Note]) -> tuple[Note, ...]:
    """All notes once, in order of kind, then of appearance."""
    seen = dict.fromkeys(note for group in groups for note in group)
    return tuple(sorted(seen, key=lambda note: KINDS.index(note.kind)))
