"""The hosts of a cluster: which task each is, and whether a server answers there.

Plain sockets: TensorFlow itself would wait for a host that is not there for as long as it takes.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from harness.devices.address import Address

#: How long a host may take to answer, in seconds: enough for a name to be looked up and for a packet to be sent twice.
ANSWER_LIMIT_S = 5.0
#: What a client of HTTP/2, and so of gRPC, says first, with its settings left as they are (RFC 9113, section 3.4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
#: The head of a frame is 9 bytes, the fourth of which is its type; a server's first frame has its settings.
_HEAD, _TYPE_AT, _SETTINGS = 9, 3, 4


@dataclass(frozen=True, slots=True)
class Host:
    """A TensorFlow server that is a task of a cluster. Tasks need not be numbered without gaps."""

    job: str
    task: int
    address: Address

    @property
    def task_name(self) -> str:
        """What the names of its devices begin with."""
        return f"/job:{self.job}/replica:0/task:{self.task}"

    def __str__(self) -> str:
        return f"{self.address} (/job:{self.job}/task:{self.task})"


@dataclass(frozen=True, slots=True)
class Silence:
    """A host on which no TensorFlow server answers, and why one would think so."""

    host: Host
    why: str

    def __str__(self) -> str:
        return f"{self.host} {self.why}"


def silent(hosts: Sequence[Host], limit_s: float = ANSWER_LIMIT_S) -> tuple[Silence, ...]:
    """Those of ``hosts`` on which no gRPC server answers within ``limit_s`` seconds. All are tried at once."""
    found: dict[Host, str | None] = dict.fromkeys(hosts, f"does not answer within {limit_s:g} s")

    def ask(host: Host) -> None:
        found[host] = _unanswered(host.address, limit_s)

    # Looking up a name has no time limit of its own: a thread that is stuck in it is left behind.
    threads = [threading.Thread(target=ask, args=(host,), name=f"harness-ask-{host}", daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 1.2 * limit_s  # so that what a thread says of its own limit is heard
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(Silence(host, why) for host, why in tuple(found.items()) if why is not None)


def _unanswered(address: Address, limit_s: float) -> str | None:
    """Why no gRPC server is at ``address``, or ``None`` where one is."""
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
        return f"is not known ({error.strerror})"
    except OSError as error:
        return f"cannot be reached ({error.strerror or error})"
    return None if head[_TYPE_AT] == _SETTINGS else "answers, but not as a TensorFlow server does"
