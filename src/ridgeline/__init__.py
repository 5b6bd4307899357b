"""Ridgeline: how fast, how hot, how much memory, energy and money a model needs on a given machine, and why."""

__version__ = "0.1.0"
