"""Central 80 % intervals of positive quantities, as log-normal spreads."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# 80 % of a normal distribution lies within this many standard deviations of its mean.
Z_80 = 1.2815515655446004  # src: normal-quantile-0.9


@dataclass(frozen=True, slots=True)
class Interval:
    """A best value with the central 80 % range around it, all in one unit.

    >>> i = Interval.from_sigma(100.0, 0.1)
    >>> round(i.low, 1), round(i.high, 1)
    (88.0, 113.7)
    """

    low: float
    best: float
    high: float

    @classmethod
    def from_sigma(cls, best: float, sigma: float) -> Interval:
        """From the standard deviation `sigma` of the logarithm."""
        factor = math.exp(Z_80 * sigma)
        return cls(best / factor, best, best * factor)

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A value that is not in doubt."""
        return cls(value, value, value)

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm that the range stands for."""
        if self.low <= 0 or self.high <= 0:
            return 0.0
        return math.log(self.high / self.low) / (2 * Z_80)

    def scaled(self, factor: float) -> Interval:
        """The interval of `factor` times the quantity; the ends swap where `factor` is negative."""
        ends = sorted((self.low * factor, self.high * factor))
        return Interval(ends[0], self.best * factor, ends[1])

    def inverted(self, numerator: float = 1.0) -> Interval:
        """The interval of `numerator` over the quantity (a time from a rate)."""
        return Interval(numerator / self.high, numerator / self.best, numerator / self.low)

    def contains(self, value: float) -> bool:
        """Whether `value` lies inside, ends included."""
        return self.low <= value <= self.high

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        return {"low": self.low, "best": self.best, "high": self.high}


def sigma_of_residuals(p50_ape: float, p90_ape: float) -> float:
    """Log standard deviation that a calibration's median and 90th-percentile error stand for.

    The larger of the two estimates is taken: residuals have heavier tails than a normal distribution and an
    interval must not be too narrow. 0.6745 and 1.6449 are the two-sided 50 % and 90 % points.
    """
    return max(math.log1p(p50_ape) / 0.6745, math.log1p(p90_ape) / 1.6449)  # src: normal-quantiles


def combine_independent(terms: Iterable[tuple[float, float]]) -> float:
    """Log-sigma of a sum of independent terms given as (value, sigma of its logarithm).

    >>> round(combine_independent([(1.0, 0.1), (1.0, 0.1)]), 4)
    0.0707
    """
    pairs = list(terms)
    whole = sum(value for value, _ in pairs)
    if whole <= 0:
        return 0.0
    return math.sqrt(sum((value * sigma) ** 2 for value, sigma in pairs)) / whole


def combine_correlated(terms: Iterable[tuple[float, float]]) -> float:
    """Log-sigma of a sum of terms that err together (kernels of one fit): value-weighted mean."""
    pairs = list(terms)
    whole = sum(value for value, _ in pairs)
    if whole <= 0:
        return 0.0
    return sum(value * sigma for value, sigma in pairs) / whole


def quadrature(*sigmas: float) -> float:
    """Root of the sum of squares: independent factors of one product."""
    return math.sqrt(sum(sigma * sigma for sigma in sigmas))
