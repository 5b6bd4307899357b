"""Turns what the schema found into one clear message a problem: file, key path, got, allowed or nearest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from ridgeline.errors import ScenarioError, nearest_names, shown
from ridgeline.scenario.schema import Leaf, ScenarioFile, children, shape_at

Path = tuple[str | int, ...]

_MOST = 20  # problems that one message tells in full


def messages(error: ValidationError, where: str, set_paths: Sequence[Path] = ()) -> list[str]:
    """One line for each problem in `error`, in the order of the file; of very many, the first ones."""
    found = error.errors(include_url=False)
    lines = [_line(item, where, set_paths) for item in found[:_MOST]]
    return [*dict.fromkeys(lines), *("" for _ in found[_MOST:])]


def fail(lines: Iterable[str]) -> ScenarioError:
    """One error that lists all problems, the first ones of very many."""
    found = list(lines)
    if len(found) == 1:
        return ScenarioError(found[0])
    told = [f"  {line}" for line in found[:_MOST]]
    if len(found) > _MOST:
        told.append(f"  and {len(found) - _MOST} more")
    return ScenarioError(f"{len(found)} problems:\n" + "\n".join(told))


def place(where: str, path: Path, set_paths: Sequence[Path] = ()) -> str:
    """File and key path of a value, or the `--set` that gave it."""
    text = ".".join(str(part) for part in path)
    for given in set_paths:
        if path[: len(given)] == given:
            return f"--set {text}"
    return f"{where}: {text}" if text else where


def _line(item: Any, where: str, set_paths: Sequence[Path]) -> str:
    path: Path = tuple(item["loc"])
    kind = item["type"]
    if kind == "extra_forbidden":
        return _unknown_key(path, where, set_paths)
    spot = place(where, path, set_paths)
    if kind == "missing":
        return f"{spot}: is missing{_needs(path)}"
    if kind == "value_error":
        return f"{spot}: {item['ctx']['error']}"
    if kind in ("model_type", "model_attributes_type"):
        shape = shape_at(ScenarioFile, path)
        known = ", ".join(children(shape)) if shape is not None and not isinstance(shape, (Leaf, list)) else ""
        return f"{spot}: got {shown(item['input'])}, expected keys: {known}"
    if kind == "list_type":
        return f"{spot}: got {shown(item['input'])}, expected a list such as [{{system: dgx-h100, devices: 64}}]"
    if kind == "too_short":
        return f"{spot}: is empty, expected at least one entry such as {{system: dgx-h100, devices: 64}}"
    if kind == "too_long":
        return f"{spot}: too many entries, allowed at most {item['ctx']['max_length']}"
    return f"{spot}: got {shown(item.get('input'))}: {item['msg']}"


def _unknown_key(path: Path, where: str, set_paths: Sequence[Path]) -> str:
    shape = shape_at(ScenarioFile, path[:-1])
    known = list(children(shape)) if shape is not None and not isinstance(shape, (Leaf, list)) else []
    near = nearest_names(str(path[-1]), known)
    parent = ".".join(str(part) for part in path[:-1])
    spot = place(where, path[:-1], set_paths) if parent else where
    hint = f"nearest: {', '.join(near)}; " if near else ""
    return f"{spot}: unknown key {str(path[-1])!r}; {hint}allowed: {', '.join(known)}"


def _needs(path: Path) -> str:
    hints = {
        "model": "; a catalogue id (`ridgeline list models`) or a path to a config.json",
        "system": "; a catalogue id (`ridgeline list systems`)",
        "devices": "; a number, a range such as 128..512, or a list",
        "candidates": "; a list such as [{system: dgx-h100, devices: 64}]",
        "workload": "; give workload.model and workload.train or workload.serve",
        "tokens": "; how many tokens to train on, such as 1e12",
        "sequence": "; the sequence length in tokens, such as 8192",
        "global_batch": "; sequences in a step, such as 1024",
        "input": "; the input length in tokens, such as 1024",
    }
    return hints.get(str(path[-1]), "") if path else ""
