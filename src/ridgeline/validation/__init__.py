"""Scoring predictions against published measurements."""

from ridgeline.validation.run import run

__all__ = ["run"]
