"""Differences between two courses of a training, as findings."""

from __future__ import annotations

from collections.abc import Iterator

from harness.distribute.differences import ROUNDING_FACTOR, Compared, Difference
from harness.records import Finding

_WORDS = {
    "loss": "the loss leaves",
    "metric": "metrics leave",
    "gradient": "gradients leave",
    "weight": "weights leave",
    "slot": "slots leave",
}


def findings_of(compared: Compared, loop: str) -> Iterator[Finding]:
    """One finding for each quantity, that of the first step and the variable that is furthest off."""
    for name, want, got in compared.structure[:1]:
        kind = "missing-gradient" if name.startswith("gradient") and got == "not there" else "structure"
        yield Finding(
            kind, f"{name} ({loop})", None, want, got, f"{len(compared.structure)} such difference(s) from one device"
        )
    groups: dict[str, list[Difference]] = {}
    for difference in compared.differences:
        groups.setdefault(difference.quantity, []).append(difference)
    for quantity, differences in groups.items():
        first = min(differences, key=lambda difference: (difference.step, -difference.share))
        more = "" if len(differences) == 1 else f" and {len(differences) - 1} more"
        yield Finding(
            first.kind,
            f"{quantity} {first.name}{more}, step {first.step} ({loop})"
            if first.name != quantity
            else f"{quantity}, step {first.step} ({loop})",
            None,
            f"within {first.bound:.3g} of one device ({ROUNDING_FACTOR:g} times what rounding does to it)",
            f"{first.error:.3g} away",
            f"{_WORDS[quantity]} the course of one device",
        )
