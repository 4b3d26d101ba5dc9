"""Hardware profiles, ``profiles/hardware/*.toml``: what a card should reach, each figure with its source and date."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from harness.devices.shipped import shipped_folder
from harness.errors import InvalidProfile
from harness.hardware.card_profile import CardProfile
from harness.records import Card

#: Returns the profile of a card, or ``None``.
ProfileOf = Callable[[Card], CardProfile | None]


def profile_of(card: Card) -> CardProfile | None:
    """Return the profile that the card names, or else the one for its model; ``None`` for a part of a card."""
    if card.part is not None:
        return None
    named = (profile for profile in shipped_hardware_profiles() if profile.name == card.profile)
    return next(named, None) or profile_for(card.name)


def profiles_of(cards: Iterable[Card], find: ProfileOf = profile_of) -> dict[str, CardProfile]:
    """Return the profiles of those cards that have one, by label."""
    return {card.label: profile for card in cards if (profile := find(card)) is not None}


def profile_for(name: str, extra: Iterable[Path | str] = ()) -> CardProfile | None:
    """Return the profile for what NVML calls ``name``, or ``None``. Files of ``extra`` come before the shipped ones."""
    wanted = _plain(name)
    for profile in (*(load_hardware_profile(path) for path in extra), *shipped_hardware_profiles()):
        if any(_plain(known) == wanted for known in profile.matches):
            return profile
    return None


@lru_cache(maxsize=1)
def shipped_hardware_profiles() -> tuple[CardProfile, ...]:
    """Return all shipped profiles, sorted by file name."""
    return tuple(load_hardware_profile(path) for path in sorted(shipped_folder("hardware").glob("*.toml")))


def load_hardware_profile(path: Path | str) -> CardProfile:
    """Read and validate one file. Raise InvalidProfile if it cannot be read, or with the first wrong key."""
    from harness.hardware.profile_schema import read_hardware_document

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidProfile(path, "", error.strerror, "a readable TOML file") from error
    except UnicodeDecodeError as error:
        raise InvalidProfile(path, "", "not UTF-8 text", "a readable TOML file") from error
    return read_hardware_document(Path(path), text).profile()


def _plain(name: str) -> str:
    """Normalise a name: drivers before 470 left out the vendor."""
    return " ".join(name.split()).removeprefix("NVIDIA ").casefold()
