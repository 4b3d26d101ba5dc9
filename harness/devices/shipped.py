"""The files that the project ships beside its code: ``profiles/`` of a checkout, ``harness/_profiles`` of a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "_profiles", _PACKAGE.parent / "profiles")


def shipped_folder(kind: str) -> Path:
    """The folder of one kind: ``devices``, ``hardware`` or ``fake``.

    Raises:
        FileNotFoundError: the installation is broken: neither a wheel's folder nor a checkout's is there.
    """
    folders = [folder / kind for folder in _FOLDERS]
    for folder in folders:
        if folder.is_dir():
            return folder
    places = " nor ".join(str(folder) for folder in folders)
    raise FileNotFoundError(f"the shipped files of {kind} are missing: neither {places} is there; install again")
