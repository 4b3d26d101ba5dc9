"""Compares the cards of the driver with those of TensorFlow, and their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.hardware.card import MIG
from harness.hardware.finding import finding
from harness.hardware.software.installed import Software
from harness.plural import plural
from harness.records import Card, Finding, Verdict

#: The usual causes of the errors of cuInit (CUDA driver API, CUresult).
_CAUSES = {
    100: "no GPU is visible: look at CUDA_VISIBLE_DEVICES and at the permissions of /dev/nvidia*",
    802: "the NVSwitch fabric is not set up: look at 'systemctl status nvidia-fabricmanager', and install the "
    "version that matches the driver",
    803: "the driver's library and kernel module have different versions: reboot after a driver update",
    804: "CUDA's compatibility package does not support this card: remove it from LD_LIBRARY_PATH",
    999: "the kernel module nvidia-uvm is not loaded, or the driver has failed: see dmesg, then reboot",
}


def judge_unreachable(present: Sequence[Card]) -> Iterator[Finding]:
    """Yield the cards that the driver or the PCI bus lists, and that do not answer."""
    for card in present:
        if card.error is not None:
            yield finding(
                "missing-device",
                card,
                "the driver's list of GPUs",
                expected="an answer",
                found=card.error,
                message=card.error if card.label.startswith("pci:") else f"does not answer the driver: {card.error}",
                next_step="read the kernel's log (dmesg | grep -i xid), power the node off and on, reseat the card, "
                "and replace it if it is lost again",
            )


def judge_cuda(cards: Sequence[Card], present: Sequence[Card], software: Software) -> Finding | None:
    """Report GPUs of the driver of which TensorFlow uses none, with CUDA's error if it has one.

    GPUs that ``CUDA_VISIBLE_DEVICES`` hides are not missed; why a build without CUDA or a missing library leaves them
    unused, the check ``software`` says.
    """
    known = [card for card in present if card.uuid is not None]
    error, gpus = software.cuda_error, plural(len(known), "GPU")
    hidden = software.visible is not None and not _expected(known, software.visible)
    if not known or hidden or any(card.is_gpu for card in cards):
        return None
    if error is None:
        if not software.built_with_cuda or software.missing_libraries:
            return None
        return finding(
            "missing-device",
            None,
            "TensorFlow's list of GPUs",
            expected=gpus,
            found="none",
            message=f"the driver has {gpus}, and TensorFlow uses none",
            next_step="set TF_CPP_MIN_LOG_LEVEL=0 and read TensorFlow's log, which says why it skips each GPU; to "
            "test the CPUs instead, use --devices cpu:4",
        )
    cause = _CAUSES.get(error, "look it up in the CUDA driver API under CUresult, and read dmesg")
    return finding(
        "missing-device",
        None,
        "cuInit",
        expected="CUDA starts",
        found=f"error {error}",
        message=f"the driver has {gpus}, and CUDA can use none: cuInit fails with error {error}",
        next_step=cause,
    )


def judge_numbering(
    cards: Sequence[Card], present: Sequence[Card], numbering: Sequence[str], visible: str | None
) -> tuple[list[Finding], list[str]]:
    """Return what is wrong, and the scope.

    ``cards`` are those under test, ``present`` those of the driver in its order, ``numbering`` the UUIDs of all cards
    that TensorFlow has in its order (empty if unknown), ``visible`` is ``CUDA_VISIBLE_DEVICES``.
    """
    scope: list[str] = []
    found = list(_duplicates(cards))
    divided = [card for card in present if card.part == MIG]
    if divided:
        scope.append(
            f"{plural(len(divided), 'GPU')} with MIG: CUDA shows each process one slice; whether it is the right one "
            "is not judged"
        )
    known = [card for card in present if card.uuid is not None and card.part != MIG]
    if not known or not numbering:
        if divided:
            return found, scope
        if any(card.is_gpu for card in cards):
            scope.append("the driver's list of GPUs is unavailable, so a missing GPU would not be noticed")
        else:
            scope.append("no GPU, so the order of GPUs was not compared with the driver's")
        return found, scope
    expected = _expected(known, visible)
    found += _missing(expected, numbering, len(known))
    there = [card.uuid for card in expected if card.uuid in set(numbering)]
    models = {card.name for card in known}
    if len(models) > 1 and not _only_uuids(visible):
        scope.append(f"{len(models)} GPU models: CUDA sorts them by speed, so their order is not judged")
    elif not found:
        found += _order(cards, there, [uuid for uuid in numbering if not uuid.startswith("MIG-")])
    shown = visible if visible is not None else "not set"
    scope.append(
        f"driver: {plural(len(known), 'GPU')}, CUDA_VISIBLE_DEVICES: {shown}, TensorFlow: "
        f"{plural(len(numbering), 'GPU')}"
    )
    return found, scope


def _duplicates(cards: Sequence[Card]) -> Iterator[Finding]:
    """Yield cards of one device. Logical GPUs share a UUID and a PCI id, but never a device."""
    counts = Counter(card.device for card in cards)
    for card in cards:
        if card.device is not None and counts[card.device] > 1:
            yield finding(
                "missing-device",
                card,
                f"device {card.device}",
                expected="each card once",
                found=f"{counts[card.device]} times",
                message=f"is the same device as another card: {card.device}",
                next_step="remove the duplicate from CUDA_VISIBLE_DEVICES: each GPU may be listed once",
            )


def _only_uuids(visible: str | None) -> bool:
    """Return whether cards are selected only by UUID, so CUDA's own order does not matter."""
    return visible is not None and all(part.strip().startswith("GPU-") for part in visible.split(","))


def _expected(known: Sequence[Card], visible: str | None) -> list[Card]:
    """Return the cards that CUDA should show, in order: up to the first invalid entry, as CUDA's guide says."""
    if visible is None:
        return list(known)
    chosen: list[Card] = []
    for part in (each.strip() for each in visible.split(",")):
        if part.isdigit():
            named = [known[int(part)]] if int(part) < len(known) else []
        else:
            named = [card for card in known if part.startswith(("GPU-", "MIG-")) and (card.uuid or "").startswith(part)]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return chosen


def _missing(expected: Sequence[Card], numbering: Sequence[str], known: int) -> Iterator[Finding]:
    for card in expected:
        if card.uuid not in numbering:
            yield finding(
                "missing-device",
                card,
                "TensorFlow's list of GPUs",
                expected=f"all {known} GPUs of the driver that are not hidden",
                found="missing",
                message=f"has index {card.index} in the driver's list, but TensorFlow does not see it",
                next_step="set TF_CPP_MIN_LOG_LEVEL=0 and read TensorFlow's log and the kernel's log (dmesg), and "
                "look at MIG, the compute mode and the permissions of /dev/nvidia*",
            )


def _order(cards: Sequence[Card], expected: Sequence[str | None], numbering: Sequence[str]) -> Iterator[Finding]:
    by_uuid = {card.uuid: card for card in cards}
    for at, (wanted, got) in enumerate(zip(expected, numbering, strict=False)):
        card = by_uuid.get(got)
        if wanted != got and card is not None:
            yield finding(
                "missing-device",
                card,
                f"number {at} of TensorFlow's GPUs",
                expected=str(wanted),
                found=got,
                message=f"is number {at} in TensorFlow, where CUDA_VISIBLE_DEVICES puts another GPU ({wanted})",
                next_step="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or select GPUs by UUID in CUDA_VISIBLE_DEVICES",
                severity=Verdict.WARN,
            )
