"""Remembering results of pure functions of large records, without hashing the records again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ridgeline.specs import Layer, SoftwareProfile, Stack, Transformer

R = TypeVar("R")
# Records that are large, frozen, and made once: known by identity. Everything else is known by value.
_LARGE = (Layer, SoftwareProfile, Stack, Transformer)


_LIMIT_COUNT = 4096  # src: rl-numerics


def remembered(*also: type, limit: int = _LIMIT_COUNT) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Remember up to `limit` results of a pure function, then start again.

    Arguments that are large frozen records (and those of the types `also`) are compared by identity and kept alive,
    so that an identity is never used twice; equal records that are not the same object just miss.
    """
    large = (*_LARGE, *also)

    def wrap(function: Callable[..., R]) -> Callable[..., R]:
        known: dict[tuple[Any, ...], tuple[R, tuple[Any, ...]]] = {}

        @wraps(function)
        def call(*args: Any) -> R:
            key = tuple([id(arg) if isinstance(arg, large) else arg for arg in args])
            found = known.get(key)
            if found is None:
                if len(known) >= limit:
                    known.clear()
                found = known[key] = (function(*args), args)
            return found[0]

        return call

    return wrap
