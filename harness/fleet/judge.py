"""Judges the newest runs of all machines together: what many share, what one machine has, and what is proven."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fnmatch import fnmatchcase

from harness.fleet.actions import Action, action_of_finding
from harness.fleet.causes import EVERYWHERE, Common, explain, facts_of
from harness.fleet.outliers import ComparedRuns, Outlier, Shift, compare
from harness.fleet.policy import Policy
from harness.fleet.seen import Seen, card_labels, subject_of
from harness.fleet.verdicts import SharedCause
from harness.records import Finding, RunRecord, Verdict
from harness.report.quantities import quantity

#: Reasons shown of a shared cause, and machines that are named.
_REASONS = 3
#: Machines that must have the usual number of cards, and what is no card of its own.
_MANY, _SLICE = 3, "MIG slice"
#: What a fault is, across machines.
_Key = tuple[str, ...]


@dataclass
class FleetFindings:
    """The newest runs, and what is wrong with each. Positions are those in ``runs``."""

    runs: Sequence[Seen]
    compared: ComparedRuns
    findings: dict[int, list[tuple[str, Finding]]] = field(default_factory=dict)
    outliers: dict[int, list[Outlier]] = field(default_factory=dict)
    shared: list[SharedCause] = field(default_factory=list)
    #: Machines with a fault that many share.
    sharing: set[int] = field(default_factory=set)
    accepted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(runs: Sequence[Seen], policy: Policy, today: date) -> FleetFindings:
    """Find what is wrong with each of ``runs``, one of each machine, and what of it many share."""
    judged = FleetFindings(runs, compare(runs, policy.judging))
    _collect(judged, policy, today)
    _expect(judged, policy)
    _count_cards(judged)
    for outlier in judged.compared.outliers:
        judged.outliers.setdefault(outlier.run, []).append(outlier)
    _share(judged, policy)
    return judged


def bare(seen: Seen, findings: Iterable[tuple[str, Finding]]) -> RunRecord:
    """Return the record of a run with only these findings, by check."""
    by_check: dict[str, list[Finding]] = defaultdict(list)
    for check, finding in findings:
        by_check[check].append(finding)
    return replace(
        seen.record,
        results=tuple(replace(each, findings=tuple(by_check[each.check])) for each in seen.record.results),
    )


def _collect(judged: FleetFindings, policy: Policy, today: date) -> None:
    accepted: dict[str, int] = defaultdict(int)
    for number, seen in enumerate(judged.runs):
        kept = []
        for result, finding in seen.findings():
            if finding.severity not in (Verdict.FAIL, Verdict.WARN):
                continue
            changed = _by_xid(finding, policy)
            if changed is None:
                continue
            labels = card_labels(finding)
            serials = tuple(card.serial for label in labels if (card := seen.cards.get(label)) and card.serial)
            entry = next((each for each in policy.accept if each.covers(seen.host, serials, finding, today)), None)
            if entry is None:
                kept.append((result.check, changed))
            else:
                accepted[str(entry)] += 1
        judged.findings[number] = kept
    judged.accepted = [f"{entry} ({count} findings)" for entry, count in sorted(accepted.items())]
    unused = [entry for entry in policy.accept if str(entry) not in accepted]
    judged.notes += [f"the policy accepts what no longer occurs, or no longer today: {entry}" for entry in unused]


def _by_xid(finding: Finding, policy: Policy) -> Finding | None:
    """Return a finding as the site's policy sees its Xids; ``None`` where it ignores all of them."""
    if finding.subject != "Xid":
        return finding
    codes = [code for each in finding.found.split(",") if (code := each.strip()).isdigit()]
    if codes and all(int(code) in policy.xid.ignore for code in codes):
        return None
    return replace(finding, subject=f"Xid {', '.join(codes)}") if codes else finding


def _expect(judged: FleetFindings, policy: Policy) -> None:
    for entry in policy.expect:
        matched = False
        for number, seen in enumerate(judged.runs):
            for result in seen.record.results:
                for figure in result.figures:
                    card = seen.cards.get(figure.device or "")
                    if figure.name != entry.figure or figure.unit != entry.unit or card is None:
                        continue
                    if not fnmatchcase(card.name, entry.model):
                        continue
                    matched = True
                    low = entry.at_least is not None and figure.value < entry.at_least
                    high = entry.at_most is not None and figure.value > entry.at_most
                    if low or high:
                        limit = quantity(entry.at_least if low else entry.at_most, entry.unit)
                        found = quantity(figure.value, entry.unit)
                        wanted = f"at {'least' if low else 'most'} {limit}"
                        message = f"{card.label} reaches {found} in {figure.name}; expected {wanted} ({entry.source})"
                        finding = Finding(
                            "rate", figure.name, card.device or card.label, wanted, found, message, subject=figure.name
                        )
                        judged.findings[number].append((result.check, finding))
        if not matched:
            judged.notes.append(f"the policy expects {entry.figure} ({entry.unit}) of {entry.model}: no such figure")


