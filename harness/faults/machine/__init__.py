"""Simulated machines for tests and for ``harness validate --fake FILE``.

A file describes cards and their faults. :class:`DescribedMachine` behaves as such a machine would, with a simulated
clock, so the checks can be tested for each fault without the hardware.
"""

from __future__ import annotations

from harness.devices.described.description import Description, load_description, read_description
from harness.faults.machine.described import DescribedMachine
from harness.faults.machine.identity import devices, fingerprint

__all__ = ["DescribedMachine", "Description", "devices", "fingerprint", "load_description", "read_description"]
