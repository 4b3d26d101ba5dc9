"""The hosts of a cluster, and whether a server answers on each.

It uses plain sockets, because TensorFlow would wait forever for an absent host.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.devices.address import Address

#: Seconds for a host to answer: enough for a name lookup and a retransmission.
ANSWER_LIMIT_S = 5.0
#: The first bytes of an HTTP/2 (and gRPC) client, with default settings (RFC 9113, section 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
#: A frame has a head of 9 bytes, the fourth is its type; a server's first frame has its settings.
_HEAD, _TYPE_AT, _SETTINGS = 9, 3, 4


@dataclass(frozen=True, slots=True)
class Host:
    """A TensorFlow server that is a task of a cluster. Task numbers may have gaps."""

    job: str
    task: int
    address: Address

    @property
    def task_name(self) -> str:
        """The start of its devices' names."""
        return f"/job:{self.job}/replica:0/task:{self.task}"

    def __str__(self) -> str:
        return f"{self.address} (/job:{self.job}/task:{self.task})"


@dataclass(frozen=True, slots=True)
class Silence:
    """A host on which no TensorFlow server answers, and the symptom."""

    host: Host
    why: str

    def __str__(self) -> str:
        return f"{self.host} {self.why}"


def silent(hosts: Sequence[Host], limit_s: float = ANSWER_LIMIT_S) -> tuple[Silence, ...]:
    """Find the hosts on which no gRPC server answers within ``limit_s`` seconds. All are tried at once."""
    found: dict[Host, str | None] = dict.fromkeys(hosts, f"does not answer within {limit_s:g} s")

    def ask(host: Host) -> None:
        found[host] = _unanswered(host.address, limit_s)

    # A name lookup has no time limit: a thread that hangs in it is abandoned.
    threads = [threading.Thread(target=ask, args=(host,), name=f"harness-ask-{host}", daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 1.2 * limit_s  # later than the threads' own limits
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(Silence(host, why) for host, why in tuple(found.items()) if why is not None)


def _unanswered(address: Address, limit_s: float) -> str | None:
    """Say why no gRPC server answers at ``address``, or ``None`` if one does."""
    deadline = time.monotonic() + limit_s
    try:
        with socket.create_connection((address.bare_host, address.port), timeout=limit_s) as connection:
            connection.sendall(_PREFACE)
            head = b""
            while len(head) < _HEAD:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                part = connection.recv(_HEAD - len(head))
                if not part:
                    return "closes the connection: no TensorFlow server listens there"
                head += part
    except TimeoutError:
        return f"does not answer within {limit_s:g} s"
    except ConnectionRefusedError:
        return "refuses the connection: nothing listens there"
    except socket.gaierror as error:
        return f"is an unknown host ({error.strerror})"
    except OSError as error:
        return f"cannot be reached ({error.strerror or error})"
    return None if head[_TYPE_AT] == _SETTINGS else "answers, but not as a TensorFlow server does"
