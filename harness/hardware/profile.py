"""Hardware profiles, ``profiles/hardware/*.toml``: what a card should reach, each figure with its source and date."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from harness.devices.shipped import shipped_folder
from harness.hardware.card_profile import CardProfile
from harness.records import Card


def profile_of(card: Card) -> CardProfile | None:
    """Return the profile that the card names, or else the one for its model; ``None`` for a part of a card."""
    if card.part is not None:
        return None
    named = (profile for profile in shipped_hardware_profiles() if profile.name == card.profile)
    return next(named, None) or profile_for(card.name)


def profiles_of(cards: Iterable[Card]) -> dict[str, CardProfile]:
    """Return the profiles of those cards that have one, by label."""
    return {card.label: profile for card in cards if (profile := profile_of(card)) is not None}


def profile_for(name: str) -> CardProfile | None:
    """Return the profile for what NVML calls ``name``, or ``None``."""
    wanted = _plain(name)
    for profile in shipped_hardware_profiles():
        if any(_plain(known) == wanted for known in profile.matches):
            return profile
    return None


@lru_cache(maxsize=1)
def shipped_hardware_profiles() -> tuple[CardProfile, ...]:
    """Return all shipped profiles, sorted by file name."""
    return tuple(load_hardware_profile(path) for path in sorted(shipped_folder("hardware").glob("*.toml")))


def load_hardware_profile(path: Path) -> CardProfile:
    """Read and validate one file. Raise InvalidProfile if it cannot be read, or with the first wrong key."""
    from harness.devices.toml_file import read_text
    from harness.hardware.profile_schema import read_hardware_document

    return read_hardware_document(path, read_text(path)).profile()


def _plain(name: str) -> str:
    """Normalise a name: drivers before 470 left out the vendor."""
    return " ".join(name.split()).removeprefix("NVIDIA ").casefold()
