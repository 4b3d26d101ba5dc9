"""What the cards of a machine should reach, from the profiles that there are."""

from __future__ import annotations

from collections.abc import Iterable

from harness.machine.expectation import CardProfile
from harness.machine.hardware_profile import profile_for, shipped_hardware_profiles
from harness.records import Card


def profiles_of(cards: Iterable[Card]) -> dict[str, CardProfile]:
    """The profile of each card that has one, by label: the one for its model, or else the one that it names."""
    found = {card.label: profile_for(card.name) or _named(card.profile) for card in cards}
    return {label: profile for label, profile in found.items() if profile is not None}


def _named(name: str | None) -> CardProfile | None:
    return next((profile for profile in shipped_hardware_profiles() if profile.name == name), None)
