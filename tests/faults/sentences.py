"""The cause that is reported for each planted fault, without the numbers that another machine rounds otherwise.

``python tests/faults/sentences.py [NAME ...]`` writes ``sentences.txt`` anew, or the lines of these faults: the diff
shows what has changed. ``test_planted_faults.py`` compares.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

# The repository's own package, whether it is installed or not.
sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

_FILE = Path(__file__).with_suffix(".txt")
#: A line of a file, a fraction, and the number in a name, which depends on what has run before.
_LINE = re.compile(r"(\w[\w./-]*\.py):\d+")
_FRACTION = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+")
_NUMBERED = re.compile(r"(?<=[a-zA-Z])_\d+\b")


def shown(reason: str) -> str:
    """The cause in a reason, as it is stored: without the first op that differs, whose line has a test of its own."""
    from harness.faults.selftest import first_sentence

    cause = first_sentence(reason).partition("; the first op")[0]
    return _NUMBERED.sub("", _FRACTION.sub("#", _LINE.sub(r"\1", cause)))


def stored() -> dict[str, str]:
    """The stored causes, by the names of the faults."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return dict(zip(lines[::2], (line.strip() for line in lines[1::2]), strict=True))


def main(names: list[str]) -> None:
    """Judge the faults on four logical CPUs, and store the causes that are reported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import harness
    from harness.faults.catalogue import FAULTS

    devices = harness.configure("cpu:4")
    said = stored() if names else {}
    for name, fault in FAULTS.items():
        if not fault.unsuited(devices) and (not names or name in names):
            said[name] = shown(fault.plant(devices).judge(devices, faulty=True).reason)
    lines = [f"{name}\n    {said[name]}\n" for name in FAULTS if name in said]
    _FILE.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
