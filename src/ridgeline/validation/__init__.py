"""Scoring predictions against published measurements."""

from ridgeline.validation.run import KINDS, run

__all__ = ["KINDS", "run"]
