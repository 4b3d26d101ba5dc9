"""What a card should reach, for the checks: its profile if there is one."""

from __future__ import annotations

from collections.abc import Callable

from harness.checks.hardware.expectations import profiles_of
from harness.machine.expectation import CardProfile, Expected
from harness.records import Card

#: Gives the profile of a card, or ``None`` where there is none.
ProfileFor = Callable[[Card], CardProfile | None]


def shipped_profile(card: Card) -> CardProfile | None:
    """The profile that the card names, or else the one for its model."""
    return profiles_of([card]).get(card.label)


def expecting(profile_for: ProfileFor) -> Callable[[Card, str], Expected | None]:
    """A function of a card and the name of a figure that gives what is expected of it."""

    def expected(card: Card, figure: str) -> Expected | None:
        profile = profile_for(card)
        return profile.figure(figure) if profile is not None else None

    return expected
