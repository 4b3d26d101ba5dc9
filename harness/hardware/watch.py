"""Watches the cards from outside of the process that runs the checks, so that a crash leaves a name behind.

The driver of a described machine is inside of that process, and so is its watch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.checking.stations import with_more
from harness.devices.bus import contained
from harness.devices.nvidia import card_of, read_cards, silenced
from harness.hardware.counters import judge_counters, judge_repairs, judge_silence
from harness.hardware.finding import joined
from harness.hardware.inside import from_inside
from harness.hardware.machine import Reading
from harness.hardware.nvml import Nvml
from harness.records import Card, CheckResult, Finding

_STATE = ("remap_pending", "remap_failed", "retired_pending", "recovery_action")


class CardWatch:
    """Reads the counters of all cards after each check, and adds what came meanwhile to its result.

    Without a driver there is nothing to watch.
    """

    def __init__(self) -> None:
        self._nvml = Nvml.load()
        self._cards = tuple(
            Card(f"nvml:{card.index}", card.name, index=card.index, uuid=card.uuid, pci=card.pci, kind="GPU")
            for card in read_cards()
        )
        self._answered = {card.uuid: card for card in self._cards if card.uuid is not None}
        self._last = self._read()

    def cards_are(self, cards: Sequence[Card]) -> None:
        """Name the cards as the checks do. Those under no device of the checks are not watched."""
        known = {card.uuid for card in self._cards}
        by_uuid = {card.uuid: card for card in cards if card.uuid in known}
        slices = {card.uuid: card for card in cards if card.uuid not in known and card.uuid is not None}
        drivers = read_cards() if slices else ()
        for uuid, card in slices.items():
            whole = next((each for each in drivers if card_of(uuid, [each]) is not None), None)
            if whole is not None:
                by_uuid.setdefault(whole.uuid, replace(card, uuid=whole.uuid))
        self._cards = tuple(by_uuid[card.uuid] for card in self._cards if card.uuid in by_uuid)

    def judged(self, result: CheckResult) -> CheckResult:
        """Return the result with what the cards counted during the check, unless the check found it itself."""
        before, self._last = self._last, self._read()
        during = f"during the check '{result.check}'"
        known = {(each.kind, each.device, each.subject) for each in result.findings}
        new = [each for each in self._found(before, during) if (each.kind, each.device, each.subject) not in known]
        found = joined(new, self._cards)
        return with_more(result, from_inside(found) if found and contained() else found)

    def _found(self, before: dict[str, Reading], during: str) -> Iterator[Finding]:
        for card in self._cards:
            was, now = (readings.get(card.uuid or "") for readings in (before, self._last))
            if was is None or now is None:
                continue
            # What came before was reported with an earlier check.
            yield from (each for each in judge_counters(card, [was, now], during) if each.where.endswith(during))
            if any(getattr(now, each) != getattr(was, each) for each in _STATE):
                yield from judge_repairs(card, now)
        names = {card.uuid: card for card in self._cards}
        for uuid, error in silenced(self._answered).items():
            # A card on which the checks have no device is named by its number.
            silent = self._answered.pop(uuid)
            yield judge_silence(names.get(uuid, silent), error, f" {during}")

    def _read(self) -> dict[str, Reading]:
        now = time.monotonic()
        return {card.uuid: self._nvml.reading(card.uuid, now) for card in self._cards if card.uuid is not None}
