"""Recorded requests: trace files of several publishers, read line by line into arrays of `specs.Requests`.

A file is recognised by its column names (or, line by line JSON, by its keys), never by its file name. Two publishers'
forms of one recording give the same requests. Whatever cannot be is told with its line; memory is that of the arrays.

    TIMESTAMP, ContextTokens, GeneratedTokens            Azure LLM inference traces, 2023 and 2024 (wall-clock times)
    arrived_at, num_prefill_tokens, num_decode_tokens    processed traces of simulators (seconds)
    arrival_timestamp, prompt_size, token_size           the same by another one (seconds)
    Timestamp, Request tokens, Response tokens           BurstGPT (seconds; no response: a failure, left out)
    input_toks, output_toks, arrival_time_ns             lengths of conversations with arrivals (nanoseconds)
    num_prefill_tokens, num_decode_tokens                lengths alone
    {timestamp, input_length, output_length, hash_ids}   Mooncake (milliseconds; hashes of 512-token beginnings)
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from ridgeline.core import Note
from ridgeline.errors import BadRequests, nearest_names, shown
from ridgeline.intake.request_lines import NANOS_PER_S, scaled_number, text_lines, wall_clock, whole_tokens
from ridgeline.specs.requests import Requests

# Beyond these a file is broken, not ambitious.
MAX_TOKENS, MAX_REQUESTS = 10_000_000, 20_000_000
HASH_BLOCK_TOKENS = 512  # what one of Mooncake's hash_ids stands for
_JSON_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


@dataclass(frozen=True, slots=True)
class _Form:
    """Columns of one publisher's file, and how it writes times (`time` "": lengths alone)."""

    name: str
    time: str
    inputs: str
    outputs: str
    reader: Callable[[], Callable[[str], int]] = lambda: scaled_number(1)
    failures: bool = False  # an output of 0 is a request that failed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs."""
        return tuple(name for name in (self.time, self.inputs, self.outputs) if name)


