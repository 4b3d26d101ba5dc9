"""Whether a server answers on a host, asked of sockets of this process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from harness.devices.address import Address
from harness.devices.hosts import Host, Silence, silent

_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@contextlib.contextmanager
def _listening(answer: bytes | None) -> Iterator[Host]:
    """A host that answers each connection with ``answer``; with ``None`` it accepts none, as a stopped process."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(64)
                        connection.sendall(answer or b"")

        if answer is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield Host("worker", 3, Address("127.0.0.1", server.getsockname()[1]))
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _why(host: Host, limit_s: float = 30.0) -> str | None:
    found = silent([host], limit_s)
    return found[0].why if found else None


def test_a_server_that_speaks_http_2_is_there() -> None:
    with _listening(_SETTINGS) as host:
        assert _why(host) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers, but not as a TensorFlow server does"),
        (b"", "closes the connection: no TensorFlow server listens there"),
        (b"\x00\x00", "closes the connection: no TensorFlow server listens there"),
    ],
)
def test_something_else_that_listens_is_told_from_a_server(answer: bytes, why: str) -> None:
    with _listening(answer) as host:
        assert _why(host) == why


def test_a_host_that_refuses_and_one_that_hangs_and_one_that_is_not_known_are_named_with_the_reason() -> None:
    with _listening(None) as hung, _listening(_SETTINGS) as there:
        with socket.create_server(("127.0.0.1", 0)) as free:
            refused = Host("worker", 0, Address("127.0.0.1", free.getsockname()[1]))
        unknown = Host("ps", 1, Address("no-such-host.invalid", 1))
        before = time.monotonic()
        found = silent([refused, there, hung, unknown], limit_s=4.0)
        # All at once: one after the other, each of the silent ones would have its own limit.
        assert time.monotonic() - before < 120
    assert [silence.host for silence in found] == [refused, hung, unknown]
    assert found[0].why == "refuses the connection: nothing listens there"
    assert found[1].why == "does not answer within 4 s"
    assert "known" in found[2].why or "does not answer" in found[2].why
    assert str(found[0]) == f"127.0.0.1:{refused.address.port} (/job:worker/task:0) {found[0].why}"


def test_no_hosts_are_all_there() -> None:
    assert silent([]) == ()
    host = Host("worker", 0, Address("a", 1))
    assert Silence(host, "x") == Silence(host, "x")
