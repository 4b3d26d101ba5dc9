"""What to do with each GPU: an action for each that has findings, with the two strongest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harness.plural import plural
from harness.records import Card, CardVerdict, Finding, RunRecord, Verdict
from harness.report.printable import device_label, one_line, shortened

#: Words of next steps, and the action that they come to; the first that occurs in any finding of a card counts. What
#: the driver asks for goes before everything else.
_ACTIONS = (
    ("could not repair its memory", "replace"),
    ("asks for a reboot: have the host", "have the host rebooted"),
    ("asks for a reboot", "reboot the node"),
    ("asks for a reset", "reset"),
    ("asks for draining", "stop copies between GPUs, and start their programs again"),
    ("asks for recovery of the IMEX", "restart nvidia-imex"),
    ("have it replaced", "replace"),
    ("out of service", "replace"),
    ("power the node off", "power the node off and on, and reseat"),
    ("have the host powered off", "have the host powered off and on, and reseat"),
    ("--gpu-reset", "reset"),
    ("access control", "switch off PCIe access control (ACS) and the IOMMU"),
    ("switches between the GPUs", "look at the NVSwitches and the fabric manager"),
    ("load NVIDIA's driver", "install or load the driver"),
    ("install the driver's libraries", "install the driver's libraries"),
    ("restart the container", "restart the container with its GPUs"),
    ("give the container", "give the container its GPUs"),
    ("makes NCCL hang", "find out what makes NCCL hang"),
    ("between the GPUs hangs", "find out which copy hangs"),
    ("nvidia-fabricmanager", "start the fabric manager"),
    ("uvm_disable_hmm", "switch off HMM in nvidia-uvm"),
    ("reboot the node", "reboot the node"),
    ("have the host rebooted", "have the host rebooted"),
    ("compatibility package", "remove CUDA's compatibility package"),
    ("from LD_LIBRARY_PATH", "remove the wrong library from LD_LIBRARY_PATH"),
    ("nvidia-cuda-mps-control", "start the MPS server"),
    ("reseat", "reseat"),
    ("stop that process", "stop the process that holds it"),
    ("another process", "free its memory, or reset"),
    ("fans", "improve its cooling"),
    ("power table", "look at its power supply and the board's power limits"),
    ("power cables", "look at its power supply"),
    ("swap it with", "swap with another, and see whether the fault moves"),
    ("to another slot", "move to another slot, and see whether the fault moves"),
    ("nvidia-smi -rgc", "unlock its clocks"),
    ("nvidia-smi -rmc", "unlock its clocks"),
    ("nvidia-smi -pl", "raise its power limit"),
    ("newer slot", "move to another slot"),
    ("NVLink", "look at its NVLinks"),
    ("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "set TF_MIN_GPU_MULTIPROCESSOR_COUNT, or leave it out"),
    ("TF_CPP_MIN_LOG_LEVEL", "find out why TensorFlow skips it"),
    ("CUDA_VISIBLE_DEVICES", "look at CUDA_VISIBLE_DEVICES"),
    ("/dev/nvidia*", "look at the permissions of /dev/nvidia*"),
    ("CUresult", "find out why CUDA does not start"),
    ("supports compute capability", "use a TensorFlow that supports it"),
    ("install NVIDIA driver", "install a newer driver"),
    ("look at the copies", "look at its links"),
    ("another version of TensorFlow", "try another TensorFlow and driver"),
    ("the same VBIOS", "update its VBIOS"),
    ("by mistake", "find out whether it belongs here"),
    ("in the program that used the card", "look at the program that used it; the card is not to blame"),
    ("nvidia-smi -e 1", "switch its ECC on"),
    ("its ECC mode", "compare its ECC mode with that of the other cards"),
    ("watch", "watch"),
)
_ELSE, _LINK = "look at it", "look at the link between them"
#: How a verdict names what several cards have in common.
_MACHINE = "the machine"
#: Findings shown of each card, and characters of each.
_SHOWN, _LONGEST = 2, 110
#: A first clause of so many characters says enough.
_CLAUSE = 60
#: Where the figures of a profile come from: the record says it.
_SOURCE = re.compile(r" \((profile [^(]+) \(.*\)\)$")
#: What a burn-in adds to a message. It is never shortened.
_WHEN = re.compile(r" \(first after [^()]*\)$")


@dataclass(slots=True)
class _Case:
    """The findings about one card, or about the way from one to another."""

    labels: tuple[str, ...]
    pair: bool = False
    #: Whether the record has no entry of the card, so that a finding alone says where it is.
    unknown: bool = False
    #: Whether several cards show the same, and something outside of them is to blame.
    shared: bool = False
    findings: list[Finding] = field(default_factory=list)

    @property
    def fails(self) -> bool:
        return any(each.severity is Verdict.FAIL for each in self.findings)

    def verdict(self) -> CardVerdict:
        # What fails decides; of that, what asks for most.
        strongest = sorted(self.findings, key=_strength)
        decisive = [each for each in strongest if each.severity is strongest[0].severity]
        chosen = min(decisive, key=_action_of)
        action = _action_of(chosen)[1]
        reasons: dict[tuple[str, str], str] = {}
        for each in strongest:
            reasons.setdefault((each.kind, each.subject), _message(each, self.labels, self.unknown))
        texts = tuple(dict.fromkeys(reasons.values()))[:_SHOWN]
        return CardVerdict(
            self.labels,
            _LINK if self.pair else action,
            strongest[0].severity,
            texts,
            len(self.findings),
            self.pair,
            self.shared,
            one_line(chosen.next_step),
        )


def card_verdicts(record: RunRecord) -> list[CardVerdict]:
    """Return what to do with each GPU that has findings, the worst first."""
    cards = {card.label: card for card in record.cards if card.is_gpu}
    if not cards:
        return []
    on_card: dict[object, tuple[str, ...]] = {}
    for label, card in cards.items():
        key = card.uuid or label
        on_card[key] = (*on_card.get(key, ()), label)
    cases: dict[object, _Case] = {}
    for finding in (each for result in record.results for each in result.findings):
        label = device_label(finding.device)
        if finding.devices:
            labels = tuple(device_label(each) for each in finding.devices)
            cases.setdefault((labels, _action_of(finding)), _Case(labels, shared=True)).findings.append(finding)
        elif finding.pair:
            cases.setdefault(finding.pair, _Case(finding.pair, pair=True)).findings.append(finding)
        elif label in cards:
            labels = on_card[cards[label].uuid or label]
            cases.setdefault(labels, _Case(labels)).findings.append(finding)
        elif label.startswith(("nvml:", "pci:")):
            cases.setdefault((label,), _Case((label,), unknown=True)).findings.append(finding)
    return [case.verdict() for case in sorted(cases.values(), key=lambda each: (not each.fails, each.labels))]


def verdict_lines(record: RunRecord) -> Iterator[str]:
    """Yield what to do with all GPUs in one line, then each with its reasons and how to do it.

    Nothing without a finding about one.
    """
    verdicts = card_verdicts(record)
    if not verdicts:
        return
    cards = {card.label: card for card in record.cards}
    yield "; ".join([*_summary(verdicts), *filter(None, [others(record, verdicts)])])
    for each, following in zip(verdicts, (*verdicts[1:], None), strict=True):
        yield f"{subject(each, cards)}: {each.action}"
        if following is not None and (following.action, following.reasons) == (each.action, each.reasons):
            continue  # one cause for several cards
        more = each.findings - len(each.reasons)
        for number, reason in enumerate(each.reasons, start=1):
            rest = f" (and {plural(more, 'more finding')})" if more and number == len(each.reasons) else ""
            what, when = _split(reason)
            yield f"    {shortened(what, _LONGEST)}{when}{rest}"
        if each.next_step and (following is None or following.next_step != each.next_step):
            yield f"    next: {each.next_step}"


def others(record: RunRecord, verdicts: Iterable[CardVerdict]) -> str:
    """Say of the other GPUs that they are healthy, but not after a check that may have missed a fault."""
    named = {label for each in verdicts if not each.shared for label in each.labels}
    count = sum(card.is_gpu and card.label not in named and card.error is None for card in record.cards)
    if not count:
        return ""
    lost = [each.check for each in record.results if any(finding.kind == "error" for finding in each.findings)]
    # A check that a lost card ended has findings, and has exercised nothing.
    lost += [each.check for each in record.results if each.verdict is Verdict.FAIL and each.exercised.nothing]
    lost += [each.check for each in record.results if each.verdict is Verdict.UNKNOWN]
    lost = list(dict.fromkeys(lost))
    other = plural(count, "other GPU" if named else "GPU")
    if not lost and record.complete:
        return f"{other} {'healthy' if named else 'otherwise healthy'}"
    which = f"not completed: {', '.join(lost)}" if lost else "the run was interrupted"
    return f"{other} without a finding{'' if named else ' of its own'} ({which})"


def subject(verdict: CardVerdict, cards: Mapping[str, Card]) -> str:
    """Name the card, or both ends of a link, with what identifies them."""
    if verdict.shared:
        return f"{_MACHINE} ({', '.join(verdict.labels)})"
    if not verdict.pair:
        return _named(", ".join(verdict.labels), cards.get(verdict.labels[0]))
    return " -> ".join(_named(label, cards.get(label), short=True) for label in verdict.labels)


def _summary(verdicts: Iterable[CardVerdict]) -> list[str]:
    by_action: dict[str, list[str]] = {}
    for each in verdicts:
        name = " -> ".join(each.labels) if each.pair else _MACHINE if each.shared else ", ".join(each.labels)
        names = by_action.setdefault(each.action, [])
        names += [name] if name not in names else []
    return [f"{', '.join(names)}: {action}" for action, names in by_action.items()]


def _named(label: str, card: Card | None, *, short: bool = False) -> str:
    label = f"GPU {label}" if label.startswith(("nvml:", "pci:")) else label
    if card is None:
        return label
    known = (("serial", card.serial), ("", None if short else card.uuid), ("slot", card.slot), ("PCI", card.pci))
    facts = [f"{name} {value}".strip() for name, value in known if value is not None]
    unread = (("serial number", card.serial), ("UUID", card.uuid), ("PCI id", card.pci))
    if card.error is not None and (missing := [name for name, value in unread if value is None]):
        facts.append(f"{' and '.join(missing)} cannot be read")
    return f"{label} ({', '.join(facts)})" if facts else label


def _message(finding: Finding, labels: tuple[str, ...], unknown: bool) -> str:
    """Return the message without the name of the card, which stands in front; of an unknown card with its PCI id."""
    whole, when = _split(one_line(finding.message))
    return _shorter(whole, labels, unknown) + when


def _split(message: str) -> tuple[str, str]:
    """Split off when a finding came first."""
    when = _WHEN.search(message)
    return (message, "") if when is None else (message[: when.start()], when[0])


def _shorter(message: str, labels: tuple[str, ...], unknown: bool) -> str:
    text = _SOURCE.sub(r" (\1)", message)
    first = text.partition("; ")[0]
    text = first if len(first) > _CLAUSE else text
    for label in labels:
        if text.startswith(f"{label} "):
            text = text.removeprefix(label).lstrip()
            return text.partition(") ")[2] if text.startswith("(PCI ") and not unknown else text
    return text


def _strength(finding: Finding) -> tuple[bool, int, bool]:
    """Order findings by what they ask for; what was slow comes after why."""
    slow = finding.kind == "rate" or finding.subject.startswith("copy ")
    return finding.severity is not Verdict.FAIL, _action_of(finding)[0], slow


def action_of(finding: Finding) -> str:
    """Return what a finding alone asks for, such as ``replace``."""
    return _action_of(finding)[1]


def _action_of(finding: Finding) -> tuple[int, str]:
    # What to do if the first step does not help is for later.
    first = finding.next_step.partition("; only if ")[0]
    for rank, (words, action) in enumerate(_ACTIONS):
        if words in first:
            return rank, action
    return len(_ACTIONS), _ELSE
