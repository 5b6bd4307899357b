"""Sequences for loops that are compiled or not, and functions that are marked."""

from __future__ import annotations

import numpy as np

from ridgeline.des.compiled import can_compile, compiled, is_kept, working
from ridgeline.simulation.loop import run


def test_loops_get_flat_sequences_of_their_own():
    given = np.array([[1, 2], [3, 4]])
    lists, arrays = (working(given, "int", compiled=way) for way in (False, True))
    assert lists == [1, 2, 3, 4]
    assert isinstance(arrays, np.ndarray)
    arrays[0] = 9
    assert given[0, 0] == 1
    assert working(given) == [1.0, 2.0, 3.0, 4.0]


def test_marked_functions_stay_what_they_are():
    def double(values, at):
        return values[at] * 2.0

    assert compiled(double) is double
    assert double([1.0, 4.0], 1) == 8.0


def test_without_a_compiler_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert not can_compile()
    assert not is_kept(run)
