"""What a run has in common with the runs that it may be compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.records import Card, Cohort, Fingerprint


def cohort_of(cards: Sequence[Card], fingerprint: Fingerprint | None, harness: str) -> Cohort | None:
    """Return the cohort of a machine; ``None`` while its devices are unknown.

    Cards that do not answer have no model, so they leave the cohort as it is.
    """
    answering = [card for card in cards if card.error is None]
    if not answering or fingerprint is None:
        return None
    return Cohort(
        card=_listed(card.name for card in answering),
        driver=fingerprint.driver or "no driver",
        vbios=_listed(card.vbios or "unknown" for card in answering),
        harness=harness,
    )


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted({*values}))
