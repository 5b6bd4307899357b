"""Field types of the scenario schema: each reads its value through the one unit parser and knows its allowed range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from ridgeline import units
from ridgeline.errors import UnitError, nearest_names, shown


def quantity(
    dimension: str, low: str, high: str, *, whole: bool = False, above: bool = False
) -> Callable[[Any], float | int]:
    """A reader of `dimension` that takes values from `low` to `high` (texts in a unit that people use).

    `whole`: only whole numbers. `above`: `low` itself is not allowed.

    >>> quantity("fraction", "1", "5")(1.2)
    1.2
    """
    lowest, highest = units.parse(low, dimension), units.parse(high, dimension)
    allowed = f"allowed {'above ' if above else ''}{low} to {high}" + (", whole numbers" if whole else "")

    def read(value: Any) -> float | int:
        try:
            number = units.parse(value, dimension)
        except UnitError as error:
            raise ValueError(f"{error} ({allowed})") from None
        if number < lowest or number > highest or (above and number == lowest):
            raise ValueError(f"got {shown(value)}, {allowed}")
        if whole and number != int(number):
            raise ValueError(f"got {shown(value)}, {allowed}")
        return int(number) if whole else number

    return read


def one_of(*allowed: str) -> Callable[[Any], str]:
    """A reader that takes exactly one of the words `allowed` and names the nearest otherwise."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        near = nearest_names(value, allowed, 1) if isinstance(value, str) else []
        hint = f"; nearest: {near[0]}" if near else ""
        raise ValueError(f"got {shown(value)}, allowed {', '.join(allowed)}{hint}")

    return read


def word(value: Any) -> str:
    """A non-empty text."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"got {shown(value)}, expected a name")
    return value.strip()


def truth(value: Any) -> bool:
    """true or false, nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise ValueError(f"got {shown(value)}, allowed true, false")
    return value


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many devices to try: `values` as listed, or doublings from the first to the last where `doubling`."""

    values: tuple[int, ...]
    doubling: bool = False


MAX_DEVICES = 10_000_000
_one_size = quantity("count", "1", "1e7", whole=True)


def sizes(value: Any) -> Sizes:
    """`512`, `128..512` (doublings) or `[128, 192, 256]`.

    >>> sizes("128..512")
    Sizes(values=(128, 512), doubling=True)
    """
    if isinstance(value, Sizes):
        return value
    if isinstance(value, list):
        if not value:
            raise ValueError("got an empty list, expected at least one number of devices")
        if len(value) > 64:
            raise ValueError(f"got {len(value)} sizes, allowed at most 64")
        if any(isinstance(item, str) and ".." in item for item in value):
            raise ValueError(f"got {shown(value)}, a list holds numbers; give a range alone, such as 128..512")
        return Sizes(tuple(dict.fromkeys(int(_one_size(item)) for item in value)))
    if isinstance(value, str) and ".." in value:
        first, _, last = value.partition("..")
        try:
            low, high = int(_one_size(first.strip())), int(_one_size(last.strip()))
        except ValueError:
            raise ValueError(f"got {shown(value)}, expected a range of two whole numbers such as 128..512") from None
        if high < low:
            order = f"the first number must not be above the second (write {high}..{low})"
            raise ValueError(f"got {shown(value)}, {order}")
        return Sizes((low, high), doubling=True)
    return Sizes((int(_one_size(value)),))


Word = Annotated[str, BeforeValidator(word)]
Truth = Annotated[bool, BeforeValidator(truth)]
DeviceSizes = Annotated[Sizes, BeforeValidator(sizes)]

Tokens = Annotated[float, BeforeValidator(quantity("count", "1", "1e17", whole=True))]
SequenceTokens = Annotated[int, BeforeValidator(quantity("count", "1", "1e8", whole=True))]
OutputTokens = Annotated[int, BeforeValidator(quantity("count", "0", "1e7", whole=True))]
Batch = Annotated[int, BeforeValidator(quantity("count", "1", "1e8", whole=True))]
Degree = Annotated[int, BeforeValidator(quantity("count", "1", "1e6", whole=True))]
Share = Annotated[float, BeforeValidator(quantity("fraction", "0", "1"))]
ShareAboveZero = Annotated[float, BeforeValidator(quantity("fraction", "0", "1", above=True))]
ShareOfRun = Annotated[float, BeforeValidator(quantity("fraction", "0", "0.95"))]
Rate = Annotated[float, BeforeValidator(quantity("rate", "0 1/s", "1e9 1/s", above=True))]
Latency = Annotated[float, BeforeValidator(quantity("time", "1 us", "1 d"))]
Span = Annotated[float, BeforeValidator(quantity("time", "1 s", "100 y"))]
Years = Annotated[float, BeforeValidator(quantity("time", "30 d", "30 y"))]
Watts = Annotated[float, BeforeValidator(quantity("power", "1 W", "1000 GW"))]
Money = Annotated[float, BeforeValidator(quantity("money", "0 USD", "1e13 USD", above=True))]
DeviceRent = Annotated[float, BeforeValidator(quantity("money_rate", "0 USD/h", "100000 USD/h"))]
ElectricityPrice = Annotated[float, BeforeValidator(quantity("energy_price", "0 USD/kWh", "10 USD/kWh"))]
Pue = Annotated[float, BeforeValidator(quantity("fraction", "1", "5"))]
Carbon = Annotated[float, BeforeValidator(quantity("carbon_intensity", "0 g/kWh", "3000 g/kWh"))]
