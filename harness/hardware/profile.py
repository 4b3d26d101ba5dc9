"""Hardware profiles, ``profiles/hardware/*.toml``: what a card should reach, each figure with its source and date.

The environment variable ``HARNESS_PROFILES`` names a folder of other ones, which come before those that are shipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from harness.devices.shipped import shipped_folder
from harness.errors import UsageError
from harness.hardware.card_profile import CardProfile
from harness.records import Card

#: The environment variable that names the folder, in worker processes too.
_FOLDER = "HARNESS_PROFILES"


def use_profiles(folder: Path | None) -> None:
    """Have this process, and those that it starts, use the profiles in ``folder`` before the shipped ones.

    Raise UsageError if it is no folder or has none, and InvalidProfile for the first one that is not valid.
    """
    if folder is None:
        return
    files = _files_in(folder)
    if not files:
        raise UsageError(
            f"--profiles {folder}: no .toml file is there; accepted: a folder of hardware profiles, as `harness "
            "profile-machine --output FILE.toml` writes them"
        )
    for path in files:
        load_hardware_profile(path)
    os.environ[_FOLDER] = str(folder.resolve())


def profile_files() -> dict[str, Path]:
    """The files of all profiles by the names of the files: first those of the folder in use, then the shipped ones."""
    chosen = os.environ.get(_FOLDER)
    own = {path.stem: path for path in _files_in(Path(chosen))} if chosen else {}
    shipped = {path.stem: path for path in _files_in(shipped_folder("hardware"))}
    return {**own, **{name: path for name, path in shipped.items() if name not in own}}


def hardware_profiles() -> tuple[CardProfile, ...]:
    """Return all profiles: first those of the folder in use, then the shipped ones, each sorted by file name."""
    return _loaded(tuple(profile_files().values()))


@lru_cache(maxsize=4)
def _loaded(paths: tuple[Path, ...]) -> tuple[CardProfile, ...]:
    return tuple(map(load_hardware_profile, paths))


def _files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))


def profile_of(card: Card) -> CardProfile | None:
    """Return the profile that the card names, or else the one for its model; ``None`` for a part of a card."""
    if card.part is not None:
        return None
    named = (profile for profile in hardware_profiles() if profile.name == card.profile)
    return next(named, None) or profile_for(card.name)


def profiles_of(cards: Iterable[Card]) -> dict[str, CardProfile]:
    """Return the profiles of those cards that have one, by label."""
    return {card.label: profile for card in cards if (profile := profile_of(card)) is not None}


def profile_for(name: str) -> CardProfile | None:
    """Return the profile for what NVML calls ``name``, or ``None``."""
    wanted = _plain(name)
    for profile in hardware_profiles():
        if any(_plain(known) == wanted for known in profile.matches):
            return profile
    return None


def load_hardware_profile(path: Path) -> CardProfile:
    """Read and validate one file. Raise InvalidProfile if it cannot be read, or with the first wrong key."""
    from harness.devices.toml_file import read_text
    from harness.hardware.profile_schema import read_hardware_document

    return read_hardware_document(path, read_text(path)).profile()


def _plain(name: str) -> str:
    """Normalise a name: drivers before 470 left out the vendor."""
    return " ".join(name.split()).removeprefix("NVIDIA ").casefold()
