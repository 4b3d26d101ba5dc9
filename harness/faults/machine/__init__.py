"""``harness.faults.machine``: a fake machine for tests and for ``harness validate --fake FILE``.

A file describes cards and what is wrong with them. :class:`DescribedMachine` does what such a machine would do, with a
clock of its own, so that each fault can be seen to give the right verdict without the hardware.
"""

from __future__ import annotations

from harness.faults.machine.described import DescribedMachine
from harness.faults.machine.description import Description, load_description, read_description
from harness.faults.machine.identity import devices, fingerprint

__all__ = ["DescribedMachine", "Description", "devices", "fingerprint", "load_description", "read_description"]
