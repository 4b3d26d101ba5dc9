"""Why TensorFlow leaves out a GPU: it says so in its log only."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from harness.records import Card

#: Lines in which TensorFlow's ``gpu_device.cc`` says that it leaves out a GPU, and of which one.
_IGNORED = re.compile(r"Ignoring visible gpu device \(.*?pci bus id: (?P<pci>[0-9a-fA-F:.]+).*?\)(?P<why>.*)")
_LONGEST = 4 * 2**20
#: What its reasons lead to.
_STEPS = {
    "core count": "set TF_MIN_GPU_MULTIPROCESSOR_COUNT to the number of its multiprocessors to use it too, or leave it "
    "out with CUDA_VISIBLE_DEVICES",
    "capability": "use a TensorFlow that supports the compute capability of this card, or leave it out with "
    "CUDA_VISIBLE_DEVICES",
}


def skipping_lines(log: Path = Path("/proc/self/fd/2")) -> tuple[str, ...]:
    """Return the lines of this process's own log, if its standard error is a file, in which a GPU is left out."""
    try:
        path = Path(os.path.realpath(log))
        if not path.is_file():
            return ()
        with path.open("rb") as file:
            text = file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return ()
    return tuple(line for line in text.splitlines() if _IGNORED.search(line))


def skipped(card: Card, lines: Sequence[str]) -> tuple[str, str]:
    """Return what TensorFlow says of a card that it leaves out, for a message, and the next step; empty if nothing."""
    for line in lines:
        match = _IGNORED.search(line)
        if match is not None and _short(match["pci"]) == _short(card.pci or ""):
            quoted = re.sub(r"^.*?(?=Ignoring visible)", "", line.strip())
            why = match["why"].strip()
            step = next((step for word, step in _STEPS.items() if word in why), "")
            return f"; its log says: {quoted!r}", step
    return "", ""


def _short(pci: str) -> str:
    """Return an address without its domain, which TensorFlow writes with four or eight digits."""
    return pci.lower().partition(":")[2]
