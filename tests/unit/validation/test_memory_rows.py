"""What a reading of memory sees of the parts that are predicted."""

from __future__ import annotations

import pytest

from ridgeline.core import leaf, total
from ridgeline.specs import SoftwareProfile, TrainingPlan
from ridgeline.training.memory import CONTEXT, SLACK, STATES, peak_memory
from ridgeline.validation.memory import seen_bytes

TREE = total("memory", "B", [leaf("weights", 60.0, "B"), leaf(SLACK, 3.0, "B"), leaf(CONTEXT, 2.0, "B")])


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("observed", 65.0),  # the driver's reading
        ("max_memory_reserved worst rank", 63.0),
        ("max allocated after iter 2", 60.0),
        ("rank-0 peak allocated after iter 2", 60.0),
        ("peak", 60.0),
    ],
)
def test_a_reading_of_the_allocator_does_not_see_what_lies_outside(kind: str, seen: float) -> None:
    assert seen_bytes(TREE, kind) == seen


def test_the_names_that_are_asked_for_are_those_of_the_tree(make_gpt: object) -> None:
    model = make_gpt(4, 1024, 16, sequence=1024)  # type: ignore[operator]
    software = SoftwareProfile(id="x", context_bytes=2e9, fragmentation_frac=0.05)
    tree = peak_memory(model, TrainingPlan(sequence_tokens=1024), software)
    assert tree.value_of(CONTEXT) == 2e9
    assert tree.value_of(SLACK) == pytest.approx(0.05 * (tree.value - 2e9 - tree.value_of(SLACK)))
    assert all(tree.value_of(name) > 0 for name in STATES)
