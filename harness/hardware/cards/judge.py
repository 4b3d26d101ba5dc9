"""Compares the cards of the driver with those of TensorFlow, and their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.devices.nvidia import visible_cards
from harness.devices.nvml import NO_DRIVER
from harness.hardware.card import MIG, NO_DRIVER as WITHOUT_DRIVER
from harness.hardware.cards.skipped import skipped
from harness.hardware.driver_errors import (
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    UNKNOWN,
    Surroundings,
    of_cuinit,
    of_nvml,
)
from harness.hardware.finding import finding
from harness.hardware.software.installed import Software
from harness.plural import plural
from harness.records import Card, Finding, Verdict

_UNKNOWN_TO_DRIVER = (
    "look at nvidia-smi and dmesg, and reboot the node; if the driver still does not know the card, install the driver "
    "and its libraries in the same version, or reseat the card"
)


def judge_unreachable(present: Sequence[Card], around: Surroundings = UNKNOWN) -> Iterator[Finding]:
    """Yield the cards that the driver or the PCI bus lists, and that do not answer."""
    driverless = [card for card in present if (card.error or "").endswith(WITHOUT_DRIVER)]
    if driverless:
        yield _without_driver(driverless, around)
    for card in present:
        if card.error is not None and card not in driverless:
            on_bus = card.label.startswith("pci:")
            row = of_nvml(card.error, around)
            yield finding(
                "missing-device",
                card,
                "the driver's list of GPUs",
                expected="an answer",
                found=card.error,
                message=card.error if on_bus else f"does not answer the driver: {card.error}",
                next_step=row.step if not on_bus or row.code else _UNKNOWN_TO_DRIVER,
            )


def _without_driver(cards: Sequence[Card], around: Surroundings) -> Finding:
    """Report the GPUs of a machine without a driver: one cause for all."""
    row = of_nvml(LIBRARY_NOT_FOUND if around.module else DRIVER_NOT_LOADED, around)
    addresses = ", ".join(card.pci or card.label for card in cards)
    made = finding(
        "missing-device",
        None,
        "the driver",
        expected="a driver for the GPUs on the PCI bus",
        found=row.cause,
        message=f"{row.cause}: {plural(len(cards), 'NVIDIA GPU')} on the PCI bus ({addresses}) cannot be used",
        next_step=f"{row.step}; to test the CPUs instead, use --devices cpu:4",
        subject="driver",
    )
    return replace(made, devices=tuple(card.label for card in cards))


def judge_start(
    cards: Sequence[Card], present: Sequence[Card], refused: tuple[int | None, str] | None, around: Surroundings
) -> Finding | None:
    """Report that NVML does not start, where no card could be named: a container sees the bus of its host.

    ``refused`` is NVML's error, its number and its text. That there is no driver is no problem beside other devices.
    """
    if refused is None or any(card.uuid is not None or card.error is not None for card in present):
        return None
    code, text = refused
    if code in NO_DRIVER and cards:
        return None
    row = of_nvml(text if code is None else code, around)
    return finding(
        "missing-device",
        None,
        "the driver",
        expected="NVML starts and counts the GPUs",
        found=text,
        message=f"NVML fails: {text}{f' ({row.cause})' if row.code else ''}",
        next_step=row.step,
        subject="driver",
    )


def judge_cuda(cards: Sequence[Card], present: Sequence[Card], software: Software) -> Iterator[Finding]:
    """Yield the GPUs of the driver if TensorFlow uses none of them, with CUDA's error if it has one.

    GPUs that ``CUDA_VISIBLE_DEVICES`` hides are not missed; why a build without CUDA or a missing library leaves them
    unused, the check ``software`` says.
    """
    if any(card.is_gpu for card in cards):
        return
    error = software.cuda_error
    if error is None and (not software.built_with_cuda or software.missing_libraries):
        return
    for card in visible_cards([card for card in present if card.uuid is not None], software.visible):
        if card.error is None:
            yield _without_cuda(card, error, software.around)


def _without_cuda(card: Card, error: int | None, around: Surroundings) -> Finding:
    if error is None:
        return finding(
            "missing-device",
            card,
            "TensorFlow's list of GPUs",
            expected="the GPUs of the driver",
            found="none",
            message="cannot be used: the driver lists it, but TensorFlow uses no GPU",
            next_step="set TF_CPP_MIN_LOG_LEVEL=0 and read TensorFlow's log, which says why it skips each GPU; to "
            "test the CPUs instead, use --devices cpu:4",
        )
    row = of_cuinit(error, around)
    code = f"error {error} ({row.name})" if row.name else f"error {error}"
    return finding(
        "missing-device",
        card,
        "cuInit",
        expected="CUDA starts",
        found=code,
        message=f"cannot be used: cuInit fails with {code}: {row.cause}",
        next_step=row.step,
    )


def judge_numbering(
    cards: Sequence[Card],
    present: Sequence[Card],
    numbering: Sequence[str],
    visible: str | None,
    *,
    around: Surroundings = UNKNOWN,
    log: Sequence[str] = (),
) -> tuple[list[Finding], list[str]]:
    """Return what is wrong, and the scope.

    ``cards`` are those under test, ``present`` those of the driver in its order, ``numbering`` the UUIDs of all cards
    that TensorFlow has in its order (empty if unknown), ``visible`` is ``CUDA_VISIBLE_DEVICES``. ``log`` are lines in
    which TensorFlow says why it leaves out GPUs.
    """
    scope: list[str] = []
    duplicates = list(_duplicates(cards))
    found = [*duplicates]
    divided = [card for card in present if card.part == MIG]
    if divided:
        scope.append(
            f"{plural(len(divided), 'GPU')} with MIG: CUDA shows each process one slice; whether it is the right one "
            "is not judged"
        )
    known = [card for card in present if card.uuid is not None and card.error is None and card.part != MIG]
    if not known or not numbering:
        if divided:
            return found, scope
        if any(card.is_gpu for card in cards):
            scope.append("the driver's list of GPUs is unavailable, so a missing GPU would not be noticed")
        else:
            scope.append("no GPU, so the order of GPUs was not compared with the driver's")
        return found, scope
    found += _undescribed(cards, present, numbering, around)
    expected = visible_cards(known, visible)
    strange = [uuid for uuid in numbering if uuid not in {card.uuid for card in known} and not uuid.startswith("MIG-")]
    if strange and visible is not None and not _only_uuids(visible):
        scope.append(
            f"{plural(len(strange), 'GPU')} that TensorFlow uses and NVML does not describe: which GPUs the numbers in "
            "CUDA_VISIBLE_DEVICES mean is unknown, so missing GPUs and the order of GPUs are not judged"
        )
        return found, scope
    found += _missing(expected, numbering, log)
    there = [card.uuid for card in expected if card.uuid in set(numbering)]
    models = {card.name for card in known}
    if len(models) > 1 and not _only_uuids(visible):
        scope.append(f"{len(models)} GPU models: CUDA sorts them by speed, so their order is not judged")
    elif not duplicates:
        found += _order(cards, there, [uuid for uuid in numbering if not uuid.startswith("MIG-")], strange)
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
                next_step="remove the duplicate from CUDA_VISIBLE_DEVICES: each GPU may be listed only once",
            )


def _only_uuids(visible: str | None) -> bool:
    """Return whether cards are selected only by UUID, so CUDA's own order does not matter."""
    return visible is not None and all(part.strip().startswith("GPU-") for part in visible.split(","))


