"""Fitting of the kernel laws to measured tables: a development tool, not part of the package."""
