"""Restricts a listening socket of this process to this machine. It only uses Python's standard library.

TensorFlow's gRPC server listens on every interface (``0.0.0.0:`` is hard-coded in ``grpc_server_lib.cc``, and no option
changes it), and whoever reaches it may run any graph. So a packet filter on the socket lets Linux drop packets from
other machines before TCP sees them. It needs no privilege, and does not keep out other users of this machine.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
from pathlib import Path

#: Not in Python's socket module; from Linux's asm-generic/socket.h, the same on x86 and Arm.
_SO_ATTACH_FILTER = 26
#: Where the IP header begins for a filter, from Linux's linux/filter.h: SKF_NET_OFF, -0x100000 in 32 bits.
_IP = 0xFFF00000
# Instructions of the classic packet filter (linux/bpf_common.h): load a byte or a word, shift, mask, compare, return.
_BYTE, _WORD, _SHIFT, _MASK, _IF_EQUAL, _RETURN = 0x30, 0x20, 0x74, 0x54, 0x15, 0x06
_PASS, _DROP = 0xFFFFFFFF, 0


def filter_program(network: int = 0x7F000000, mask: int = 0xFF000000) -> bytes:
    """Make a filter that passes packets from ``network`` (IPv4, by default 127.0.0.0/8) and from ``::1`` (IPv6)."""
    # Each line: code, lines to skip if equal, lines to skip if not, operand.
    lines = [
        (_BYTE, 0, 0, _IP),
        (_SHIFT, 0, 0, 4),
        (_IF_EQUAL, 0, 3, 4),  # version 4: the source address is at 12
        (_WORD, 0, 0, _IP + 12),
        (_MASK, 0, 0, mask),
        (_IF_EQUAL, 9, 10, network),
        (_IF_EQUAL, 0, 9, 6),  # version 6: the source address is at 8, in four words
        (_WORD, 0, 0, _IP + 8),
        (_IF_EQUAL, 0, 7, 0),
        (_WORD, 0, 0, _IP + 12),
        (_IF_EQUAL, 0, 5, 0),
        (_WORD, 0, 0, _IP + 16),
        (_IF_EQUAL, 0, 3, 0),
        (_WORD, 0, 0, _IP + 20),
        (_IF_EQUAL, 0, 1, 1),
        (_RETURN, 0, 0, _PASS),
        (_RETURN, 0, 0, _DROP),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def restrict(listening: socket.socket, program: bytes | None = None) -> None:
    """Put a filter on a socket, and on the connections that it accepts. Raise OSError if the kernel accepts none."""
    lines = filter_program() if program is None else program
    held = ctypes.create_string_buffer(lines, len(lines))
    # struct sock_fprog: the number of lines, each of 8 bytes, and where they are.
    fprog = struct.pack("HP", len(lines) // 8, ctypes.addressof(held))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)


def restrict_listening(port: int | None = None, program: bytes | None = None) -> list[int]:
    """Put a filter, by default :func:`filter_program`, on the listening TCP sockets of this process.

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
