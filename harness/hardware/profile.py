"""Loads ``profiles/hardware/*.toml``: what a card should reach."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from harness.devices.shipped import shipped_folder
from harness.errors import InvalidProfile
from harness.hardware.expectation import CardProfile


def profile_for(name: str, extra: Iterable[Path | str] = ()) -> CardProfile | None:
    """The profile of the card that NVML calls ``name``, or ``None``. Files of ``extra`` come before the shipped ones.

    Raises:
        InvalidProfile: a file is broken.
    """
    wanted = _plain(name)
    for profile in (*(load_hardware_profile(path) for path in extra), *shipped_hardware_profiles()):
        if any(_plain(known) == wanted for known in profile.matches):
            return profile
    return None


@lru_cache(maxsize=1)
def shipped_hardware_profiles() -> tuple[CardProfile, ...]:
    """All shipped profiles, sorted by file name."""
    return tuple(load_hardware_profile(path) for path in sorted(shipped_folder("hardware").glob("*.toml")))


def load_hardware_profile(path: Path | str) -> CardProfile:
    """Read and validate one file.

    Raises:
        InvalidProfile: the file cannot be read, is not TOML, or a key in it is unknown, missing or not accepted.
    """
    from harness.hardware.profile_schema import read_hardware_document

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidProfile(path, "the file", error.strerror, "a TOML file that can be read") from error
    except UnicodeDecodeError as error:
        raise InvalidProfile(path, "the file", "other bytes", "UTF-8 text") from error
    return read_hardware_document(Path(path), text).profile()


def _plain(name: str) -> str:
    """Drivers before 470 left the maker's name out."""
    return " ".join(name.split()).removeprefix("NVIDIA ").casefold()
