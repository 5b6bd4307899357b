"""One code path for hot loops: as machine code where numba is installed and it is worth it, as plain Python elsewhere.

A loop is written on flat sequences and numbers, and its functions are marked with `compiled`, which leaves them as they
are. `machine_code` gives the compiled form of one of them and of all that it calls. `working` makes the sequences:
arrays for machine code, lists for Python (from which single elements come several times quicker). Both hold IEEE
doubles and whole numbers, and the compiler may not reorder arithmetic, so both ways give the same bits.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

_marked: list[Any] = []
_made: dict[Any, Any] = {}


def compiled(function: Function) -> Function:
    """Mark a function of a loop as one that can be compiled; returns it as it is."""
    _marked.append(function)
    return function


def can_compile() -> bool:
    """Whether numba is installed and not switched off (NUMBA_DISABLE_JIT=1)."""
    return importlib.util.find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") != "1"


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether machine code of `function` is at hand in this process."""
    return function in _made


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether an earlier process has compiled `function` from the same sources and kept it."""
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}-*.nbi"
    return can_compile() and any(_folder().glob(f"*/{name}"))


def machine_code(function: Function) -> Function:
    """The compiled form of a marked function. Everything that is marked is compiled on its first call: half a minute,
    or half a second where an earlier process has kept the result."""
    if function not in _made:
        _compile_all()
    made: Function = _made[function]
    return made


def working(values: Any, kind: str = "float", compiled: bool = False) -> Any:
    """A flat, changeable copy of `values` for a loop: an array for machine code, else a list.

    kind: "float" or "int".

    >>> working([[1, 2], [3, 4]])
    [1.0, 2.0, 3.0, 4.0]
    """
    array = np.array(values, dtype=np.float64 if kind == "float" else np.int64).ravel()
    return array if compiled else array.tolist()


def _folder() -> Path:
    """Where machine code is kept: one folder for each state of the loops' sources (files named loop*), because a
    compiled function contains those that it calls and the compiler's own cache looks at one file alone."""
    here = Path(__file__).resolve()
    digest = hashlib.sha256()
    for path in sorted([here, *here.parents[1].glob("*/loop*.py")]):
        digest.update(path.read_bytes())
    return here.parent / "__pycache__" / f"numba-{digest.hexdigest()[:16]}"


def _compile_all() -> None:
    """Copies of all marked functions that call each other's compiled forms and not the plain ones.

    Loops allocate nothing, so references need not be counted; they divide by nothing that can be zero.
    """
    numba: Any = importlib.import_module("numba")

    options = {"cache": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
    spaces: dict[str, dict[str, Any]] = {}
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_folder())
    try:
        for function in _marked:
            space = spaces.setdefault(function.__module__, dict(vars(sys.modules[function.__module__])))
            copy = FunctionType(function.__code__, space, function.__name__, function.__defaults__)
            copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
            _made[function] = numba.njit(**options)(copy)
    finally:
        numba.config.CACHE_DIR = before
    for space in spaces.values():
        for name, value in space.items():
            if isinstance(value, FunctionType) and value in _made:
                space[name] = _made[value]
