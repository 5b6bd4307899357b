"""`--set path=value`: changes to a scenario from the command line or the Python call.

A path names keys joined by dots; entries of a list by number, `candidates.0.devices` or `candidates[0].devices`.
The value is read as YAML, so `--set site.pue=1.3`, `--set "limits.budget=2e6 USD"` and
`--set "candidates=[{system: dgx-h100, devices: 64}]"` do what they say.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ridgeline.errors import ScenarioError, nearest_names, shown
from ridgeline.scenario.reading import parse_value

_INDEX = re.compile(r"\[([0-9]+)\]")
_NUMBER = re.compile(r"[0-9]{1,9}")

Path = tuple[str | int, ...]


def parse_setting(text: str) -> tuple[Path, Any]:
    """`path=value` as a key path and a value.

    >>> parse_setting("candidates[0].devices=256")
    (('candidates', 0, 'devices'), 256)
    """
    path_text, sign, value_text = text.partition("=")
    path_text = path_text.strip()
    if not sign or not path_text:
        raise ScenarioError(f"--set {text!r}: expected path=value, for example --set site.pue=1.3")
    dotted = _INDEX.sub(r".\1", path_text)
    parts: list[str | int] = []
    for part in dotted.split("."):
        if not part:
            raise ScenarioError(f"--set {text!r}: the path {path_text!r} has an empty part")
        parts.append(int(part) if _NUMBER.fullmatch(part) else part)
    return tuple(parts), parse_value(value_text, f"--set {path_text}")


def path_text(path: Path) -> str:
    """A key path as it is written.

    >>> path_text(("candidates", 0, "devices"))
    'candidates.0.devices'
    """
    return ".".join(str(part) for part in path)


def apply_settings(data: Mapping[str, Any], settings: Sequence[str], shape: Any) -> tuple[dict[str, Any], list[Path]]:
    """`data` with all settings applied in order, and the paths that were set.

    `shape` is the schema class: `shape_children(shape, path)` says which keys may stand at a place, so that a path
    that does not exist fails here with the nearest keys. A value of null removes the key.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(data))
    paths: list[Path] = []
    for text in settings:
        path, value = parse_setting(text)
        _check_path(path, shape)
        _assign(changed, path, value)
        paths.append(path)
    return changed, paths


def _check_path(path: Path, shape: Any) -> None:
    from ridgeline.scenario.schema import Leaf, children

    here = shape
    for depth, part in enumerate(path):
        done = path_text(path[:depth])
        place = f"--set {path_text(path)}: "
        if isinstance(here, Leaf):
            raise ScenarioError(f"{place}{done} is a single value, it has no {str(part)!r} inside")
        if isinstance(here, list):
            if not isinstance(part, int):
                raise ScenarioError(f"{place}{done} is a list; write {done}.0 for its first entry")
            here = here[0]
            continue
        known = children(here)
        if part not in known:
            near = nearest_names(str(part), known)
            hint = f"nearest: {', '.join(near)}" if near else f"allowed: {', '.join(known)}"
            raise ScenarioError(f"{place}unknown key {str(part)!r}{' in ' + done if done else ''}; {hint}")
        here = known[str(part)]


def _assign(data: dict[str, Any], path: Path, value: Any) -> None:
    here: Any = data
    for depth, part in enumerate(path[:-1]):
        here = _step(here, part, path, depth)
    last = path[-1]
    if isinstance(last, int):
        _check_index(here, last, path, len(path) - 1)
        here[last] = value
    elif value is None:
        here.pop(last, None)
    else:
        here[last] = value


def _step(here: Any, part: str | int, path: Path, depth: int) -> Any:
    follows_index = isinstance(path[depth + 1], int)
    if isinstance(part, int):
        _check_index(here, part, path, depth)
        nested = here[part]
    else:
        nested = here.get(part)
    if nested is None:
        if follows_index:
            raise ScenarioError(f"--set {path_text(path)}: the scenario has no {path_text(path[: depth + 1])} yet")
        nested = here[part] = {}
    if not isinstance(nested, list if follows_index else dict):
        raise ScenarioError(
            f"--set {path_text(path)}: {path_text(path[: depth + 1])} in the file is {shown(nested)}, "
            f"expected {'a list' if follows_index else 'keys'}"
        )
    return nested


def _check_index(here: Any, index: int, path: Path, depth: int) -> None:
    if index >= len(here):
        place = path_text(path[:depth])
        known = f"allowed 0 to {len(here) - 1}" if len(here) > 1 else "allowed 0" if here else "none allowed"
        entries = "1 entry" if len(here) == 1 else f"{len(here)} entries"
        raise ScenarioError(f"--set {path_text(path)}: {place} has {entries}, {known}")
