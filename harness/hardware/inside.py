"""What the advice of a finding comes to inside a container, which can neither reset a card nor reboot its host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from harness.records import Finding

#: What stands for a step that only the host can take, in this order.
_FROM_INSIDE = (
    (", or reboot the node", ""),
    ("or reboot the node", "or have the host rebooted"),
    ("stop the programs on this node and reboot it", "have the host rebooted"),
    ("reboot the node", "have the host rebooted"),
    ("power the node off and on", "have the host powered off and on"),
)
#: Words of the steps that take the host: its driver, settings of its cards, and their hardware.
_OF_HOST = (
    "--gpu-reset",
    "modprobe",
    "reseat",
    "power cables",
    "nvidia-smi -rgc",
    "nvidia-smi -rmc",
    "nvidia-smi -pl",
    "nvidia-smi -e 1",
    "nvidia-imex",
    "nvidia-fabricmanager",
    "BIOS",
)
#: What a step begins with where the driver asks for it.
_ASKS = "the driver asks for "


def from_inside(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings with next steps that someone inside a container can take, or hand on to the host."""
    return [replace(each, next_step=step_from_inside(each.next_step)) for each in findings]


def step_from_inside(step: str) -> str:
    """Return a next step as it is inside a container. What names the container or the host already stays.

    Example:
        ``read dmesg, and reboot the node`` becomes ``read dmesg, and have the host rebooted``.
    """
    if "container" in step or "the host" in step:
        return step
    for words, instead in _FROM_INSIDE:
        step = step.replace(words, instead)
    if "the host" in step or not any(words in step for words in _OF_HOST):
        return step
    asked, colon, rest = step.partition(": ")
    if asked.startswith(_ASKS) and colon:
        return f"{asked}: on the host, {rest}"
    return f"on the host, {step}"
