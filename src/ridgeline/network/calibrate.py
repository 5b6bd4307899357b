"""Measured collectives of one machine: the law of the link that they cross moves as those of kernels do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ridgeline.device.calibrate import LawFit, Prior, default_prior, fit_law, with_laws
from ridgeline.network.estimate import collective_time
from ridgeline.network.laws import law_for
from ridgeline.network.topology import tiers
from ridgeline.specs import Calibration, Law, RankGroup, System


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePoint:
    """One measured collective: kind, message (as nccl-tests counts it), ranks, time."""

    kind: str
    message_bytes: float
    group: RankGroup
    time_s: float


def calibrate_collectives(
    points: Sequence[CollectivePoint], system: System, calibration: Calibration, priors: Mapping[str, Prior]
) -> tuple[LawFit, ...]:
    """Laws of the links of `system` that `points` were measured for.

    A collective over several levels tells about the widest; the levels below keep their laws. Raises `BadPlan` where a
    group reaches beyond the machine.
    """
    groups: dict[str, tuple[Law, list[CollectivePoint]]] = {}
    for point in points:
        level = tiers(point.group, system)[-1].level
        key = f"collective.{level.link}.{point.kind}"
        groups.setdefault(key, (law_for(level, point.kind, calibration), []))[1].append(point)
    found = []
    for key, (law, mine) in groups.items():

        def predicted(tried: Law, key: str = key, mine: Sequence[CollectivePoint] = mine) -> list[float]:
            laws = with_laws(calibration, {key: tried})
            return [collective_time(p.kind, p.message_bytes, p.group, system, laws).time_s for p in mine]

        prior = priors.get(key) or default_prior(law)
        found.append(fit_law(key, law, prior, (predicted, [point.time_s for point in mine])))
    return tuple(found)
