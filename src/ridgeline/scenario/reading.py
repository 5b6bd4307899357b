"""Reads a scenario file into plain data, strictly: no duplicate keys, no aliases, no tags, text only.

YAML allows a ten-line file to expand into gigabytes through aliases, silently keeps the last of two equal keys, and
turns broken files into stack traces. Everything of that kind ends here as one `ScenarioError` that names the file,
the line and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ridgeline.errors import ScenarioError

MAX_FILE_BYTES = 1_000_000
MAX_DEPTH = 20


# What counts as a number. YAML 1.1 also reads 0100 as 64, 1:30 as 90 and 2024-01-31 as a date; here they stay text,
# which the unit parser reads as people do, or refuses.
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9_]*)$")
_DECIMAL = re.compile(
    r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
_KEPT_TAGS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:bool")


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML without aliases, tags, merge keys and duplicate keys; keys are text, numbers decimal."""

    _depth = 0

    def next_event(self) -> Any:
        """The event ahead (untyped in PyYAML)."""
        return self.peek_event()  # type: ignore[no-untyped-call]

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node; aliases and deep nesting end here."""
        event = self.next_event()
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            problem = "aliases (*name) are not taken in a scenario; write the value out"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem=f"YAML tags are not taken: {event.tag!r}", problem_mark=mark)
        if self._depth > MAX_DEPTH:
            problem = f"nested deeper than {MAX_DEPTH} levels"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Keys stay text whatever YAML 1.1 makes of them (`on`, `1`, `null`)."""
        lines: dict[str, int] = {}
        data: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            mark: Any = key_node.start_mark
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "<<":
                raise yaml.MarkedYAMLError(problem="a key must be a plain word", problem_mark=mark)
            key = key_node.value
            if key in lines:
                problem = f"key {key!r} is given twice (first in line {lines[key]})"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
            lines[key] = mark.line + 1
            try:
                data[key] = self.construct_object(value_node, deep=True)
            except ValueError as error:  # a number of thousands of digits
                raise yaml.MarkedYAMLError(problem=_unreadable(error), problem_mark=value_node.start_mark) from None
        return data


def _mapping(loader: _StrictLoader, node: Any) -> dict[Any, Any]:
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_StrictLoader.yaml_implicit_resolvers = {
    first: [item for item in items if item[0] in _KEPT_TAGS]
    for first, items in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:int", _WHOLE, list("-+0123456789"))
_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", _DECIMAL, list("-+0123456789."))


def read_mapping(path: str | Path) -> dict[str, Any]:
    """The mapping in the YAML (or JSON) file at `path`; `ScenarioError` for anything else."""
    where = str(path)
    return parse_mapping(_read_text(Path(path)), where)


def parse_mapping(text: str, where: str) -> dict[str, Any]:
    """The mapping written in `text`; messages start with `where`.

    >>> parse_mapping("site: {pue: 1.2}", "s.yaml")
    {'site': {'pue': 1.2}}
    """
    data = parse_value(text, where)
    if data is None:
        raise ScenarioError(f"{where}: is empty; a scenario needs at least `workload` and `candidates`")
    if not isinstance(data, Mapping):
        raise ScenarioError(f"{where}: holds {_kind(data)}, expected keys such as `workload:` and `candidates:`")
    return dict(data)


def parse_value(text: str, where: str) -> Any:
    """Any YAML value, read as strictly as a scenario (also used for `--set path=value`)."""
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.MarkedYAMLError as error:
        raise ScenarioError(f"{where}{_place(error)}: {_reason(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ScenarioError(f"{where} line {line}: not valid YAML: {_first_line(error)}") from None
    except yaml.YAMLError as error:
        raise ScenarioError(f"{where}: not valid YAML: {_first_line(error)}") from None
    except RecursionError:
        raise ScenarioError(f"{where}: nested too deeply (more than {MAX_DEPTH} levels)") from None
    except ValueError as error:
        raise ScenarioError(f"{where}: {_unreadable(error)}") from None


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise ScenarioError(f"{path}: is a directory, expected a scenario file (see examples/train-70b.yaml)")
        if not path.exists():
            raise ScenarioError(f"{path}: no such file{_similar(path)}")
        if not path.is_file():
            raise ScenarioError(f"{path}: is not a regular file")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ScenarioError(f"{path}: {size:,} bytes, a scenario may have at most {MAX_FILE_BYTES:,}")
        raw = path.read_bytes()
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a path with a zero byte
        raise ScenarioError(f"{str(path)!r}: not a file name: {error}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: is not UTF-8 text (byte {error.start} is {raw[error.start]:#04x})") from None
    if "\0" in text:
        raise ScenarioError(f"{path}: is a binary file, expected a scenario in YAML")
    return text


def _similar(path: Path) -> str:
    from ridgeline.errors import nearest_names

    try:
        names = [item.name for item in path.parent.iterdir() if item.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return f" (and no directory {path.parent})"
    near = nearest_names(path.name, names)
    return f"; nearest: {', '.join(str(path.parent / name) for name in near)}" if near else ""


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f" line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


def _reason(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or _first_line(error)
    if isinstance(error, yaml.composer.ComposerError):
        return "a second YAML document (---) starts here; a scenario is one document"
    if isinstance(error, (yaml.scanner.ScannerError, yaml.parser.ParserError)):
        context = f" ({error.context})" if error.context else ""
        return f"not valid YAML: {problem}{context}"
    return problem


def _unreadable(error: Exception) -> str:
    return f"holds a value that cannot be read: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def _kind(data: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(data), f"a {type(data).__name__}")
