"""Counts in texts."""

from __future__ import annotations


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Write ``count`` with its noun: ``1 device``, ``1,200 devices``. ``nouns`` is an irregular plural."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"
