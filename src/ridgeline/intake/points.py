"""Measured kernel points of a user's own device: a CSV file, one kernel a line.

Columns (blank where a kind does not need them):

    kind         gemm, attention, memory or collective
    time         how long the kernel took, with its unit ("35.2 us")
    precision    of gemm and attention (bf16 where left out)
    m, n, k      gemm: C[m, n] = A[m, k] B[k, n]; batch: so many of them (1)
    copies       gemm: other weights that pass through the cache before these are read again (0: none; inf: from memory)
    phase        attention: prefill (default) or decode, with batch, queries, keys, heads, kv_heads, head_dim, causal
    family       attention: whose kernels (fa2, fa3, flashinfer...); those that the device prefers where left out
    bytes        memory: read and written in all; collective: the message as nccl-tests counts it ("64 MB")
    operation    memory: copy (default), norm, activation, rope, embedding, cast
    collective   all_reduce, all_gather, reduce_scatter, all_to_all or send, among ranks, stride apart (1)
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ridgeline.device.calibrate import KernelPoint
from ridgeline.errors import IntakeError, RidgelineError, few, nearest_names, shown
from ridgeline.network.calibrate import CollectivePoint
from ridgeline.specs import BITS_PER_ELEMENT, RankGroup
from ridgeline.units import parse
from ridgeline.workload.ops import AttentionDecode, AttentionPrefill, Elementwise, Gemm

COLUMNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gemm": (("m", "n", "k"), ("precision", "batch", "copies")),
    "attention": (
        ("keys", "heads", "kv_heads", "head_dim"),
        ("batch", "phase", "queries", "causal", "precision", "family"),
    ),
    "memory": (("bytes",), ("operation",)),
    "collective": (("collective", "bytes", "ranks"), ("stride",)),
}
_ALL = tuple(dict.fromkeys(("kind", "time", *(name for pair in COLUMNS.values() for part in pair for name in part))))
_OPERATIONS = {"copy": "residual", "add": "residual"} | {
    name: name for name in ("norm", "activation", "rope", "embedding", "cast")
}
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
_PHASES, _TRUTH = ("prefill", "decode"), ("yes", "no")
_MOST_ROWS, _LONGEST_S, _LARGEST = 2000, 1e4, 2**40
MAX_FILE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The points of a file, by what times them."""

    where: str
    kernels: tuple[KernelPoint, ...]
    collectives: tuple[CollectivePoint, ...]


def read_points(path: str | Path) -> Points:
    """The measured points in the CSV file at `path`; `IntakeError` with every problem found."""
    where = str(path)
    header, rows = _table(Path(path))
    unknown = [name for name in header if name not in _ALL]
    for name in unknown:
        near = nearest_names(name, _ALL)
        hint = f"nearest: {', '.join(near)}" if near else f"allowed: {', '.join(_ALL)}"
        raise IntakeError(f"{where}: unknown column {shown(name)}; {hint}")
    for name in ("kind", "time"):
        if name not in header:
            raise IntakeError(f"{where}: no column {name!r}; found {', '.join(header[:12]) or 'none'}")
    if not rows:
        raise IntakeError(f"{where}: holds no points under its header")
    if len(rows) > _MOST_ROWS:
        raise IntakeError(f"{where}: {len(rows):,} points; at most {_MOST_ROWS:,} (20 to 50 are enough)")
    kernels: list[KernelPoint] = []
    collectives: list[CollectivePoint] = []
    problems: list[str] = []
    for line, cells in rows:
        try:
            found = _point(_Cells(cells, f"{where} line {line}"))
        except RidgelineError as error:
            problems.append(str(error))
            continue
        if isinstance(found, KernelPoint):
            kernels.append(found)
        else:
            collectives.append(found)
    if problems:
        raise IntakeError("\n".join(few(problems)))
    return Points(where=where, kernels=tuple(kernels), collectives=tuple(collectives))


def _table(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    try:
        if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
            raise IntakeError(f"{path}: {path.stat().st_size:,} bytes, a file of points has at most {MAX_FILE_BYTES:,}")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            header = [name.strip() for name in next(reader, [])]
            found = []
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) > len(header):
                    raise IntakeError(f"{path} line {reader.line_num}: {len(cells)} cells under {len(header)} columns")
                padded = [*cells, *[""] * (len(header) - len(cells))]
                found.append((reader.line_num, dict(zip(header, (cell.strip() for cell in padded), strict=True))))
    except OSError as error:
        raise IntakeError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise IntakeError(f"{path}: not a CSV file in UTF-8: {error}") from None
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise IntakeError(f"{path}: column {twice[0]!r} stands twice")
    return header, found


