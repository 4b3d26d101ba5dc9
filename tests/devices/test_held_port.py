"""The port of this process's own server, which TensorFlow wants to know before it listens."""

from __future__ import annotations

import socket

from harness.devices.connect import held_port


def test_a_port_that_is_held_is_given_to_nobody_else_and_can_be_listened_at() -> None:
    with held_port() as port:
        others = [socket.create_server(("", 0)) for _ in range(200)]
        assert port not in {other.getsockname()[1] for other in others}
        for other in others:
            other.close()
        # As gRPC listens: the address shared, the port not.
        with socket.socket(socket.AF_INET6) as listening:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(("::", port))
            listening.listen()
            socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_two_held_at_once_differ() -> None:
    with held_port() as one, held_port() as other:
        assert one != other
