"""Finds the shipped files: in ``profiles/`` of a checkout, or ``harness/_profiles`` of a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "_profiles", _PACKAGE.parent / "profiles")


def shipped_folder(kind: str) -> Path:
    """Find the folder of one kind: ``devices``, ``hardware`` or ``fake``.

    Raise FileNotFoundError if the installation is broken.
    """
    folders = [folder / kind for folder in _FOLDERS]
    for folder in folders:
        if folder.is_dir():
            return folder
    places = " nor ".join(str(folder) for folder in folders)
    missing = f"the shipped folder {kind!r} is missing: neither {places} exists"
    raise FileNotFoundError(f"{missing}; reinstall tf-placement-harness")
