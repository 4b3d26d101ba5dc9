"""What the advice about an error of the driver depends on, as this machine, or the described one, says it."""

from __future__ import annotations

from harness.devices.bus import contained, module_loaded
from harness.devices.nvidia import driver_version, read_cards
from harness.hardware.driver_errors import Surroundings
from harness.hardware.links import joined_by_switches
from harness.hardware.nvml import Nvml


def surroundings(nvml: Nvml | None = None) -> Surroundings:
    """Look at the machine: it takes some milliseconds for each card."""
    library = Nvml.load() if nvml is None else nvml
    return Surroundings(
        container=contained(),
        fabric=joined_by_switches(library, read_cards()) if library.opened else None,
        driver=library.driver_version() or driver_version(),
        module=module_loaded(),
    )
