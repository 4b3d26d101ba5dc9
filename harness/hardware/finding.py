"""Builds the findings of the hardware checks, and joins those that are alike on all cards: they have one cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.checking.stations import WRONG_BITS
from harness.records import Card, Finding, Verdict

#: On so many cards, what is alike on all is taken for one cause.
LEAST_CARDS = 3
FREE_MEMORY = (
    "look for another process that holds the memory and stop it (on a GPU: nvidia-smi lists such processes; if there "
    "is none, reset the GPU)"
)
RESET = "stop the programs that use it and reset it (nvidia-smi --gpu-reset), or reboot the node"
WATCH = "watch its error count (nvidia-smi -q -d ECC), and replace the card if errors become more frequent"
LINK = (
    "look at nvidia-smi topo -m, at ACS and IOMMU in the BIOS (peer copies need them off), and at the bridge between "
    "the two devices"
)
NVLINKS = (
    "look at the NVLinks between the two (nvidia-smi nvlink --status; nvidia-smi nvlink -e), and reseat the bridge or "
    "the cards that they join; to confirm it, run a program with NCCL_P2P_DISABLE=1, which copies through the host's "
    "memory"
)
ACCESS_CONTROL = (
    "switch off PCIe access control (ACS) in the BIOS or on its switches, and the IOMMU (kernel option iommu=pt or "
    "off): they redirect copies between GPUs, so that these do not arrive; to confirm it, run a program with "
    "NCCL_P2P_DISABLE=1, which copies through the host's memory and is then right"
)
FABRIC_WAY = (
    "look at the switches between the GPUs (dmesg | grep -i sxid; systemctl status nvidia-fabricmanager; nvidia-smi "
    "nvlink --status); to confirm it, run a program with NCCL_P2P_DISABLE=1, which copies through the host's memory"
)
HOST_MEMORY = "test the host's memory (ECC, memtest)"
REPLACE = "take it out of service, run its vendor's diagnostic (for a GPU: dcgmi diag -r 3), and have it replaced"


def only_one_process(labels: Sequence[str]) -> tuple[str, str]:
    """Return why a check that starts processes is skipped on cards in the mode EXCLUSIVE_PROCESS, and what to do."""
    why = f"{', '.join(labels)}: in compute mode EXCLUSIVE_PROCESS, no process besides this one can use the device"
    return why, "set the default compute mode while this check runs: nvidia-smi --compute-mode DEFAULT"


def card_name(card: Card) -> str:
    """Return how texts name a card: ``GPU:3 (PCI 0000:3B:00.0)``."""
    return f"{card.label} (PCI {card.pci})" if card.pci is not None else card.label


def device_of(card: Card) -> str:
    """Return TensorFlow's full name of a card, or the label of one that TensorFlow does not see."""
    return card.device or card.label


def finding(
    kind: str,
    card: Card | None,
    where: str,
    *,
    expected: str,
    found: str,
    message: str,
    next_step: str,
    severity: Verdict = Verdict.FAIL,
    subject: str = "",
    pair: tuple[str, str] | None = None,
    lasting: bool = False,
) -> Finding:
    """Build a finding. ``message`` continues after the card's name, unless it is about a pair or about no card."""
    return Finding(
        kind,
        where,
        device_of(card) if card is not None else None,
        expected,
        found,
        f"{card_name(card)} {message}" if card is not None and pair is None else message,
        severity,
        next_step,
        subject=subject,
        pair=pair,
        lasting=lasting,
    )


def amount(value: float, unit: str) -> str:
    """Format a value with its unit, with four digits and thousands separators: ``51,230 GFLOP/s``."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f} {unit}" if abs(rounded) >= 1000 else f"{rounded:.4g} {unit}"


def joined(findings: Iterable[Finding], cards: Sequence[Card]) -> list[Finding]:
    """Return the findings, with one in the place of those that are alike on all of ``cards``.

    Alike are those with the same place, severity and next step. Devices that share a card count as one.
    """
    found = list(findings)
    by_device = {device_of(card): card for card in cards if card.is_gpu}
    count = len({card.uuid or card.label for card in by_device.values()})
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for each in found:
        # With wrong bits, each card is wrong in its own way, whatever the others compute.
        if each.device in by_device and each.pair is None and each.kind not in WRONG_BITS:
            # The number of an Xid says what happened, and not how much.
            what = each.found if each.subject == "Xid" else ""
            key = (each.kind, each.where, each.subject, each.severity, each.next_step, what)
            groups.setdefault(key, []).append(each)
    for group in groups.values():
        devices = tuple(dict.fromkeys(str(each.device) for each in group))
        if count >= LEAST_CARDS and len({by_device[name].uuid or name for name in devices}) == count:
            found[found.index(group[0])] = _one(group, devices, by_device)
            found = [each for each in found if not any(each is other for other in group)]
    return found


def _one(group: Sequence[Finding], devices: tuple[str, ...], cards: dict[str, Card]) -> Finding:
    texts = [
        each.message.removeprefix(f"{card_name(cards[str(each.device)])} ").removeprefix(f"{each.device} ")
        for each in group
    ]
    alike = texts[0] if len(set(texts)) == 1 else f"{texts[0]}, or nearly so"
    return replace(
        group[0],
        device=None,
        devices=devices,
        message=f"each of the {len(devices)} GPUs {alike}",
        lasting=all(each.lasting for each in group),
    )
