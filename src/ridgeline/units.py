"""Reading and writing quantities with units: the one place where unit strings mean something.

Inside Ridgeline every quantity is an SI float whose name ends in its unit. Files and screens carry strings such as
`3.35 TB/s`; `parse` turns them into floats, strictly: GB is not GiB is not Gb, and "TFLOPS" is refused because it
may mean operations or operations per second.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ridgeline.errors import UnitError, nearest_names, shown

_SI = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}  # src: si-prefixes
_SMALL = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}  # src: si-prefixes
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}  # src: iec-80000-13
_MINUTE_S, _HOUR_S, _DAY_S, _WEEK_S = 60.0, 3600.0, 86400.0, 604800.0  # src: si-accepted-units
_YEAR_S = 365.25 * _DAY_S  # src: julian-year
_JOULE_PER_WH = 3600.0  # src: si-accepted-units
_BYTE_PER_BIT = 0.125  # src: bits-per-byte
_JOULE_PER_KILO_WH = 3.6e6  # src: si-accepted-units
_KG_PER_G = 1e-3  # src: si-prefixes
_CELSIUS_ZERO_K = 273.15  # src: si-brochure


def _prefixed(base: str, *tables: dict[str, float], scale: float = 1.0) -> dict[str, float]:
    return {f"{prefix}{base}": factor * scale for table in tables for prefix, factor in table.items()}


_BYTES = _prefixed("B", _SI, _BINARY)
_BYTES.pop("KB")  # KB is written both for 1000 and for 1024; kB and KiB are clear
_BITS = _prefixed("b", {k: v for k, v in _SI.items() if k != "K"}, scale=_BYTE_PER_BIT)
_BITS |= _prefixed("bit", {k: v for k, v in _SI.items() if k != "K"}, scale=_BYTE_PER_BIT)
_FLOP = _prefixed("FLOP", {k: v for k, v in _SI.items() if k not in "kK" or k == ""})
_OP = _prefixed("OP", {k: v for k, v in _SI.items() if k not in "kK" or k == ""})
_TIME = {
    "s": 1.0,
    **_prefixed("s", _SMALL),
    "min": _MINUTE_S,
    "h": _HOUR_S,
    "d": _DAY_S,
    "day": _DAY_S,
    "days": _DAY_S,
    "week": _WEEK_S,
    "weeks": _WEEK_S,
    "y": _YEAR_S,
    "year": _YEAR_S,
    "years": _YEAR_S,
}
_ENERGY = {**_prefixed("J", _SI, {"m": 1e-3}), **_prefixed("Wh", _SI, scale=_JOULE_PER_WH)}  # src: si-prefixes
_POWER = {**_prefixed("W", _SI), "mW": 1e-3, "uW": 1e-6}  # src: si-prefixes
_MASS = {"g": 1e-3, "kg": 1.0, "t": 1e3, "mg": 1e-6}  # src: si-accepted-units
_MONEY = {"USD": 1.0, "$": 1.0, "kUSD": 1e3, "MUSD": 1e6}  # src: si-prefixes


def _per(tops: dict[str, float], bottoms: dict[str, float]) -> dict[str, float]:
    return {f"{a}/{b}": x / y for a, x in tops.items() for b, y in bottoms.items()}


@dataclass(frozen=True, slots=True)
class Dimension:
    """A kind of quantity: its SI unit, the unit strings that mean it, and what a bare number is read as."""

    name: str
    si: str
    units: dict[str, float]
    bare: float | None = None
    bare_unit: str = ""
    offset: dict[str, float] | None = None


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "h": _HOUR_S, "min": _MINUTE_S, "d": _DAY_S}  # src: si-prefixes
_COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}  # src: si-prefixes
_TOKENS = {
    **{f"{p}tokens" if not p else f"{p} tokens": f for p, f in _COUNTS.items()},
    **{f"{p}token" if not p else f"{p} token": f for p, f in _COUNTS.items()},
}
DIMENSIONS: dict[str, Dimension] = {
    d.name: d
    for d in (
        Dimension("count", "", {**_COUNTS, **_TOKENS}, 1.0),
        Dimension("fraction", "", {"": 1.0, "%": 0.01}, 1.0),  # src: percent
        Dimension("time", "s", _TIME, 1.0, "s"),
        Dimension("bytes", "B", {**_BYTES, **_BITS}, 1.0, "B"),
        Dimension(
            "bandwidth",
            "B/s",
            {**_per(_BYTES, {"s": 1.0}), **_per(_BITS, {"s": 1.0}), **_prefixed("bps", _SI, scale=_BYTE_PER_BIT)},
            1.0,
            "B/s",
        ),  # src: bits-per-byte
        Dimension("flop", "FLOP", {**_FLOP, **_OP}, 1.0, "FLOP"),
        Dimension("flop_rate", "FLOP/s", _per({**_FLOP, **_OP}, {"s": 1.0}), 1.0, "FLOP/s"),
        Dimension("power", "W", _POWER, 1.0, "W"),
        Dimension("energy", "J", _ENERGY, 1.0, "J"),
        Dimension("frequency", "Hz", _prefixed("Hz", _SI), 1.0, "Hz"),
        Dimension(
            "rate",
            "1/s",
            {
                **_per({"1": 1.0, "req": 1.0, "requests": 1.0, "tokens": 1.0, "token": 1.0}, _SECONDS),
                **_prefixed("Hz", _SI),
            },
            1.0,
            "1/s",
        ),
        Dimension(
            "temperature", "K", {"K": 1.0, "C": 1.0, "°C": 1.0}, 1.0, "K", {"C": _CELSIUS_ZERO_K, "°C": _CELSIUS_ZERO_K}
        ),
        Dimension("money", "USD", _MONEY, 1.0, "USD"),
        Dimension("money_rate", "USD/s", _per(_MONEY, _TIME), None, "USD/h"),
        Dimension(
            "energy_price", "USD/J", _per(_MONEY, _ENERGY), 1.0 / _JOULE_PER_KILO_WH, "USD/kWh"
        ),  # src: si-prefixes
        Dimension(
            "carbon_intensity",
            "kg/J",
            _per(_MASS | {f"{k}CO2e": v for k, v in _MASS.items()}, _ENERGY),
            _KG_PER_G / _JOULE_PER_KILO_WH,
            "g/kWh",
        ),  # src: si-prefixes
        Dimension("mass", "kg", _MASS, 1.0, "kg"),
    )
}
_REFUSED = {
    "FLOPS": "write FLOP/s for a rate or FLOP for an amount",
    "FLOPs": "write FLOP/s for a rate or FLOP for an amount",
    "OPS": "write OP/s",
    "KB": "write kB (1000 bytes) or KiB (1024 bytes)",
}
_NUMBER = re.compile(r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*", re.ASCII)
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?\b.*", re.ASCII)  # 1,000 and 12,345.6 USD


def parse(value: object, dimension: str, where: str = "") -> float:
    """`value` as an SI float of `dimension` (a key of `DIMENSIONS`).

    Takes strings with a unit, and plain numbers or numeric strings, which are read in the dimension's bare unit
    (SI, but USD/kWh for energy prices and g/kWh for carbon). `where` is the file and key path for the message.
    Raises `UnitError` for anything else, also for NaN and infinities.

    >>> parse("3.35 TB/s", "bandwidth"), parse("400 Gb/s", "bandwidth"), parse("1e12", "count")
    (3350000000000.0, 50000000000.0, 1000000000000.0)
    >>> parse("45 d", "time"), round(parse("0.09 USD/kWh", "energy_price") * 3.6e6, 6)
    (3888000.0, 0.09)
    """
    spec = DIMENSIONS[dimension]
    place = f"{where}: " if where else ""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise UnitError(f"{place}got {shown(value)}, expected {_expected(spec)}")
    number, unit = _split(value, spec, place)
    if not math.isfinite(number):
        raise UnitError(f"{place}got {shown(value)}, expected {_expected(spec)} that is finite")
    if unit == "" and "" not in spec.units:
        if spec.bare is None:
            raise UnitError(f"{place}got {shown(value)} without a unit; write for example {number:g} {spec.bare_unit}")
        return number * spec.bare
    factor = spec.units.get(unit)
    if factor is None:
        raise UnitError(f"{place}{_unknown_unit(value, unit, spec)}")
    offset = (spec.offset or {}).get(unit, 0.0)
    return number * factor + offset


def bare_unit(dimension: str) -> str:
    """The unit in which a plain number of `dimension` is read."""
    return DIMENSIONS[dimension].bare_unit


def _split(value: int | float | str, spec: Dimension, place: str) -> tuple[float, str]:
    if not isinstance(value, str):
        try:
            return float(value), ""
        except OverflowError:  # a whole number beyond 1e308
            return (math.inf if value > 0 else -math.inf), ""
    match = _NUMBER.fullmatch(value)
    if match is None:
        raise UnitError(f"{place}got {shown(value)}, expected {_expected(spec)}")
    return float(match.group(1).replace("_", "")), match.group(2)


def _unknown_unit(value: object, unit: str, spec: Dimension) -> str:
    got = f"got {shown(value)}: "
    if _GROUPED.fullmatch(str(value).strip()):
        return f"{got}no commas inside numbers; write {str(value).strip().replace(',', '')}"
    for ending, advice in _REFUSED.items():
        if unit.endswith(ending):
            return f"{got}{ending!r} is ambiguous; {advice}"
    others = [d.name for d in DIMENSIONS.values() if unit in d.units and unit]
    if others:
        return f"{got}{unit!r} is a unit of {others[0].replace('_', ' ')}, expected {_expected(spec)}"
    near = nearest_names(unit, spec.units)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    return f"{got}unknown unit {shown(unit)}, expected {_expected(spec)}{hint}"


def _expected(spec: Dimension) -> str:
    unit = spec.bare_unit or spec.si
    article = "an" if spec.name[0] in "aeiou" else "a"
    return f"{article} {spec.name.replace('_', ' ')}" + (f" such as `1 {unit}`" if unit else " (a number)")


_DISPLAY: dict[str, tuple[tuple[float, str], ...]] = {
    "time": ((_DAY_S * 2, "d"), (_HOUR_S * 2, "h"), (1.0, "s"), (1e-3, "ms"), (0.0, "us")),  # src: display
    "bytes": ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0.0, "B")),  # src: display
    "bandwidth": ((1e12, "TB/s"), (1e9, "GB/s"), (0.0, "MB/s")),  # src: display
    "flop_rate": ((1e18, "EFLOP/s"), (1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (0.0, "GFLOP/s")),  # src: display
    "flop": ((1e21, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (0.0, "GFLOP")),  # src: display
    "power": ((1e6, "MW"), (1e3, "kW"), (0.0, "W")),  # src: display
    "energy": (
        (1e6 * _JOULE_PER_KILO_WH, "GWh"),  # src: display
        (1e3 * _JOULE_PER_KILO_WH, "MWh"),  # src: display
        (0.5 * _JOULE_PER_KILO_WH, "kWh"),
        (1.0, "J"),
        (0.0, "mJ"),
    ),  # src: display
    "frequency": ((1e9, "GHz"), (0.0, "MHz")),  # src: display
    "money": ((1e6, "MUSD"), (1e4, "kUSD"), (0.0, "USD")),  # src: display
}


def show(value: float | None, dimension: str, digits: int = 3) -> str:  # src: display
    """`value` (SI) as a short string for screens.

    >>> show(3.35e12, "bandwidth"), show(0.0123, "time"), show(None, "time")
    ('3.35 TB/s', '12.3 ms', '-')
    """
    if value is None:
        return "-"
    table = _DISPLAY.get(dimension)
    if table is None:
        return f"{value:.{digits}g} {DIMENSIONS[dimension].si}".strip()
    for threshold, unit in table:
        if abs(value) >= threshold:
            return f"{_significant(value / DIMENSIONS[dimension].units[unit], digits)} {unit}"
    return f"{value:.{digits}g} {DIMENSIONS[dimension].si}"


def _significant(number: float, digits: int) -> str:
    if number == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(number))))
    return f"{number:,.{decimals}f}"
