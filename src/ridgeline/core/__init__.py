"""Breakdown trees, intervals, notes and the registry of formulas: what every answer is made of."""

from ridgeline.core.breakdown import Breakdown, largest, leaf, total
from ridgeline.core.frozen_map import FrozenMap
from ridgeline.core.interval import (
    Interval,
    combine_correlated,
    combine_independent,
    quadrature,
    sigma_of_residuals,
)
from ridgeline.core.notes import Note, merge
from ridgeline.core.registry import ModelEntry, model, models, out_of_range

__all__ = [
    "Breakdown",
    "FrozenMap",
    "Interval",
    "ModelEntry",
    "Note",
    "combine_correlated",
    "combine_independent",
    "largest",
    "leaf",
    "merge",
    "model",
    "models",
    "out_of_range",
    "quadrature",
    "sigma_of_residuals",
    "total",
]
