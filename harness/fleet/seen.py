"""One run of one machine, as far as machines are compared: the record without what only its own report shows.

Records come from other machines, so nothing in them is trusted: texts are shortened, and what is longer than a record
can be is refused before it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import PurePosixPath

from harness.records import Card, CheckResult, Cohort, Finding, RunRecord, Verdict
from harness.report.cohort import cohort_of
from harness.report.printable import device_label, one_line

#: Of one record: cards, findings of a check, and characters of a text. More is left out.
MOST_CARDS, MOST_FINDINGS, LONGEST = 64, 200, 400
#: What differs from machine to machine in the place of a finding: numbers, hexadecimal or not.
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d[\d,.]*")


@dataclass(frozen=True)
class Seen:
    """A run of a machine. ``path`` is where its record is kept, relative to the store."""

    path: str
    record: RunRecord

    @cached_property
    def host(self) -> str:
        """The name of the machine; of a record without one, the name of its folder."""
        given = self.record.host.name if self.record.host is not None else None
        return one_line(given or "") or name_of_path(self.path)

    @cached_property
    def started(self) -> datetime | None:
        """When the run started; ``None`` if its text is no time."""
        return parse_time(self.record.started_at)

    @cached_property
    def rack(self) -> str | None:
        """Where the machine stands."""
        return self.record.host.rack if self.record.host is not None else None

    @cached_property
    def cohort(self) -> Cohort | None:
        """What the machine may be compared with, also of records written before it was stored."""
        return self.record.cohort or cohort_of(self.record.cards, self.record.fingerprint, self.record.harness)

    @cached_property
    def cards(self) -> dict[str, Card]:
        """The cards by label."""
        return {card.label: card for card in self.record.cards}

    @property
    def exercised(self) -> bool:
        """Whether any check exercised something."""
        return any(not result.exercised.nothing for result in self.record.results)

    @property
    def unproven(self) -> list[str]:
        """The checks that prove nothing: UNKNOWN, without a result, or a PASS that exercised nothing."""
        done = {result.check for result in self.record.results}
        lost = [
            each.check
            for each in self.record.results
            if each.verdict is Verdict.UNKNOWN
            or (each.verdict in (Verdict.PASS, Verdict.WARN) and each.exercised.nothing and not each.accepted_as)
        ]
        return list(dict.fromkeys([*lost, *(each for each in self.record.planned if each not in done)]))

    def findings(self) -> Iterator[tuple[CheckResult, Finding]]:
        """Yield the findings that count: those of a result that was accepted do not."""
        for result in self.record.results:
            if result.accepted_as is None:
                for finding in result.findings:
                    yield result, finding


def subject_of(finding: Finding) -> tuple[str, str]:
    """Return what identifies a finding across machines: its kind, and what it is about without numbers and devices."""
    about = finding.subject or finding.where
    return finding.kind, about if finding.subject else _NUMBERS.sub("#", about)


def card_labels(finding: Finding) -> tuple[str, ...]:
    """Return the labels of the card, or of both ends of the link, that a finding names; none for the machine."""
    if finding.pair is not None:
        return finding.pair
    label = device_label(finding.device)
    return (label,) if label else ()


def identity(seen: Seen, label: str) -> str:
    """Return what identifies a card over time: its serial number, else its UUID, else its place."""
    card = seen.cards.get(label)
    return (card and (card.serial or card.uuid)) or f"{seen.host} {label}"


def place(seen: Seen, label: str) -> str:
    """Return where a card sits: the machine with the slot, else with the PCI id, else with the label."""
    card = seen.cards.get(label)
    where = (card and ((card.slot and f"slot {card.slot}") or (card.pci and f"PCI {card.pci}"))) or label
    return f"{seen.host} {where}"


def name_of_path(path: str) -> str:
    """Name a machine by the path of its record: its folder, or the stem of the file."""
    pure = PurePosixPath(path)
    return pure.parent.name or pure.name.removesuffix(".json").removesuffix(".run")


def parse_time(text: str) -> datetime | None:
    """Parse a time in ISO 8601; one without a zone is UTC."""
    try:
        # Python 3.10 does not know the Z.
        made = datetime.fromisoformat(re.sub(r"Z$", "+00:00", text))
    except ValueError:
        return None
    return made if made.tzinfo is not None else made.replace(tzinfo=timezone.utc)


def light(record: RunRecord) -> RunRecord:
    """Return ``record`` without what is only shown of a single run, and with short texts."""
    return replace(
        record,
        command=(),
        spec_reason=_short(record.spec_reason),
        cards=record.cards[:MOST_CARDS],
        results=tuple(_light_result(each) for each in record.results),
        passes_again=(),
        card_verdicts=(),
    )


def _light_result(result: CheckResult) -> CheckResult:
    return replace(
        result,
        reason=_short(result.reason),
        next_step=_short(result.next_step),
        findings=tuple(_light_findings(result.findings)),
        exercised=replace(result.exercised, devices=result.exercised.devices[:MOST_CARDS]),
        log=None,
        series=(),
        placements=(),
        scope=(),
        measured={},
    )


def _light_findings(findings: Sequence[Finding]) -> Iterator[Finding]:
    for each in findings[:MOST_FINDINGS]:
        yield replace(
            each,
            where=_short(each.where),
            expected=_short(each.expected),
            found=_short(each.found),
            message=_short(each.message),
            next_step=_short(each.next_step),
            subject=_short(each.subject),
            wanted=(),
            follows=(),
        )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
