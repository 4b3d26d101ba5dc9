"""Packet filters for listening sockets that some other hosts may reach. :mod:`harness.devices.loopback` explains "
"why."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable

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
