"""The address of a TensorFlow server: a host and a port."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: A host's name or IPv4 address, or an IPv6 address in brackets.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The address of a server. ``host`` is a name, an IPv4 address, or an IPv6 address in brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``HOST:PORT``. Raise ValueError if the text is not an address."""
        if not text:
            raise ValueError("the list of hosts has an empty entry")
        host, colon, port = text.rpartition(":")
        if not colon or (text.startswith("[") and text.endswith("]")):
            raise ValueError(f"host {text!r} has no port")
        if not _HOST.fullmatch(host):
            raise ValueError(f"{host!r} of {text!r} is not a host: use a name, an IPv4 address or an [IPv6 address]")
        if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= _LARGEST_PORT):
            raise ValueError(f"port {port!r} of host {host!r} is not a number from 1 to {_LARGEST_PORT}")
        return cls(host.lower(), int(port))

    @property
    def bare_host(self) -> str:
        """The host without brackets, for Python's socket module."""
        return self.host.strip("[]")

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def distinct(texts: list[str]) -> tuple[Address, ...]:
    """Parse each of ``texts``. Raise ValueError if one of them is not an address, or two are the same."""
    addresses = [Address.parse(text) for text in texts]
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            raise ValueError(f"host {address} is listed twice")
    return tuple(addresses)
