"""The TensorFlow server of ``harness serve``, in this process.

It is the only task of its own cluster. A client makes it a task of another cluster, so servers need not know of one
another when they start.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from harness.devices.core_server import Server, bytes_field, number_field, server_definition
from harness.devices.kinds.cluster import JOB
from harness.devices.loopback import passing, restrict_listening
from harness.errors import ServerNotStarted, UsageError
from harness.tensorflow_version import C_LIBRARY

#: The default address, which other hosts cannot reach.
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class HostServer:
    """A server that runs until its process ends. ``address``: ``HOST:PORT``, for clients."""

    address: str
    #: Whether other hosts can reach it.
    open_to_others: bool


def start_server(port: int = 0, bind: str = LOOPBACK, cpus: int = 1) -> HostServer:
    """Start TensorFlow's server in this process, with ``cpus`` logical CPUs and the GPUs that TensorFlow sees.

    It listens at ``bind``, a name or an IP address of this host (``0.0.0.0`` or ``::`` for all), on ``port``; 0 lets
    the kernel pick one. TensorFlow always listens on every address, so a packet filter restricts it before it serves.

    Raises:
        UsageError: ``bind`` is not an address of this host.
        ServerNotStarted: the port is taken, or TensorFlow is not installed.
    """
    own = _own_address(bind)
    package = importlib.util.find_spec("tensorflow")
    if package is None or not package.submodule_search_locations:
        raise ServerNotStarted(port, "TensorFlow is not installed")
    config = bytes_field(1, bytes_field(1, b"CPU") + number_field(2, cpus))
    name = socket.gethostname() if own.is_unspecified else str(own)
    try:
        server = Server(
            str(Path(package.submodule_search_locations[0]) / C_LIBRARY),
            # Nobody uses this address: a client gives the server a new one.
            server_definition(JOB, f"{LOOPBACK}:{port}", config),
        )
        if not own.is_unspecified:
            restrict_listening(program=passing(destinations=() if own.is_loopback else [str(own)]))
        server.start()
    except (OSError, RuntimeError) as error:
        raise ServerNotStarted(port, str(error)) from error
    listening = server.address().rpartition(":")[2]
    return HostServer(f"{_bracketed(name)}:{listening}", not own.is_loopback)


def _own_address(bind: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if not bind:
        raise UsageError(
            "--bind '' is empty; accepted: a name or an IP address of this host, or 0.0.0.0 for all its addresses"
        )
    try:
        family, kind, _, _, where = socket.getaddrinfo(bind, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.bind(where)
        return ipaddress.ip_address(str(where[0]).partition("%")[0])
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"--bind {bind}: not an address of this host ({getattr(error, 'strerror', None) or error}); accepted: a "
            "name or an IP address of this host, or 0.0.0.0 for all its addresses"
        ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