def _missing(expected: Sequence[Card], numbering: Sequence[str], log: Sequence[str]) -> Iterator[Finding]:
    for card in expected:
        if card.uuid not in numbering:
            why, step = skipped(card, log)
            yield finding(
                "missing-device",
                card,
                "TensorFlow's list of GPUs",
                expected="every GPU of the driver that CUDA_VISIBLE_DEVICES does not hide",
                found="missing",
                message=f"has index {card.index} in the driver's list, but TensorFlow does not see it{why}",
                next_step=step
                or "set TF_CPP_MIN_LOG_LEVEL=0 and read TensorFlow's log and the kernel's log (dmesg), and "
                "look at MIG, the compute mode and the permissions of /dev/nvidia*",
            )


def _undescribed(
    cards: Sequence[Card], present: Sequence[Card], numbering: Sequence[str], around: Surroundings
) -> Iterator[Finding]:
    """Yield the GPUs that TensorFlow uses and of which NVML tells this process nothing, not even that they fail."""
    silent = sum(card.error is not None for card in present)
    if len(set(numbering) - {card.uuid for card in present}) <= silent:
        return
    for card in cards:
        if card.uuid is None:
            yield finding(
                "missing-device",
                card,
                "the driver's list of GPUs",
                expected="a description of each GPU that TensorFlow uses",
                found="none",
                message="is used by TensorFlow, but NVML does not describe it to this process: its sensors, memory "
                "errors and links are not checked",
                next_step=of_nvml(NO_PERMISSION, around).step,
                severity=Verdict.WARN,
            )


def _order(
    cards: Sequence[Card], expected: Sequence[str | None], numbering: Sequence[str], strange: Sequence[str]
) -> Iterator[Finding]:
    """Yield the GPUs that are not at their place among those that NVML describes; ``strange`` are the others."""
    by_uuid = {card.uuid: card for card in cards}
    numbered = [(at, uuid) for at, uuid in enumerate(numbering) if uuid not in strange]
    for wanted, (at, got) in zip(expected, numbered, strict=False):
        card = by_uuid.get(got)
        if wanted != got and card is not None:
            yield finding(
                "missing-device",
                card,
                f"number {at} of TensorFlow's GPUs",
                expected=str(wanted),
                found=got,
                message=f"is number {at} in TensorFlow, but the driver's list and CUDA_VISIBLE_DEVICES put another GPU "
                f"there ({wanted})",
                next_step="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or select GPUs by UUID in CUDA_VISIBLE_DEVICES",
                severity=Verdict.WARN,
            )
