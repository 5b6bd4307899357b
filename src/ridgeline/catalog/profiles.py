"""Checks the facts of engines and training software, which have free keys, against the field that each one fills."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ridgeline.errors import BadFact, shown

Record = dict[str, Any]
_UNITS = {"_s": "s", "_bytes": "B"}


def checked(record: Record, key: str, field: str, profile: type) -> Any:
    """The value of the fact `key` of `record` as `field` of `profile` takes it; `BadFact` where it cannot."""
    fact = record["facts"][key]
    value, wanted = fact["value"], _types(profile)[field]
    kinds = [part for part in get_args(wanted) if part is not type(None)] or [wanted]
    if get_origin(wanted) is Literal:
        good, expected = value in kinds, f"allowed {', '.join(map(str, kinds))}"
    elif kinds[0] is bool:
        good, expected = isinstance(value, bool), "allowed true, false"
    elif kinds[0] in (int, float):
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        good = good and (kinds[0] is float or value == int(value))
        expected = f"expected a {'number' if kinds[0] is float else 'whole number'}, 0 or more"
        expected += _unit_hint(field)
        good = good and fact.get("unit", "") in ("", _unit(field))
    elif get_origin(wanted) is tuple:
        good, expected = isinstance(value, list), "expected a list"
    else:
        good, expected = isinstance(value, str), "expected text"
    if not good:
        written = fact.get("written", value)
        raise BadFact(f"{record['file']}: facts.{key}: got {shown(written)}, {expected}")
    return tuple(value) if isinstance(value, list) else value


def _unit(field: str) -> str:
    return next((unit for ending, unit in _UNITS.items() if field.endswith(ending)), "")


def _unit_hint(field: str) -> str:
    dimension = {"s": "time", "B": "bytes"}.get(_unit(field))
    return f" (a quantity with its unit and `dim: {dimension}`)" if dimension else ""


@lru_cache
def _types(profile: type) -> dict[str, Any]:
    return get_type_hints(profile)
