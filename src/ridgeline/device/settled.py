"""The laws of a chip that never rests."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ridgeline.core import FrozenMap
from ridgeline.device.optime import gemm_law
from ridgeline.specs import Calibration, Chip

_SETTLED_S = 1e-9  # src: rl-numerics (any kernel is long against it)


@lru_cache(maxsize=64)
def settled(calibration: Calibration) -> Calibration:
    """The laws of a chip that has been busy for long: its clock has come down to what its power allows.

    Product laws lower the clock with the length of a kernel, as in a benchmark that rests in between; a loaded server
    or a training step never rests, so the full reduction holds however short its kernels are. It grows with the square
    of the share of peak that a kernel reaches, so that kernels bound by memory keep their time.
    """
    laws = {
        key: replace(law, parameters=FrozenMap({**law.parameters, "sustained_s": _SETTLED_S}))
        if "sustained_s" in law.parameters
        else law
        for key, law in calibration.laws.items()
    }
    return replace(calibration, laws=FrozenMap(laws))


@lru_cache(maxsize=64)
def unthrottled(calibration: Calibration) -> Calibration:
    """The laws at the clock of a chip that rests: for work whose reduced clock is worked out as a whole."""
    laws = {
        key: replace(law, parameters=FrozenMap({**law.parameters, "sustained_frac": 1.0}))
        if "sustained_frac" in law.parameters
        else law
        for key, law in calibration.laws.items()
    }
    return replace(calibration, laws=FrozenMap(laws))


def sustained_clock_frac(calibration: Calibration, chip: Chip, precision: str) -> float:
    """The share of its clock that `chip` keeps under endless products in `precision` (1 where nothing is known)."""
    law, _ = gemm_law(calibration, chip, precision)
    return law.parameters.get("sustained_frac", 1.0)
