"""A tree of numbers of one unit that adds up: the form of every answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

How = Literal["leaf", "sum", "max"]
# Float sums of a few hundred leaves drift by far less than this; anything above is a wrong tree.
_RELATIVE_TOLERANCE = 1e-9  # src: rl-numerics


@dataclass(frozen=True, slots=True)
class Breakdown:
    """One number, how it came about, and the parts that it is made of.

    `value` is in the SI `unit`. `how` says whether it is a leaf, the sum or the maximum of `parts`. Overlap
    is an explicit negative leaf, so a waterfall adds up and hidden and exposed time are both visible. A "max"
    node keeps the losing parts: that is the bound and the slack. `model` is the id of the formula, `uses` are
    the ids of the facts that it read.

    >>> step = total("step", "s", [leaf("compute", 2.0, "s"), leaf("hidden", -0.5, "s")])
    >>> step.value, step.find("compute").value
    (1.5, 2.0)
    """

    name: str
    value: float
    unit: str
    how: How = "leaf"
    parts: tuple[Breakdown, ...] = ()
    model: str = ""
    uses: tuple[str, ...] = ()
    note: str = ""

    def check(self) -> list[str]:
        """Names of the nodes whose value is not what their parts make; empty when the tree adds up."""
        wrong = [name for part in self.parts for name in part.check()]
        if self.how == "leaf":
            if self.parts:
                wrong.append(f"{self.name}: a leaf with parts")
            return wrong
        expected = _combine(self.how, [part.value for part in self.parts])
        if not math.isclose(self.value, expected, rel_tol=_RELATIVE_TOLERANCE, abs_tol=1e-15):  # src: rl-numerics
            wrong.append(f"{self.name}: {self.value!r} is not the {self.how} {expected!r} of its parts")
        if any(part.unit != self.unit for part in self.parts):
            wrong.append(f"{self.name}: parts in another unit than {self.unit}")
        return wrong

    def walk(self) -> Iterator[Breakdown]:
        """This node and everything under it, depth first."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def find(self, name: str) -> Breakdown:
        """The first node called `name`; KeyError where there is none."""
        for node in self.walk():
            if node.name == name:
                return node
        raise KeyError(name)

    def value_of(self, name: str, default: float = 0.0) -> float:
        """The sum of all nodes called `name`, or `default` where there is none."""
        values = [node.value for node in self.walk() if node.name == name]
        return sum(values) if values else default

    def facts(self) -> tuple[str, ...]:
        """Ids of all facts used anywhere in the tree, in order of first use."""
        return tuple(dict.fromkeys(fact for node in self.walk() for fact in node.uses))

    def models(self) -> tuple[str, ...]:
        """Ids of all formulas used anywhere in the tree, in order of first use."""
        return tuple(dict.fromkeys(node.model for node in self.walk() if node.model))

    def scaled(self, factor: float, name: str = "") -> Breakdown:
        """The same tree with every value multiplied by `factor` (>= 0, so that a maximum stays one)."""
        parts = tuple(part.scaled(factor) for part in self.parts)
        return Breakdown(
            name or self.name, self.value * factor, self.unit, self.how, parts, self.model, self.uses, self.note
        )

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain data, for `--json`, page and report."""
        data: dict[str, Any] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.parts:
            data["how"] = self.how
            data["parts"] = [part.to_dict() for part in self.parts]
        for key, content in (("model", self.model), ("uses", list(self.uses)), ("note", self.note)):
            if content:
                data[key] = content
        return data


def leaf(name: str, value: float, unit: str, *, model: str = "", uses: Sequence[str] = (), note: str = "") -> Breakdown:
    """A number without parts."""
    return Breakdown(name, float(value), unit, "leaf", (), model, tuple(uses), note)


def total(name: str, unit: str, parts: Sequence[Breakdown], *, model: str = "", note: str = "") -> Breakdown:
    """The sum of `parts`."""
    value = _combine("sum", [part.value for part in parts])
    return Breakdown(name, value, unit, "sum", tuple(parts), model, (), note)


def largest(name: str, unit: str, parts: Sequence[Breakdown], *, model: str = "", note: str = "") -> Breakdown:
    """The maximum of `parts`; the losers stay visible as slack."""
    value = _combine("max", [part.value for part in parts])
    return Breakdown(name, value, unit, "max", tuple(parts), model, (), note)


def _combine(how: How, values: list[float]) -> float:
    if how == "max":
        return max(values) if values else 0.0
    return math.fsum(values)
