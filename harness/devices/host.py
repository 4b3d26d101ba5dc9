"""Which machine this is: its name, its serial number, and where it stands."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from harness.records import Host

#: What an engine, or an administrator, calls the machine; else Slurm's name of the node, and at last the host name.
NAMES = ("HARNESS_NODE", "SLURMD_NODENAME")
#: Where the machine stands, such as ``row-3/rack-12``.
RACK = "HARNESS_RACK"
_SERIAL = "sys/class/dmi/id/product_serial"
_BOOT = "proc/sys/kernel/random/boot_id"
#: What boards without a serial number have in its place.
_PLACEHOLDERS = ("", "none", "not specified", "default string", "system serial number", "to be filled by o.e.m.", "0")
_LONGEST = 255


def read_host(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Host:
    """Return what is known of this machine. Virtual nodes of one host have names of their own."""
    name = next((given for each in NAMES if (given := environment.get(each, "").strip())), None)
    serial = _first_line(root / _SERIAL)
    return Host(
        name=(name or socket.gethostname())[:_LONGEST] or None,
        serial=None if (serial or "").lower() in _PLACEHOLDERS else serial,
        rack=environment.get(RACK, "").strip()[:_LONGEST] or None,
        boot=_first_line(root / _BOOT),
    )


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0][:_LONGEST] or None
    except OSError:  # only root may read the serial number
        return None
