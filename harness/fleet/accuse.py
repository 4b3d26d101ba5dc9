"""What one machine has to answer for, once what many share is taken away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from harness.fleet.actions import Action, action_for, action_of_finding
from harness.fleet.outliers import Cohort, Outlier, values_of
from harness.fleet.policy import Policy
from harness.fleet.seen import Seen, card_labels, identity, place
from harness.fleet.verdicts import Accusation
from harness.records import Finding, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts, subject
from harness.report.printable import one_line

_SHOWN = 2
_ORDER = tuple(Action)


def accusations_of(
    seen: Seen,
    record: RunRecord,
    outliers: Sequence[Outlier],
    earlier: Sequence[Seen],
    cohorts: Mapping[tuple[tuple[str, str, str, str], tuple[str, str, str, str]], Cohort],
    policy: Policy,
) -> list[Accusation]:
    """Return what is wrong with a machine. ``record`` has the findings that are its own, ``earlier`` its other runs."""
    made = [*_of_cards(seen, record, policy), *_of_machine(seen, record)]
    slow: dict[tuple[str, ...], list[Outlier]] = defaultdict(list)
    for each in outliers:
        slow[each.labels].append(each)
    for labels, own in slow.items():
        worst = sorted(own, key=lambda each: -each.cohort.distance(each.value))
        texts = tuple(each.text for each in worst)
        known = next((each for each in made if each.labels == labels and each.severity is Verdict.FAIL), None)
        if known is not None:
            made[made.index(known)] = replace(known, findings=known.findings + len(texts))
            continue
        if any({*labels} <= {*each.labels} for each in made if each.severity is Verdict.FAIL and each.labels):
            continue  # a link that is slow, of a card that is accused, or the other way round
        confirmed = _confirmed(seen, worst[0], earlier, cohorts, policy)
        copies = all(each.figure.startswith(("copy ", "latency ")) for each in worst)
        action = Action.RERUN if not confirmed else Action.RESEAT if copies else Action.DRAIN
        made.append(
            Accusation(
                seen.host,
                labels,
                _subject(seen, labels),
                action,
                Verdict.WARN if not confirmed else Verdict.FAIL,
                texts[:_SHOWN],
                len(texts),
                "outlier",
                confirmed,
                *_facts(seen, labels),
            )
        )
    return sorted(made, key=lambda each: (_ORDER.index(each.action), each.labels))


def _of_cards(seen: Seen, record: RunRecord, policy: Policy) -> Iterator[Accusation]:
    for each in card_verdicts(record):
        action = _softened(action_for(each.action), each.severity)
        action = _xid_action(record, each.labels, policy) or action
        yield Accusation(
            seen.host,
            each.labels,
            subject(each, seen.cards),
            action,
            each.severity,
            tuple(map(one_line, each.reasons)),
            each.findings,
            "check",
            "",
            *_facts(seen, each.labels),
        )


def _of_machine(seen: Seen, record: RunRecord) -> Iterator[Accusation]:
    """Yield what no card is named for: the software, other devices, and checks that failed without a finding."""
    named = {label for each in card_verdicts(record) for label in each.labels}
    rest: list[Finding] = []
    for result in record.results:
        rest += [each for each in result.findings if not _is_named(each, named)]
        whole = next(own for own in seen.record.results if own.check == result.check)
        if whole.verdict is Verdict.FAIL and not whole.findings and whole.accepted_as is None:
            rest.append(Finding("error", result.check, None, "", "", f"{result.check}: {one_line(whole.reason)}"))
    failing = [each for each in rest if each.severity is Verdict.FAIL]
    for severity, own in ((Verdict.FAIL, failing), (Verdict.WARN, [] if failing else rest)):
        if own:
            action = min(map(action_of_finding, own), key=_ORDER.index)
            texts = tuple(dict.fromkeys(one_line(each.message) for each in own))
            yield Accusation(
                seen.host,
                (),
                "the machine",
                _softened(action, severity),
                severity,
                texts[:_SHOWN],
                len(own),
                "check",
            )


def _softened(action: Action, severity: Verdict) -> Action:
    """Return the action for a warning: a setting can be set right, and everything else is watched."""
    return action if severity is Verdict.FAIL or action is Action.UPDATE else Action.WATCH


def _is_named(finding: Finding, named: set[str]) -> bool:
    labels = card_labels(finding)
    return bool(labels) and {*labels} <= named


def _xid_action(record: RunRecord, labels: Iterable[str], policy: Policy) -> Action | None:
    """Return the action that the policy has for an Xid of a card: the one that asks for most."""
    actions = [
        policy.xid.actions[code]
        for result in record.results
        for finding in result.findings
        if finding.subject.startswith("Xid ") and {*card_labels(finding)} <= {*labels}
        for code in finding.subject.removeprefix("Xid ").split(", ")
        if code in policy.xid.actions
    ]
    return min(actions, key=_ORDER.index, default=None)


def _confirmed(
    seen: Seen,
    outlier: Outlier,
    earlier: Sequence[Seen],
    cohorts: Mapping[tuple[tuple[str, str, str, str], tuple[str, str, str, str]], Cohort],
    policy: Policy,
) -> str:
    """Say in how many earlier runs the same card was slow too; nothing where there is none, or it was not."""
    wanted = [identity(seen, label) for label in outlier.labels]
    slow = compared = 0
    for run in earlier:
        for measured, _, conditions, labels, value in values_of(run):
            if measured != outlier.cohort.measured or [identity(run, label) for label in labels] != wanted:
                continue
            cohort = cohorts.get((measured, conditions))
            if cohort is not None:
                compared += 1
                slow += cohort.is_far(value, policy.judging)
    return f"also in {slow} of {compared} earlier runs" if slow * 2 > compared else ""


def _subject(seen: Seen, labels: Sequence[str]) -> str:
    return " -> ".join(_named(seen, label) for label in labels) or "the machine"


def _named(seen: Seen, label: str) -> str:
    card = seen.cards.get(label)
    known = () if card is None else (("serial", card.serial), ("slot", card.slot), ("PCI", card.pci))
    facts = ", ".join(f"{name} {value}" for name, value in known if value is not None)
    return f"{label} ({facts})" if facts else label


def _facts(seen: Seen, labels: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    cards = [seen.cards[label] for label in labels if label in seen.cards]
    return tuple(card.serial for card in cards if card.serial), tuple(place(seen, label) for label in labels)
