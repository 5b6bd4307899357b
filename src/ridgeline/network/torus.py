"""Slices of a torus: their shapes, which of their axes close into rings, and what a group takes of each axis.

A job holds a block of chips, its slice. Consecutive device numbers fill the shortest axis first, then the next, so that
groups that nest (tensor inside data) never claim the same axis twice: the group of the first t numbers takes whole axes
where t allows it, and the group with stride t takes what is left. Where one axis is shared, the members of the outer
group lie several links apart, and as many such groups share every link of that axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ridgeline.specs import RankGroup, System

TORUS_KINDS = ("ring", "torus2d", "torus3d")
_CUBE_EDGE = 4  # src: google-tpu-v5p (optical switches join cubes of 4 x 4 x 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What a group takes of one axis of a slice: members, links between neighbours, and whether they close a ring."""

    members_count: int
    spacing_count: int = 1
    closed: bool = False

    @property
    def links_count(self) -> float:
        """Links at work for each of the side-by-side groups: two on a ring, one there and back on a line."""
        if self.members_count == 1:
            return 0.0
        return (2.0 if self.closed and self.members_count > 2 else 1.0) / self.spacing_count

    @property
    def hops_count(self) -> int:
        """Links of the longest way between two members."""
        steps = self.members_count // 2 if self.closed else self.members_count - 1
        return self.spacing_count * steps


@lru_cache(maxsize=4096)  # src: rl-numerics
def slice_shape(axes: tuple[int, ...], kind: str, count: int) -> tuple[int, ...]:
    """Lengths of the axes of a slice of `count` chips of a torus of `axes`, shortest first.

    The most even block of exactly `count` chips that fits, on a three-dimensional torus one of whole cubes (multiples
    of 4) where there is one, as the makers sell them; where no block has that number of chips, the next larger one.
    Sources: Google's pages of TPU v5e (2x2 to 16x16) and v5p (2x2x1 to 16x16x24).

    >>> slice_shape((16, 16), "torus2d", 128), slice_shape((16, 16, 24), "torus3d", 32)
    ((8, 16), (2, 4, 4))
    >>> slice_shape((16, 16, 24), "torus3d", 6144)
    (16, 16, 24)
    """
    limits = tuple(sorted(axes))
    most = math.prod(limits)
    for tried in range(min(max(1, count), most), most + 1):
        blocks = list(_blocks(tried, limits))
        if blocks:
            return min(blocks, key=lambda block: (kind == "torus3d" and not _cubes(block), block[-1] / block[0], block))
    return limits


def _blocks(count: int, limits: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Ascending lengths whose product is `count`, each within its limit."""
    if len(limits) == 1:
        if count <= limits[0]:
            yield (count,)
        return
    for length in range(1, limits[0] + 1):
        if count % length == 0:
            for rest in _blocks(count // length, limits[1:]):
                if rest[0] >= length:
                    yield (length, *rest)


def _cubes(block: Sequence[int]) -> bool:
    return all(length % _CUBE_EDGE == 0 for length in block)


def closed_axes(axes: Sequence[int], kind: str, shape: Sequence[int]) -> tuple[bool, ...]:
    """Whether each axis of a slice of `shape` closes into a ring.

    On a three-dimensional torus optical switches close all axes of a slice of whole 4x4x4 cubes, and none of a smaller
    one. On a torus without such switches an axis closes only at its full length. Sources: Google's page of TPU v5p
    ("all 4x4x4 and larger slices have full 3D torus"); the Scaling Book for v5e and v6e (only axes of 16).

    >>> closed_axes((16, 16), "torus2d", (8, 16)), closed_axes((16, 16, 16), "torus3d", (2, 4, 4))
    ((False, True), (False, False, False))
    """
    if kind == "torus3d":
        return (_cubes(shape) or list(shape) == sorted(axes),) * len(shape)
    return tuple(length == whole for length, whole in zip(shape, sorted(axes), strict=True))


def spans(axes: tuple[int, ...], kind: str, group: RankGroup, slice_count: int = 0) -> tuple[Span, ...]:
    """What `group` takes of each axis of a slice of `slice_count` chips (0: the slice is the group with its stride).

    Part of an axis is a line: the switches join the ends of a slice, not of a group.

    >>> [s.members_count for s in spans((16, 16), "torus2d", RankGroup(size_count=16, stride_count=16), 256)]
    [1, 16]
    >>> spans((16, 16), "torus2d", RankGroup(size_count=64, stride_count=4), 256)[0]
    Span(members_count=4, spacing_count=4, closed=True)
    """
    extent = group.size_count * group.stride_count
    shape = slice_shape(axes, kind, max(slice_count, extent))
    rings = closed_axes(axes, kind, shape)
    found = []
    before, left = group.stride_count, group.size_count
    for index, length in enumerate(shape):
        taken = min(length, before)
        before = math.ceil(before / taken)
        here = min(left, max(1, length // taken))
        if index == len(shape) - 1:
            here = min(left, length)
        left = math.ceil(left / here)
        closed = rings[index] and here * taken >= length
        found.append(Span(members_count=here, spacing_count=taken if here > 1 else 1, closed=closed))
    return tuple(found)


@lru_cache(maxsize=256)
def sliced(system: System, devices_count: int) -> System:
    """`system` as a job of `devices_count` devices sees it: every torus level knows the slice that the job holds.

    Machines without a torus come back as they are.
    """
    if not any(level.kind in TORUS_KINDS for level in system.levels):
        return system
    levels = tuple(
        replace(level, slice_count=min(devices_count, level.size_count or devices_count))
        if level.kind in TORUS_KINDS
        else level
        for level in system.levels
    )
    return replace(system, levels=levels)
