"""GPUs on the chip of a processor, which have neither memory nor a PCIe link of their own."""

from __future__ import annotations

import re

from harness.hardware.machine import Reading
from harness.records import Card

#: Words in their names.
_NAMES = ("GB10", "Thor", "Orin", "Xavier", "Tegra")


def on_chip(card: Card, reading: Reading) -> bool:
    """Whether the card is on the chip of the host's processor. What it says of a PCIe link means nothing then."""
    return reading.details.shares_memory or any(part in _NAMES for part in re.split(r"[\s()]+", card.name))
