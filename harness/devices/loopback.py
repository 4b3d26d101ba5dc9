"""Restricts a listening socket of this process to this machine, and to other hosts that are named.

It only uses Python's standard library. TensorFlow's gRPC server listens on every interface (``0.0.0.0:`` is hard-coded
in ``grpc_server_lib.cc``, and no option changes it). Any host that can reach the server can run any graph on it.
With a packet filter on the socket, Linux drops packets from other machines before TCP sees them. The filter needs no
privilege, and does not keep out other users of this machine.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

#: Not in Python's socket module; from Linux's asm-generic/socket.h, the same on x86 and Arm.
_SO_ATTACH_FILTER = 26
#: Where the IP header begins for a filter, from Linux's linux/filter.h: SKF_NET_OFF, -0x100000 in 32 bits.
_IP = 0xFFF00000
# Instructions of the classic packet filter (linux/bpf_common.h): load a byte or a word, shift, mask, jump, compare
# and jump, return.
_BYTE, _WORD, _SHIFT, _MASK, _JUMP, _IF_EQUAL, _RETURN = 0x30, 0x20, 0x74, 0x54, 0x05, 0x15, 0x06
_PASS, _DROP = 0xFFFFFFFF, 0
#: Offsets of source and destination in the headers of both IP versions, in bytes.
_V4_AT, _V6_AT = (12, 16), (8, 24)

#: Code, lines to skip if equal, lines to skip if not, operand.
_Line = tuple[int, int, int, int]


def passing(sources: Iterable[str] = (), destinations: Iterable[str] = ()) -> bytes:
    """Make a filter that passes packets from this machine, from ``sources`` or to ``destinations``: IP addresses.

    Raise ValueError if one of them is not an IP address.
    """
    wanted = [(ipaddress.ip_address(text), 0) for text in dict.fromkeys(sources)]
    wanted += [(ipaddress.ip_address(text), 1) for text in dict.fromkeys(destinations)]
    v4: list[_Line] = [(_WORD, 0, 0, _IP + _V4_AT[0]), (_MASK, 0, 0, 0xFF000000), *_unless(0x7F000000)]
    v6: list[_Line] = _v6(ipaddress.IPv6Address("::1"), _V6_AT[0])
    for address, end in wanted:
        if isinstance(address, ipaddress.IPv4Address):
            v4 += [(_WORD, 0, 0, _IP + _V4_AT[end]), *_unless(int(address))]
        else:
            v6 += _v6(address, _V6_AT[end])
    drop: _Line = (_RETURN, 0, 0, _DROP)
    v4.append(drop)
    version: list[_Line] = [
        (_BYTE, 0, 0, _IP),
        (_SHIFT, 0, 0, 4),
        (_IF_EQUAL, 1, 0, 4),
        (_JUMP, 0, 0, len(v4)),
    ]
    lines = [*version, *v4, (_IF_EQUAL, 1, 0, 6), drop, *v6, drop]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _unless(word: int) -> list[_Line]:
    """Pass if the loaded value is ``word``; else continue."""
    return [(_IF_EQUAL, 0, 1, word), (_RETURN, 0, 0, _PASS)]


def _v6(address: ipaddress.IPv6Address, at: int) -> list[_Line]:
    lines: list[_Line] = []
    for index, (word,) in enumerate(struct.iter_unpack("!I", address.packed)):
        # Skip to the line after the return: two lines for each remaining word, and the return.
        lines += [(_WORD, 0, 0, _IP + at + 4 * index), (_IF_EQUAL, 0, 2 * (3 - index) + 1, word)]
    return [*lines, (_RETURN, 0, 0, _PASS)]


def restrict(listening: socket.socket, program: bytes | None = None) -> None:
    """Put a filter on a socket, and on the connections that it accepts. Raise OSError if the kernel accepts none."""
    lines = passing() if program is None else program
    held = ctypes.create_string_buffer(lines, len(lines))
    # struct sock_fprog: the number of lines, each of 8 bytes, and where they are.
    fprog = struct.pack("HP", len(lines) // 8, ctypes.addressof(held))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)


def restrict_listening(port: int | None = None, program: bytes | None = None) -> list[int]:
    """Put a filter, by default that of :func:`passing`, on the listening TCP sockets of this process.

    ``port`` selects those on one port. Returns their ports. Raise OSError if the kernel accepts no filter.
    """
    ports = []
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        try:
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            found = socket.socket(fileno=os.dup(number))
        except OSError:
            continue  # closed meanwhile, as the descriptor of the folder itself is
        with found:
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
                continue
            own = found.getsockname()[1]
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and port in (None, own):
                restrict(found, program)
                ports.append(own)
    return sorted(ports)
