"""Builds the findings of the hardware checks."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records import Card, Finding, Verdict

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
