"""Whether a node may take a job: in seconds, from what the driver reports and from the last result of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from harness.fleet.accuse import accusations_of
from harness.fleet.actions import Action
from harness.fleet.policy import Policy
from harness.fleet.seen import Seen
from harness.plural import plural
from harness.records import Card, RunRecord, Verdict
from harness.report.printable import one_line
from harness.report.storage import load_run


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the node may take a job, and why in one line."""

    ready: bool
    reason: str


def judge_node(
    found: Sequence[Card],
    broken: str | None,
    last: RunRecord | None,
    gpus: int | None,
    now: datetime,
    policy: Policy,
    most_days: float | None = None,
) -> Answer:
    """Judge a node by the cards that its driver reports now, and by its last run.

    ``broken`` is why the driver does not answer, ``gpus`` how many cards the node must have. A run that is older than
    ``most_days``, or missing where ``most_days`` is given, proves nothing: the node is not ready.
    """
    if broken is not None:
        return Answer(False, f"the driver does not answer: {broken}")
    lost = [card for card in found if card.error is not None]
    if lost:
        return Answer(False, f"{lost[0].label}: {lost[0].error}")
    if gpus is not None and len(found) < gpus:
        return Answer(False, f"the driver reports {plural(len(found), 'GPU')} instead of {gpus}")
    if last is None:
        if most_days is not None:
            return Answer(False, "no result of harness validate on this machine")
        return Answer(True, f"{plural(len(found), 'GPU')}; no earlier result")
    seen = Seen("", last)
    if most_days is not None and (seen.started is None or now - seen.started > timedelta(days=most_days)):
        return Answer(False, f"the last result, of {last.started_at}, is older than {most_days:g} days")
    here = {each for card in found for each in (card.uuid, card.serial) if each}
    for each in accusations_of(seen, last, (), (), {}, policy):
        serials = {*each.serials} | {
            card.uuid for label in each.labels if (card := seen.cards.get(label)) and card.uuid
        }
        gone = bool(serials) and bool(here) and not serials & here
        if each.severity is Verdict.FAIL and each.action is not Action.WATCH and not gone:
            why = each.reasons[0] if each.reasons else ""
            return Answer(False, one_line(f"{each.action}: {each.subject}: {why} (run of {last.started_at})"))
    return Answer(True, f"{plural(len(found), 'GPU')}; {last.verdict} in the run of {last.started_at}")


def last_run(path: Path) -> RunRecord | None:
    """Read the last run; ``None`` where there is none. Raise InvalidRecord for a damaged one."""
    file = path / "run.json" if path.is_dir() or not path.suffix else path
    if not file.exists():
        return None
    return load_run(file)
