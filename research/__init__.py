"""Experiments and documents about our own models; not part of the package."""
