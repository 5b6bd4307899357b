"""The measured devices as the catalogue knows them, and what had to be assumed of one of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from ridgeline.catalog.loader import load_catalog
from ridgeline.specs import Chip

# No maker's figure: the same die layout and boost clock as the part before it are assumed. Used only where the
# catalogue has none; written into the law as an assumption of the law.
STAND_INS = {"b300-sxm": {"unit_count": 148.0, "clock_hz": 1.965e9, "cache_bytes": 126.5 * 2**20}}


@cache
def catalog():
    """The shipped catalogue."""
    return load_catalog()


@cache
def chip(device: str) -> Chip:
    """A measured device, completed by the stand-ins."""
    found = catalog().chip(device)
    given = STAND_INS.get(device, {})
    if found.unit_count is None and "unit_count" in given:
        found = replace(found, unit_count=int(given["unit_count"]))
    if found.clock_hz is None and "clock_hz" in given:
        found = replace(found, clock_hz=given["clock_hz"])
    if found.l2_bytes is None and "cache_bytes" in given:
        found = replace(found, l2_bytes=given["cache_bytes"])
    return found


def stand_ins(device: str) -> dict[str, float]:
    """What a law of `device` assumes because the catalogue has no figure."""
    found = catalog().chip(device)
    names = {"unit_count": found.unit_count, "clock_hz": found.clock_hz, "cache_bytes": found.l2_bytes}
    return {name: value for name, value in STAND_INS.get(device, {}).items() if names[name] is None}
