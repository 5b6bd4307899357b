"""One code path for hot loops: compiled by numba where that is installed, plain Python where it is not.

A loop is written on flat sequences and numbers. `working` gives it arrays when it is compiled and lists when it is
not (single elements of lists are several times quicker to reach from Python); both hold IEEE doubles and whole
numbers, and the compiler is not allowed to reorder arithmetic, so both ways give the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiler() -> Any:
    """The module numba, or None where it is not installed or its compiler is switched off (NUMBA_DISABLE_JIT)."""
    try:
        import numba  # type: ignore[import-not-found]
    except ImportError:
        return None
    return None if numba.config.DISABLE_JIT else numba


_NUMBA = _compiler()
COMPILED = _NUMBA is not None


def _cache_folder() -> str:
    """Where machine code is kept: one folder for each state of the loops' sources (files named loop*), because a
    compiled function contains those that it calls and the compiler's own cache looks at one file alone."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted([Path(__file__).resolve(), *package.glob("*/loop*.py")]):
        digest.update(path.read_bytes())
    return str(Path(__file__).resolve().parent / "__pycache__" / f"numba-{digest.hexdigest()[:16]}")


_FOLDER = _cache_folder() if COMPILED else ""


def compiled(function: Function) -> Function:
    """`function` compiled for calls from compiled functions; `function` itself without numba."""
    return _made(function, entry=False)


def entry(function: Function) -> Function:
    """`function` compiled for calls from Python as well."""
    return _made(function, entry=True)


def _made(function: Function, entry: bool) -> Function:
    """Machine code is kept for the next process. Loops allocate nothing, so references need not be counted."""
    if not COMPILED:
        return function
    before = _NUMBA.config.CACHE_DIR
    _NUMBA.config.CACHE_DIR = _FOLDER
    try:
        options = {"cache": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
        made: Function = _NUMBA.njit(**options, no_cpython_wrapper=not entry)(function)
    finally:
        _NUMBA.config.CACHE_DIR = before
    return made


def working(values: Any, kind: str = "float") -> Any:
    """A flat, changeable copy of `values` for a loop: an array where loops are compiled, else a list.

    kind: "float" or "int".
    """
    array = np.array(values, dtype=np.float64 if kind == "float" else np.int64).ravel()
    return array if COMPILED else array.tolist()


def filled(count: int, value: float, kind: str = "float") -> Any:
    """`count` equal values as `working` gives them.

    >>> len(filled(3, 0.0))
    3
    """
    return working(np.full(count, value), kind)
