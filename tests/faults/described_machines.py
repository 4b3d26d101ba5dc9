"""Descriptions of machines, and whom the findings of hardware checks name."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterable

from harness.hardware.machine import Machine
from harness.records import Card, Finding
from harness.softgpu.drivers import Drivers

H100 = "NVIDIA H100 80GB HBM3"
#: A card by its slot, an ordered pair of slots, or the software.
Subject = int | tuple[int, int] | str
#: What ``driver_source/state.h`` knows of the work of a card.
_WORK = struct.Struct("QQQQ")


def text(
    count: int, model: str = H100, *faults: str, top: str = "", cards: str = "", software: str = "", own: str = ""
) -> str:
    """The text of a description. Each fault is ``kind key = value, key = value``; the others are lines of tables.

    ``own`` are the lines of a card that differs.
    """
    made = f'schema_version = 1\n{top}\n[cards]\ncount = {count}\nmodel = "{model}"\n{cards}\n[software]\n{software}\n'
    made += f"[[card]]\n{own}\n" if own else ""
    for fault in faults:
        kind, _, keys = fault.partition(" ")
        lines = re.split(r", (?=\w+ =)", keys) if keys else []
        made += "\n".join(["[[fault]]", f'kind = "{kind}"', *lines, ""])
    return made


def worked(driver: Drivers, cards: Iterable[int], seconds: float) -> None:
    """Let cards (by the driver's number) have worked for longer, and be busy: see ``driver_source/state.h``."""
    # Busy until long after: a reading may come late on a machine that is busy itself.
    last = time.monotonic_ns() + 3600 * 10**9
    with driver.work_path.open("r+b") as file:
        for card in cards:
            file.seek(card * _WORK.size)
            before, _, lost, _ = _WORK.unpack(file.read(_WORK.size))
            file.seek(card * _WORK.size)
            file.write(_WORK.pack(before + int(seconds * 1e9), last, lost, 0))


def blamed(made: Machine, findings: Iterable[Finding]) -> set[Subject]:
    """Who is named by findings: the slots of cards, ordered pairs of them. Some accuse nobody."""
    named = (each for each in findings if each.device is not None or each.pair or each.kind == "software")
    return {_subject(made, finding) for finding in named}


def _subject(made: Machine, finding: Finding) -> Subject:
    slot_of: dict[str | None, int | None] = {
        card.label: _slot(card) for card in (*made.cards, *made.present) if card.error is None
    }
    slot_of |= {card.label: card.index for card in made.present if card.error is not None and card.index is not None}
    slot_of |= {card.device: _slot(card) for card in made.cards if card.device}
    if finding.pair:
        one, other = (slot_of[end] for end in finding.pair)
        assert one is not None
        assert other is not None
        return one, other
    if finding.device is None and finding.kind == "software":
        return "software"
    assert finding.device is not None, finding
    slot = slot_of[finding.device]
    assert slot is not None, finding
    return slot


def _slot(card: Card) -> int | None:
    """The slot of a card by its UUID; of one that does not tell it, the number in TensorFlow."""
    return card.index if card.uuid is None else int(card.uuid.rpartition("-")[2], 16)