class _Cells:
    """The cells of one line, read one by one; messages say line and column."""

    def __init__(self, cells: Mapping[str, str], where: str) -> None:
        self.cells = cells
        self.where = where

    def place(self, name: str) -> str:
        return f"{self.where}, {name}"

    def text(self, name: str, allowed: Sequence[str], default: str = "") -> str:
        """One of `allowed`."""
        value = self.cells.get(name, "") or default
        if value not in allowed:
            near = nearest_names(value, allowed)
            hint = f"nearest: {', '.join(near)}" if near else f"allowed: {', '.join(allowed)}"
            raise IntakeError(f"{self.place(name)}: got {shown(value)}; {hint}")
        return value

    def count(self, name: str, default: float | None = None) -> float:
        """A whole number from 1."""
        value = self.cells.get(name, "")
        if not value and default is not None:
            return default
        if not value:
            raise IntakeError(f"{self.place(name)}: missing")
        number = parse(value, "count", self.place(name))
        if not 1 <= number <= _LARGEST or number != int(number):
            raise IntakeError(f"{self.place(name)}: got {shown(value)}, expected a whole number from 1")
        return number

    def quantity(self, name: str, dimension: str, most: float) -> float:
        """A positive quantity with its unit."""
        value = self.cells.get(name, "")
        if not value:
            raise IntakeError(f"{self.place(name)}: missing")
        if value.replace(".", "", 1).isdigit():
            example = "35.2 us" if dimension == "time" else "64 MB"
            raise IntakeError(f"{self.place(name)}: got {shown(value)} without a unit; write for example {example}")
        number = parse(value, dimension, self.place(name))
        if not 0 < number <= most:
            raise IntakeError(f"{self.place(name)}: got {shown(value)}, expected more than 0 and at most {most:g}")
        return number

    def copies(self) -> float:
        value = self.cells.get("copies", "") or "0"
        if value == "inf":
            return math.inf
        number = parse(value, "count", self.place("copies"))
        if number < 0:
            raise IntakeError(f"{self.place('copies')}: got {shown(value)}, expected 0 or more, or inf")
        return number

    def precision(self) -> str:
        known = tuple(name for name, bits in BITS_PER_ELEMENT.items() if bits == int(bits))
        return self.text("precision", known, "bf16")


def _point(cells: _Cells) -> KernelPoint | CollectivePoint:
    kind = cells.text("kind", tuple(COLUMNS))
    time_s = cells.quantity("time", "time", _LONGEST_S)
    needed, optional = COLUMNS[kind]
    beside = [name for name, value in cells.cells.items() if value and name not in ("kind", "time", *needed, *optional)]
    if beside:
        raise IntakeError(f"{cells.place(beside[0])}: does not belong to a point of kind {kind}")
    makers: Mapping[str, Callable[[_Cells, float], KernelPoint | CollectivePoint]] = {
        "gemm": _gemm,
        "attention": _attention,
        "memory": _memory,
        "collective": _collective,
    }
    return makers[kind](cells, time_s)


def _gemm(cells: _Cells, time_s: float) -> KernelPoint:
    precision = cells.precision()
    m, n, k = (cells.count(name) for name in ("m", "n", "k"))
    op = Gemm(
        name="point",
        m=m,
        n=n,
        k=k,
        batch_count=cells.count("batch", 1.0),
        math_precision=precision,
        weight_precision=precision,
        activation_precision=precision,
        output_precision=precision if BITS_PER_ELEMENT[precision] >= BITS_PER_ELEMENT["bf16"] else "bf16",
    )
    return KernelPoint(op=op, time_s=time_s, copies_count=cells.copies())


def _attention(cells: _Cells, time_s: float) -> KernelPoint:
    phase = cells.text("phase", _PHASES, "prefill")
    keys, heads, kv_heads = (cells.count(name) for name in ("keys", "heads", "kv_heads"))
    width, precision, family = int(cells.count("head_dim")), cells.precision(), cells.cells.get("family", "")
    batch = cells.count("batch", 1.0)
    op: AttentionPrefill | AttentionDecode
    if phase == "prefill":
        op = AttentionPrefill(
            name="point",
            batch_count=batch,
            query_tokens=cells.count("queries", keys),
            key_tokens=keys,
            heads_count=heads,
            kv_heads_count=kv_heads,
            key_dim_count=width,
            value_dim_count=width,
            causal=cells.text("causal", _TRUTH, "yes") == "yes",
            precision=precision,
        )
        if op.causal and op.query_tokens > keys:
            raise IntakeError(f"{cells.place('queries')}: {op.query_tokens:g} causal queries on {keys:g} keys")
    else:
        op = AttentionDecode(
            name="point",
            batch_count=batch,
            context_tokens=keys,
            heads_count=heads,
            kv_heads_count=kv_heads,
            key_dim_count=width,
            value_dim_count=width,
            cached_per_token_count=2 * kv_heads * width,
            kv_precision=precision,
        )
    return KernelPoint(op=op, time_s=time_s, copies_count=math.inf, family=family)


def _memory(cells: _Cells, time_s: float) -> KernelPoint:
    kind = _OPERATIONS[cells.text("operation", tuple(_OPERATIONS), "copy")]
    moved = cells.quantity("bytes", "bytes", float(_LARGEST))
    return KernelPoint(op=Elementwise(name="point", kind=kind, bytes=moved), time_s=time_s)  # type: ignore[arg-type]


def _collective(cells: _Cells, time_s: float) -> CollectivePoint:
    kind = cells.text("collective", _COLLECTIVES)
    ranks = int(cells.count("ranks"))
    if ranks < 2:
        raise IntakeError(f"{cells.place('ranks')}: a collective has at least 2 ranks")
    group = RankGroup(size_count=ranks, stride_count=int(cells.count("stride", 1.0)))
    size = cells.quantity("bytes", "bytes", float(_LARGEST))
    return CollectivePoint(kind=kind, message_bytes=size, group=group, time_s=time_s)
