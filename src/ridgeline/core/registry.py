"""The list of formulas: each physics function is filed under an id, with sources and validity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """What is known of one formula. `valid` maps a parameter to its (low, high) range of validity."""

    id: str
    function: Callable[..., Any]
    sources: tuple[str, ...]
    valid: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dimensional: bool = True
    title: str = ""


_REGISTRY: dict[str, ModelEntry] = {}


def model(
    *,
    id: str,
    sources: tuple[str, ...],
    valid: Mapping[str, tuple[float, float]] | None = None,
    dimensional: bool = True,
) -> Callable[[F], F]:
    """File a function as a model and return it unchanged.

    `dimensional=False` marks an empirical formula that does not scale with its units and so is exempt from the
    rescaling test; its docstring says why.
    """

    def file_it(function: F) -> F:
        if id in _REGISTRY and _REGISTRY[id].function.__qualname__ != function.__qualname__:
            raise ValueError(f"model id {id!r} is filed twice")
        title = (function.__doc__ or "").strip().split("\n")[0]
        _REGISTRY[id] = ModelEntry(id, function, sources, dict(valid or {}), dimensional, title)
        return function

    return file_it


def models() -> Mapping[str, ModelEntry]:
    """All formulas filed so far, by id (those of imported modules)."""
    return dict(_REGISTRY)


def out_of_range(id: str, **values: float) -> list[str]:
    """One sentence for each value outside the stated validity of the model `id`."""
    entry = _REGISTRY[id]
    found = []
    for name, value in values.items():
        if name in entry.valid:
            low, high = entry.valid[name]
            if not low <= value <= high:
                found.append(f"{id}: {name} = {value:g} outside {low:g}..{high:g}")
    return found
