"""Plain data for JSON: the version of its shape, and numbers that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 1


def finite(data: Any) -> Any:
    """`data` with every number that JSON cannot hold replaced by None.

    >>> finite({"a": float("inf"), "b": [1.0, float("nan")]})
    {'a': None, 'b': [1.0, None]}
    """
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [finite(value) for value in data]
    return data
