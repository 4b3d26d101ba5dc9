"""Judges a training under a strategy by the same training on one device."""