def _count_cards(judged: FleetFindings) -> None:
    """Miss the cards that a machine does not even know of: most machines with the same cards have more."""
    counts: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for seen in judged.runs:
        counts[_equipment(seen)][_present(seen)] += 1
    for number, seen in enumerate(judged.runs):
        own = counts[_equipment(seen)]
        usual, many = max(own.items(), key=lambda item: (item[1], item[0]))
        having = _present(seen)
        if many >= _MANY and many * 2 > own.total() and 0 < having < usual and seen.record.results:
            message = f"has {having} GPUs; {many:,} of {own.total():,} machines with such GPUs have {usual}"
            step = "look for it on the PCI bus (lspci -d 10de:); power the node off and on, and reseat the card"
            finding = Finding(
                "missing-device", "number of GPUs", None, str(usual), str(having), message, next_step=step
            )
            judged.findings[number].append((seen.record.results[0].check, finding))


def _present(seen: Seen) -> int:
    return len({card.uuid or card.label for card in seen.record.cards if card.is_gpu and card.part != _SLICE})


def _equipment(seen: Seen) -> tuple[str, str]:
    """Return the models of a machine, and its spec: with another one, fewer cards may be used."""
    spec = seen.record.spec
    return (
        seen.cohort.card if seen.cohort is not None else "",
        spec if spec.startswith("gpu") else spec.partition(":")[0],
    )


def _share(judged: FleetFindings, policy: Policy) -> None:
    """Take what many share from the machines that have it, and note it once."""
    runs, share = judged.runs, policy.judging.shared_share
    facts = facts_of(runs)
    ran: dict[str, set[int]] = defaultdict(set)
    for number, seen in enumerate(runs):
        for result in seen.record.results:
            if result.verdict is not Verdict.SKIP:
                ran[result.check].add(number)
    affected: dict[_Key, set[int]] = defaultdict(set)
    exercised: dict[_Key, set[int]] = defaultdict(set)
    sample: dict[_Key, tuple[str, Action]] = {}
    for number, findings in judged.findings.items():
        for check, finding in findings:
            key = _key(finding)
            affected[key].add(number)
            exercised[key] |= ran[check]
            sample.setdefault(key, (finding.message, action_of_finding(finding)))
    for number, outliers in judged.outliers.items():
        for outlier in outliers:
            key = _key(outlier)
            affected[key].add(number)
            exercised[key] |= ran[outlier.cohort.measured[0]]
            sample.setdefault(key, (outlier.text, Action.DRAIN))
    found: dict[tuple[str, str], list[tuple[Common, _Key]]] = defaultdict(list)
    shared: dict[_Key, set[int]] = defaultdict(set)
    for key in sorted(affected):
        for common in explain(affected[key], exercised[key], facts, share):
            found[common.fact, common.value].append((common, key))
            shared[key] |= common.affected
    _report(judged, found, sample)
    _report_shifts(judged, judged.compared.shifts)
    for number in judged.findings:
        judged.findings[number] = [
            (check, each) for check, each in judged.findings[number] if number not in shared[_key(each)]
        ]
    for number in judged.outliers:
        judged.outliers[number] = [each for each in judged.outliers[number] if number not in shared[_key(each)]]


def _key(fault: Finding | Outlier) -> _Key:
    if isinstance(fault, Outlier):
        return ("outlier", *fault.cohort.measured)
    return (str(fault.severity), *subject_of(fault))


def _report(
    judged: FleetFindings,
    found: Mapping[tuple[str, str], Sequence[tuple[Common, _Key]]],
    sample: Mapping[_Key, tuple[str, Action]],
) -> None:
    for each in found.values():
        members = sorted(frozenset().union(*(common.affected for common, _ in each)))
        # What fails comes first.
        keys = sorted((key for _, key in each), key=lambda key: (key[0] == str(Verdict.WARN), key))
        serious = [key for key in keys if key[0] != str(Verdict.WARN)]
        first = each[0][0]
        name = first.fact if first.fact == EVERYWHERE else first.name
        action = sample[keys[0]][1] if serious else Action.WATCH
        reasons = tuple(sample[key][0] for key in keys[:_REASONS])
        judged.shared.append(
            SharedCause(
                name,
                tuple(judged.runs[number].host for number in members),
                max(common.of for common, _ in each),
                reasons,
                # Nothing that many share is a defect of a card.
                action if action in (Action.UPDATE, Action.WATCH) else Action.DRAIN,
            )
        )
        if serious:
            judged.sharing |= {*members}
    judged.shared.sort(key=lambda each: (-len(each.machines), each.common))


def _report_shifts(judged: FleetFindings, shifts: Sequence[Shift]) -> None:
    by_fact: dict[tuple[str, str], list[Shift]] = defaultdict(list)
    for each in shifts:
        by_fact[each.fact, each.value].append(each)
    for (fact, value), own in by_fact.items():
        members = sorted(frozenset().union(*(each.runs for each in own)))
        reasons = tuple(
            f"{each.measured[1]}: the median is {quantity(each.center, each.unit)}, and "
            f"{quantity(each.others, each.unit)} with another {fact}"
            for each in own[:_REASONS]
        )
        hosts = tuple(judged.runs[number].host for number in members)
        judged.shared.append(SharedCause(f"{fact} {value}", hosts, len(hosts), reasons, Action.UPDATE))
        judged.sharing |= {*members}
