"""Which device counts a candidate means."""

from __future__ import annotations

import pytest

from ridgeline.errors import BadPlan
from ridgeline.scenario.quantities import Sizes, sizes
from ridgeline.scenario.sizes import expand
from ridgeline.specs import Chip, System


def machine(**changes: object) -> System:
    values: dict[str, object] = {
        "id": "box",
        "name": "",
        "chip": Chip(id="c"),
        "devices_per_node_count": 8,
        "levels": (),
    }
    return System(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128..512", (128, 256, 512)),
        ("100..500", (104, 208, 416)),  # 100 is rounded up to 13 nodes of 8
        ("1..32", (1, 2, 4, 8, 16, 32)),
        ("3..20", (3, 6, 16)),  # 12 would be a node and a half
        ("8..8", (8,)),
    ],
)
def test_ranges_double_in_whole_nodes(text: str, expected: tuple[int, ...]) -> None:
    assert expand(sizes(text), machine(), "w") == expected


def test_listed_sizes_are_taken_as_they_stand() -> None:
    assert expand(Sizes((192, 128, 4)), machine(), "w") == (192, 128, 4)


@pytest.mark.parametrize(
    ("wanted", "system", "told"),
    [
        (Sizes((12,)), machine(), "w: got 12 devices, not whole nodes of 8 (nearest sizes: 8, 16)"),
        (Sizes((4096,)), machine(max_devices_count=1024), "box has at most 1024"),
        (Sizes((100,)), machine(sizes_count=(8, 16, 64, 128)), "no slice of 100 devices (nearest sizes: 16, 64, 128)"),
        (Sizes((9, 15), doubling=True), machine(sizes_count=(8, 16)), "no size of box lies in 9..15"),
        (Sizes((2048, 4096), doubling=True), machine(max_devices_count=1024), "no size of box lies in 2048..4096"),
    ],
)
def test_sizes_that_do_not_exist_name_the_nearest(wanted: Sizes, system: System, told: str) -> None:
    with pytest.raises(BadPlan) as caught:
        expand(wanted, system, "w")
    assert told in str(caught.value)


def test_slices_in_a_range_are_those_that_exist() -> None:
    assert expand(sizes("10..128"), machine(sizes_count=(8, 16, 64, 128, 256)), "w") == (16, 64, 128)
