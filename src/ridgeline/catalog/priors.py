"""What is known of a law before a user's own measurements: how far its parameters lie apart among fitted devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median, pstdev

from ridgeline.catalog import build
from ridgeline.catalog.loader import Catalog
from ridgeline.core import FrozenMap
from ridgeline.device.calibrate import FREE, Prior
from ridgeline.specs import Law

# A spread of fewer devices says nothing; one wider than a factor e is a parameter that the tables did not determine.
_FEWEST = 3
_WIDEST, _NARROWEST = 1.0, 0.02
_NORMAL_HALF = 0.6745  # src: normal-quantiles


def law_priors(catalog: Catalog, keys: Iterable[str]) -> dict[str, Prior]:
    """The prior of each of `keys` of which at least three devices (links, for collectives) have a law of their own.

    `spread` is the standard deviation of the logarithm of a parameter over those; the noise is the middle one of their
    median errors, as a log sigma: what the form of the law leaves even where it was fitted on thousands of points.
    """
    laws = [law for id in catalog.ids("efficiency") for law in _measured(catalog, id).items()]
    found = {}
    for key in keys:
        alike = [law for other, law in laws if _same_family(other, key)]
        if len(alike) >= _FEWEST:
            found[key] = Prior(spread=FrozenMap(_spread(alike)), noise_sigma=_noise(alike))
    return found


def _measured(catalog: Catalog, id: str) -> Mapping[str, Law]:
    """Laws of one record that were fitted to one device, or to one kind of link."""
    record = catalog.record("efficiency", id)
    laws = build.laws_of(record)
    if record["level"] == "device":
        return laws
    return {key: law for key, law in laws.items() if key.startswith("collective.")}


def _same_family(other: str, key: str) -> bool:
    if not key.startswith("collective."):
        return other == key
    return other.startswith("collective.") and other.rpartition(".")[2] == key.rpartition(".")[2]


def _spread(laws: list[Law]) -> dict[str, float]:
    found = {}
    for name in FREE:
        values = [law.parameters[name] for law in laws if law.parameters.get(name, 0.0) > 0]
        if len(values) >= _FEWEST:
            found[name] = min(_WIDEST, max(_NARROWEST, pstdev(math.log(value) for value in values)))
    return found


def _noise(laws: list[Law]) -> float:
    return median(math.log1p(law.ape_p50_frac) for law in laws) / _NORMAL_HALF
