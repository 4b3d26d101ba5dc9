"""The packet filter, on sockets of this process: what it lets through, and what it drops."""

from __future__ import annotations

import socket
import struct

import psutil
import pytest

from harness.devices.loopback import restrict, restrict_listening

#: Longer than a connection within one machine takes, shorter than the first time that it is tried again.
_DROPPED_S = 0.5
#: Load the source address of IPv4, compare it, pass or drop.
_FROM_127_0_0_2 = b"".join(
    struct.pack("HBBI", *line)
    for line in [(0x20, 0, 0, 0xFFF0000C), (0x15, 0, 1, 0x7F000002), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)]
)


def _reaches(address: str, port: int, source: str | None = None) -> bool:
    """Whether a connection is made. What the filter drops gets no answer, not even a refusal."""
    try:
        with socket.create_connection(
            (address, port), timeout=_DROPPED_S, source_address=None if source is None else (source, 0)
        ):
            return True
    except TimeoutError:
        return False


@pytest.fixture
def listening() -> socket.socket:
    return socket.create_server(("0.0.0.0", 0))


def test_what_a_filter_drops_does_not_arrive_and_the_rest_does(listening: socket.socket) -> None:
    with listening:
        port = listening.getsockname()[1]
        assert _reaches("127.0.0.1", port, "127.0.0.1"), "without the filter"
        restrict(listening, _FROM_127_0_0_2)
        assert _reaches("127.0.0.1", port, "127.0.0.2")
        assert not _reaches("127.0.0.1", port, "127.0.0.1")


def test_data_passes_through_a_connection_of_this_machine(listening: socket.socket) -> None:
    with listening:
        restrict(listening)
        with socket.create_connection(listening.getsockname()) as client:
            server, _ = listening.accept()
            with server:
                server.sendall(b"x" * 100_000)
                server.shutdown(socket.SHUT_WR)
                assert sum(len(part) for part in iter(lambda: client.recv(65536), b"")) == 100_000


def test_only_listening_sockets_are_restricted_and_those_of_another_port_are_left(listening: socket.socket) -> None:
    with listening, socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as idle:
        port = listening.getsockname()[1]
        idle.bind(("127.0.0.1", 0))
        assert restrict_listening(port) == [port]
        assert {port, other.getsockname()[1]} <= set(restrict_listening())
        assert idle.getsockname()[1] not in restrict_listening()


def test_both_versions_of_ip_are_let_through_from_this_machine_alone() -> None:
    others = {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6) and not entry.address.startswith(("127.", "fe80", "::1"))
    }
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as both:
        port = both.getsockname()[1]
        here = ["127.0.0.1", "127.5.5.5", "::1"]
        assert all(_reaches(address, port) for address in [*here, *others]), "without the filter"
        restrict(both)
        assert all(_reaches(address, port) for address in here)
        assert not any(_reaches(address, port) for address in others)
