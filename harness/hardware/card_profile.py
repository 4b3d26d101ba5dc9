"""What cards of one model should reach, as the checks use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """One figure of a profile. ``figure`` is the name of a ``records.Figure``, such as ``matmul float32``.

    A measured value below ``value * low`` is too slow, one above ``value * high`` is impossible.
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
    """What cards of one model should reach. ``matches`` are names as the driver reports them."""

    name: str
    matches: tuple[str, ...]
    expected: tuple[Expected, ...]

    def figure(self, name: str) -> Expected | None:
        """Return the figure of that name, if there is one."""
        return next((each for each in self.expected if each.figure == name), None)
