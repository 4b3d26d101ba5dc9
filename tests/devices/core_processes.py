"""What the tests of ``cores:N`` ask of processes."""

from __future__ import annotations

import socket

import psutil
import pytest

from harness.devices.cores import usable_cores

#: Two devices are never put on one core, so that a machine with a single one has nothing to show here.
TWO_CORES = pytest.mark.skipif(len(usable_cores()) < 2, reason="needs 2 physical cores that this process may use")


def addresses_of_this_machine() -> list[str]:
    """The IPv4 addresses at which other hosts would reach it; none without a network."""
    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    return [
        entry.address for entry in entries if entry.family == socket.AF_INET and not entry.address.startswith("127.")
    ]


def listening_ports(pid: int | None) -> list[int]:
    """The TCP ports that a process listens on."""
    found = psutil.Process(pid).net_connections("tcp")
    return [connection.laddr.port for connection in found if connection.status == psutil.CONN_LISTEN]
