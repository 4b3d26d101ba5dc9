"""What a card should reach: read from ``profiles/hardware/*.toml``, each figure with its source and date."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """One figure of a profile. ``figure`` is the name of a ``records.Figure``, such as ``matmul float32``.

    A measured value below ``value * low`` is too slow, above ``value * high`` too high to be true.
    """

    figure: str
    value: float
    unit: str
    source: str
    date: str
    low: float = 0.5
    high: float = 1.05


@dataclass(frozen=True, slots=True)
class CardProfile:
    """What cards of one kind should reach. ``matches`` are names as the driver reports them."""

    name: str
    matches: tuple[str, ...]
    expected: tuple[Expected, ...]

    def figure(self, name: str) -> Expected | None:
        """The expectation for a figure of that name, if there is one."""
        return next((each for each in self.expected if each.figure == name), None)