_FORMS = (
    _Form("Azure trace", "TIMESTAMP", "ContextTokens", "GeneratedTokens", wall_clock),
    _Form("trace with arrived_at", "arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    _Form("trace with arrival_timestamp", "arrival_timestamp", "prompt_size", "token_size"),
    _Form("BurstGPT trace", "Timestamp", "Request tokens", "Response tokens", failures=True),
    _Form("lengths with arrivals", "arrival_time_ns", "input_toks", "output_toks", lambda: scaled_number(NANOS_PER_S)),
    _Form("lengths without arrivals", "", "num_prefill_tokens", "num_decode_tokens"),
    _Form("lengths without arrivals", "", "input_toks", "output_toks"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace file that was read: its requests, the form that it had, and remarks on what was left out or is odd.

    `timed`: the file says when requests arrive; else all stand at 0 and only their lengths mean anything.
    """

    requests: Requests
    form: str
    timed: bool
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class _Rows:
    """Arrays that grow row by row, and what was odd."""

    where: str
    nanos: array[int] = field(default_factory=lambda: array("q"))
    inputs: array[int] = field(default_factory=lambda: array("q"))
    outputs: array[int] = field(default_factory=lambda: array("q"))
    repeated: int = 0
    first_repeat: int = 0
    failed: int = 0
    last_line: int = 0

    def add(self, line: int, nanos: int, inputs: int, outputs: int) -> None:
        """One request; `BadRequests` where it comes before the one ahead of it or has no input."""
        if inputs < 1:
            raise BadRequests(f"{self.where} line {line}: a request without input tokens (0), allowed 1 or more")
        if self.nanos:
            before = self.nanos[-1]
            if nanos < before:
                back = f"arrives {(before - nanos) / NANOS_PER_S:g} s before the request of line {self.last_line}"
                raise BadRequests(f"{self.where} line {line}: {back}; sort the file by its times")
            if nanos == before:
                self.repeated += 1
                self.first_repeat = self.first_repeat or line
        if len(self.nanos) >= MAX_REQUESTS:
            raise BadRequests(f"{self.where} line {line}: more than {MAX_REQUESTS:,} requests; cut the file")
        self.last_line = line
        self.nanos.append(nanos)
        self.inputs.append(inputs)
        self.outputs.append(outputs)

    def trace(self, form: str, timed: bool, prefixes: Sequence[array[int]] = ()) -> Trace:
        """The record of all rows, with times from the first one on."""
        if not self.nanos:
            left = f" (all {self.failed:,} are failures)" if self.failed else ""
            raise BadRequests(f"{self.where}: has a header but no requests{left}")
        ids, tokens, offsets = prefixes or (array("q"), array("q"), array("q"))
        nanos = _counts(self.nanos)
        requests = Requests(
            arrived_s=(nanos - nanos[0]) / NANOS_PER_S,
            input_tokens=_counts(self.inputs),
            output_tokens=_counts(self.outputs),
            prefix_ids=_counts(ids),
            prefix_tokens=_counts(tokens),
            prefix_offsets=_counts(offsets) if len(ids) else _counts(array("q")),
            label=Path(self.where).name,
        )
        return Trace(requests=requests, form=form, timed=timed, notes=tuple(self._notes(timed)))

    def _notes(self, timed: bool) -> Iterator[Note]:
        name = Path(self.where).name
        if self.failed:
            yield Note("hint", f"{name}: {self.failed:,} requests without a response (failures) are left out")
        if timed and self.repeated:
            many = f"{self.repeated:,} of {len(self.nanos):,} requests arrive with the one ahead of them"
            yield Note("hint", f"{name}: {many} (first in line {self.first_repeat})")


def load_requests(path: str | Path) -> Trace:
    """Read a trace file; `BadRequests` with file and line for whatever is wrong with it."""
    where = str(path)
    try:
        file = Path(path)
        if file.is_dir():
            raise BadRequests(f"{where}: is a directory, expected a trace file (CSV or lines of JSON)")
        if not file.exists():
            raise BadRequests(f"{where}: no such file{_similar(file)}")
        if not file.is_file():
            raise BadRequests(f"{where}: is not a regular file")
        with open(file, "rb") as raw:
            return _read(raw, where)
    except OSError as error:
        raise BadRequests(f"{where}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a path with a zero byte
        raise BadRequests(f"{where!r}: not a file name: {error}") from None


def _similar(file: Path) -> str:
    try:
        near = nearest_names(file.name, [item.name for item in file.parent.iterdir()])
    except OSError:
        return f" (and no directory {file.parent})"
    return f"; nearest: {', '.join(near)}" if near else ""


def _read(raw: IO[bytes], where: str) -> Trace:
    lines = text_lines(raw, where)
    ahead: list[str] = []
    for line in lines:
        ahead.append(line)
        if line.strip():
            break
    else:
        raise BadRequests(f"{where}: is empty; expected a header such as {', '.join(_FORMS[0].columns)}")
    rows = chain(ahead, lines)
    return _read_json(rows, where) if ahead[-1].lstrip().startswith("{") else _read_csv(rows, where)


def _form(header: Sequence[str], where: str, line: int) -> _Form:
    for form in _FORMS:
        if set(form.columns) <= set(header):
            return form
    known = sorted({name for form in _FORMS for name in form.columns})
    closest = max(_FORMS, key=lambda form: len(set(form.columns) & set(header)))
    lacking = [name for name in closest.columns if name not in header]
    if len(lacking) < len(closest.columns):
        what = f"no column {' and no '.join(lacking)} (taken for a {closest.name})"
        others = [name for name in header if name not in known]
        near = [f"{name} -> {nearest_names(name, lacking)[0]}" for name in others if nearest_names(name, lacking)]
        hint = f"; nearest: {', '.join(near)}" if near else ""
    else:
        what = "no trace that is known"
        hint = "; known: " + " | ".join(",".join(form.columns) for form in _FORMS)
    raise BadRequests(f"{where} line {line}: {what}; got the columns {shown(', '.join(header), 200)}{hint}")


def _read_csv(lines: Iterator[str], where: str) -> Trace:
    reader = csv.reader(lines)
    rows = _Rows(where)
    try:
        header = [name.strip() for name in next(row for row in reader if any(cell.strip() for cell in row))]
        form = _form(header, where, reader.line_num)
        repeated = [name for name in form.columns if header.count(name) > 1]
        if repeated:
            raise BadRequests(f"{where} line {reader.line_num}: column {repeated[0]!r} is there twice")
        _fill(rows, reader, header, form)
    except csv.Error as error:
        raise BadRequests(f"{where} line {reader.line_num}: not readable as CSV: {error}") from None
    return rows.trace(form.name, bool(form.time))


def _fill(rows: _Rows, reader: Any, header: Sequence[str], form: _Form) -> None:
    read_time = form.reader()
    at_time = header.index(form.time) if form.time else -1
    at_input, at_output, width = header.index(form.inputs), header.index(form.outputs), len(header)
    for row in reader:
        if not row or (len(row) == 1 and not row[0].strip()):
            continue
        if len(row) != width:
            told = f"{len(row)} values, the header has {width} columns"
            raise BadRequests(f"{rows.where} line {reader.line_num}: {told}")
        try:
            inputs = whole_tokens(row[at_input], form.inputs, MAX_TOKENS)
            outputs = whole_tokens(row[at_output], form.outputs, MAX_TOKENS)
        except ValueError as error:
            raise BadRequests(f"{rows.where} line {reader.line_num}: {error}") from None
        nanos = 0
        if at_time >= 0:
            try:
                nanos = read_time(row[at_time])
            except ValueError as error:
                told = f"{form.time} is {shown(row[at_time])}: {error}"
                raise BadRequests(f"{rows.where} line {reader.line_num}: {told}") from None
        if form.failures and outputs == 0:
            rows.failed += 1
            continue
        rows.add(reader.line_num, nanos, inputs, outputs)


def _read_json(lines: Iterator[str], where: str) -> Trace:
    rows = _Rows(where)
    ids, tokens, offsets = array("q"), array("q"), array("q", [0])
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        spot = f"{where} line {number}"
        data = _json_object(line, spot)
        nanos, inputs, outputs, own = _json_request(data, spot)
        rows.add(number, nanos, inputs, outputs)
        for index, id in enumerate(own):
            ids.append(id)
            tokens.append(min(HASH_BLOCK_TOKENS, inputs - index * HASH_BLOCK_TOKENS))
        offsets.append(len(ids))
    return rows.trace("Mooncake trace", True, (ids, tokens, offsets))


def _json_object(line: str, spot: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRequests(f"{spot}: not a line of JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadRequests(f"{spot}: got {shown(data)}, expected an object with {', '.join(_JSON_KEYS)}")
    lacking = [name for name in _JSON_KEYS[:3] if name not in data]
    if lacking:
        keys = ", ".join(map(str, data))
        raise BadRequests(f"{spot}: a Mooncake trace without {' and '.join(lacking)}; got the keys {shown(keys, 200)}")
    return data


def _json_request(data: dict[str, Any], spot: str) -> tuple[int, int, int, list[int]]:
    """Arrival [nanoseconds], lengths, and ids of the blocks that the input begins with."""
    for name in _JSON_KEYS[:3]:
        if isinstance(data[name], bool) or not isinstance(data[name], (int, float)):
            raise BadRequests(f"{spot}: {name} is {shown(data[name])}, expected a number")
    try:
        inputs = whole_tokens(repr(data["input_length"]), "input_length", MAX_TOKENS)
        outputs = whole_tokens(repr(data["output_length"]), "output_length", MAX_TOKENS)
        nanos = scaled_number(1000)(repr(data["timestamp"]))
    except (ValueError, OverflowError) as error:
        raise BadRequests(f"{spot}: {error}") from None
    own = data.get("hash_ids") or []
    whole = isinstance(own, list) and all(type(id) is int and 0 <= id < 1 << 62 for id in own)
    if not whole:
        raise BadRequests(f"{spot}: hash_ids is {shown(own)}, expected a list of whole numbers")
    most = -(-inputs // HASH_BLOCK_TOKENS)
    if len(own) > most:
        told = f"{len(own)} hash_ids for {inputs:,} tokens, at most {most} blocks of {HASH_BLOCK_TOKENS}"
        raise BadRequests(f"{spot}: {told}")
    return nanos, inputs, outputs, own


def _counts(values: array[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.zeros(0, dtype=np.int64)
