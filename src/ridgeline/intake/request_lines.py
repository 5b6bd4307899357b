"""Lines, times and lengths of trace files; times as whole nanoseconds, so that differences are exact."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import IO

from ridgeline.errors import BadRequests, shown

MAX_LINE_BYTES = 4_000_000  # beyond it a file is broken
_WALL = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s*(Z|[+-]\d\d:?\d\d)?$")
NANOS_PER_S = 1_000_000_000
_MOST_S = 9e9  # what whole nanoseconds in 64 bits can hold


def text_lines(raw: IO[bytes], where: str) -> Iterator[str]:
    """Decoded lines without a byte order mark; a line that is absurdly long or no text ends the reading."""
    number = 0
    while line := raw.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadRequests(f"{where} line {number}: longer than {MAX_LINE_BYTES:,} bytes; is it a trace?")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            told = f"byte {line[error.start]:#04x} is not UTF-8 text (convert the file; unpack a compressed one)"
            raise BadRequests(f"{where} line {number}: {told}") from None
        if "\0" in text:
            raise BadRequests(
                f"{where} line {number}: holds zero bytes (a binary file, or UTF-16); expected UTF-8 text"
            )
        yield text


def wall_clock() -> Callable[[str], int]:
    """A reader of times such as `2023-11-16 18:15:46.6805900`, in nanoseconds.

    Times with an offset from UTC are brought to UTC; without one they are taken as they stand.

    >>> read = wall_clock()
    >>> read("2023-11-16 18:15:50.9951690") - read("2023-11-16 18:15:46.6805900")
    4314579000
    """
    days: dict[str, int] = {}  # a trace has few days and offsets

    def read(text: str) -> int:
        found = _WALL.match(text.strip())
        if found is None:
            raise ValueError("expected a time such as 2023-11-16 18:15:46.680590")
        day, clock, fraction, offset = found.groups()
        key = f"{day}{offset or ''}"
        base_s = days.get(key)
        if base_s is None:
            base_s = days[key] = _midnight_s(day, offset)
        hours, minutes, seconds = int(clock[:2]), int(clock[3:5]), int(clock[6:])
        if hours > 23 or minutes > 59 or seconds > 60:
            raise ValueError("there is no such time of the day")
        whole_s = base_s + 3600 * hours + 60 * minutes + seconds
        return whole_s * NANOS_PER_S + (int(fraction.ljust(9, "0")) if fraction else 0)

    return read


def _midnight_s(day: str, offset: str | None) -> int:
    zone = "+00:00" if offset in (None, "Z") else offset
    return int(datetime.fromisoformat(f"{day}T00:00:00{zone}").timestamp())


def scaled_number(per_s: int) -> Callable[[str], int]:
    """A reader of plain numbers of which `per_s` make a second, in nanoseconds.

    A publisher's seconds are sums and differences of floats; whole nanoseconds take their last digits away.

    >>> scaled_number(1)("5.8926549999999995"), scaled_number(1000)("3052"), scaled_number(10**9)("46926808")
    (5892655000, 3052000000, 46926808)
    """
    nanos = NANOS_PER_S // per_s
    most = _MOST_S * per_s

    def read(text: str) -> int:
        if text.isdigit() and len(text) < 10:
            return int(text) * nanos
        try:
            value = float(text)
        except ValueError:
            raise ValueError("expected a number") from None
        if not -most < value < most:  # NaN too
            raise ValueError("expected a number of a plausible size")
        return round(value * nanos)

    return read


def whole_tokens(text: str, name: str, most: int) -> int:
    """A whole number of tokens, 0 to `most`; ValueError says what is wrong.

    >>> whole_tokens("12", "num_prefill_tokens", 100), whole_tokens("12.0", "num_prefill_tokens", 100)
    (12, 12)
    """
    if text.isdigit() and len(text) < 16 and (tokens := int(text)) <= most:
        return tokens
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {shown(text)}, expected a whole number of tokens") from None
    if not math.isfinite(value) or value != math.floor(value):
        raise ValueError(f"{name} is {shown(text)}, expected a whole number of tokens")
    if not 0 <= value <= most:
        raise ValueError(f"{name} is {shown(text)}, allowed 0 to {most:,} tokens")
    return int(value)
