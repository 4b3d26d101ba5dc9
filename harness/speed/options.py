"""Parses the options of a measurement: its time budget, and its precision."""

from __future__ import annotations

from harness.errors import UsageError


def parse_budget_s(text: str) -> float:
    """Parse seconds, such as ``5`` or ``0.5``. Raise UsageError if it is not a positive number of at most a day."""
    seconds = _number(text)
    if seconds is None or not 0.0 < seconds <= 86_400.0:
        raise UsageError(f"budget {text!r}; accepted: seconds above 0 and up to 86,400, such as 5")
    return seconds


def parse_share(text: str, option: str = "share") -> float:
    """Parse a share above 0 and below 1, such as ``1%`` or ``0.01``. Raise UsageError if ``option`` is neither."""
    number = _number(text.strip().removesuffix("%"))
    share = None if number is None else number / 100.0 if text.strip().endswith("%") else number
    if share is None or not 0.0 < share < 1.0:
        raise UsageError(
            f"{option} {text!r}; accepted: a percentage above 0% and below 100%, such as 1%, or a fraction, such as "
            "0.01"
        )
    return share


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
