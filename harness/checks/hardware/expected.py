"""What a card should reach, for the checks: its profile if there is one."""

from __future__ import annotations

from collections.abc import Callable

from harness.machine.expectation import CardProfile, Expected
from harness.records import Card

#: Gives the profile of a card, or ``None`` where there is none.
ProfileFor = Callable[[Card], CardProfile | None]


def no_profile(card: Card) -> CardProfile | None:  # noqa: ARG001 - it is one of the functions that take a card
    """No profile for any card: it is judged against its like."""
    return None


def expecting(profile_for: ProfileFor) -> Callable[[Card, str], Expected | None]:
    """A function of a card and the name of a figure that gives what is expected of it."""

    def expected(card: Card, figure: str) -> Expected | None:
        profile = profile_for(card)
        return profile.figure(figure) if profile is not None else None

    return expected
