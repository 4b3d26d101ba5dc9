"""What a filter lets through: run line by line on packets made here, and by Linux on sockets of this process."""

from __future__ import annotations

import ipaddress
import socket
import struct

import psutil
import pytest

from harness.devices.loopback import passing, restrict

_HEADER = 0xFFF00000


def _packet(source: str, destination: str) -> bytes:
    """An IP header with these addresses, of the version that they have."""
    ends = [ipaddress.ip_address(text).packed for text in (source, destination)]
    head = b"\x45" + bytes(11) if len(ends[0]) == 4 else b"\x60" + bytes(7)
    return head + b"".join(ends)


def _passes(program: bytes, packet: bytes) -> bool:
    """Run the filter as Linux does (linux/bpf_common.h)."""
    lines = list(struct.iter_unpack("HBBI", program))
    held, at = 0, 0
    while True:
        code, if_equal, if_not, operand = lines[at]
        at += 1
        if code == 0x30:
            held = packet[operand - _HEADER]
        elif code == 0x20:
            (held,) = struct.unpack_from("!I", packet, operand - _HEADER)
        elif code == 0x74:
            held >>= operand
        elif code == 0x54:
            held &= operand
        elif code == 0x05:
            at += operand
        elif code == 0x15:
            at += if_equal if held == operand else if_not
        else:
            assert code == 0x06
            return bool(operand)


FILTERED = passing(["10.0.0.5", "192.168.7.9", "fd00::5", "fd00::6"], ["10.9.9.9", "fd00::99"])


@pytest.mark.parametrize(
    ("source", "destination", "passes"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.200.3.4", "10.1.1.1", True),
        ("10.0.0.5", "10.1.1.1", True),
        ("192.168.7.9", "10.1.1.1", True),
        ("10.0.0.6", "10.1.1.1", False),
        ("10.0.0.6", "10.9.9.9", True),
        ("10.9.9.9", "10.0.0.5", False),
        ("::1", "::1", True),
        ("fd00::5", "fd00::1", True),
        ("fd00::6", "fd00::1", True),
        ("fd00::7", "fd00::1", False),
        ("fd00::7", "fd00::99", True),
        ("fd01::5", "fd00::1", False),
        ("fd00::99", "fd00::5", False),
    ],
)
def test_a_packet_passes_from_this_machine_from_a_source_and_to_a_destination(
    source: str, destination: str, passes: bool
) -> None:
    assert _passes(FILTERED, _packet(source, destination)) == passes


def test_without_addresses_it_is_the_filter_for_this_machine_alone() -> None:
    program = passing()
    assert _passes(program, _packet("127.0.0.1", "10.0.0.1"))
    assert _passes(program, _packet("::1", "::1"))
    assert not _passes(program, _packet("10.0.0.5", "10.0.0.1"))
    assert not _passes(program, _packet("::2", "::1"))
    assert not _passes(program, b"\x50" + bytes(60)), "of another version"


def test_many_hosts_make_a_filter_that_linux_takes() -> None:
    sources = [f"10.1.{index // 250}.{index % 250}" for index in range(1000)]
    program = passing(sources)
    assert _passes(program, _packet("10.1.3.249", "10.0.0.1"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        restrict(listening, program)
        socket.create_connection(listening.getsockname(), timeout=5).close()


def test_a_text_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="no-address"):
        passing(["no-address"])


def _reaches(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=0.5).close()
    except TimeoutError:
        return False
    return True


def test_linux_keeps_to_it() -> None:
    own = next(
        (
            entry.address
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family == socket.AF_INET and not entry.address.startswith("127.")
        ),
        "127.0.0.1",
    )
    # A machine without a network has loopback alone, which always passes.
    alone = own.startswith("127.")
    for program, passes in (
        (passing(), alone),
        (passing(["198.51.100.1"], ["198.51.100.2"]), alone),
        (passing([own]), True),
        (passing([], [own]), True),
    ):
        with socket.create_server(("0.0.0.0", 0)) as listening:
            restrict(listening, program)
            assert _reaches("127.0.0.1", listening.getsockname()[1])
            assert _reaches(own, listening.getsockname()[1]) == passes
