"""Remembering by identity: large records are known by what they are, not by what they hold."""

from __future__ import annotations

from ridgeline.specs import SoftwareProfile
from ridgeline.workload.remember import remembered


def test_the_same_object_is_remembered_and_an_equal_one_is_not() -> None:
    calls: list[tuple[str, int]] = []

    @remembered()
    def cost(software: SoftwareProfile, count: int) -> int:
        calls.append((software.id, count))
        return 2 * count

    one, same = SoftwareProfile(id="x"), SoftwareProfile(id="x")
    assert [cost(one, 1), cost(one, 1), cost(one, 2), cost(same, 1)] == [2, 2, 4, 2]
    assert calls == [("x", 1), ("x", 2), ("x", 1)]


def test_it_starts_again_when_full() -> None:
    calls: list[int] = []

    @remembered(limit=2)
    def twice(count: int) -> int:
        calls.append(count)
        return 2 * count

    for count in (1, 2, 3, 1):
        assert twice(count) == 2 * count
    assert calls == [1, 2, 3, 1]
