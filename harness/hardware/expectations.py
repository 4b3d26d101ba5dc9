"""What the cards of a machine should reach, from the profiles that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.hardware.expectation import CardProfile, Expected
from harness.hardware.profile import profile_for, shipped_hardware_profiles
from harness.records import Card

#: Gives the profile of a card, or ``None`` where there is none.
ProfileFor = Callable[[Card], CardProfile | None]


def profiles_of(cards: Iterable[Card]) -> dict[str, CardProfile]:
    """The profile of each card that has one, by label: the one for its model, or else the one that it names."""
    found = {card.label: profile_for(card.name) or _named(card.profile) for card in cards}
    return {label: profile for label, profile in found.items() if profile is not None}


def _named(name: str | None) -> CardProfile | None:
    return next((profile for profile in shipped_hardware_profiles() if profile.name == name), None)


def shipped_profile(card: Card) -> CardProfile | None:
    """The profile that the card names, or else the one for its model."""
    return profiles_of([card]).get(card.label)


def expecting(profile_for: ProfileFor) -> Callable[[Card, str], Expected | None]:
    """A function of a card and the name of a figure that gives what is expected of it."""

    def expected(card: Card, figure: str) -> Expected | None:
        profile = profile_for(card)
        return profile.figure(figure) if profile is not None else None

    return expected
