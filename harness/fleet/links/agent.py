"""What runs on each node: meets the others of each exchange, and takes part in it in a process of its own.

The first member of an exchange leads it: it waits until the others have called at its port, and then tells all of them
at which ports TensorFlow listens. Whoever does not come in time is missing, which is a result too.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, TypeGuard

from harness.errors import UsageError
from harness.fleet.links.collective import exchange
from harness.fleet.links.record import LinkPlan, Report, Timing
from harness.fleet.links.schedule import Exchange
from harness.lazy import tf

#: A message is a line, and no longer than this.
_LONGEST = 16_384
_POLL_S, _ANSWER_S = 0.5, 5.0
#: How often a node that refuses is tried again, once every node should have started.
_TRIES = 3
#: How long a process stays after its result, for a member that still reads from it.
_LINGER_S = 1.0


class Missing(Exception):
    """Members of an exchange did not come."""

    def __init__(self, names: Sequence[str], why: str) -> None:
        self.names, self.why = tuple(names), why
        super().__init__(why)


@dataclass
class Meeting:
    """The port at which this node meets the others, and who has called so far."""

    plan: LinkPlan
    node: str
    listening: socket.socket
    began: float = field(default_factory=time.monotonic)
    #: By exchange and node: the open connection, and the port that was named.
    called: dict[tuple[int, str], tuple[socket.socket, int]] = field(default_factory=dict)

    @property
    def all_started(self) -> bool:
        """Whether every node should have started by now."""
        return time.monotonic() > self.began + self.plan.start_s

    def meet(self, number: int, port: int) -> tuple[int, ...]:
        """Return the ports of all members. Raise Missing if one does not come in time."""
        each = self.plan.exchanges[number]
        deadline = self.began + self.plan.deadline_s(each.round)
        if each.members[0] == self.node:
            return self._lead(number, each, port, deadline)
        return self._follow(number, each.members[0], port, deadline)

    def _lead(self, number: int, each: Exchange, port: int, deadline: float) -> tuple[int, ...]:
        others, silent = each.members[1:], dict.fromkeys(each.members, 0)
        while missing := [name for name in others if (number, name) not in self.called]:
            self._accept()
            for name in missing if self.all_started else ():
                silent[name] += not self._is_there(name)
            missing = [name for name in missing if (number, name) not in self.called]
            # Whoever is there will call, and must learn who is missing. Otherwise it would report this node instead.
            if all(silent[name] >= _TRIES for name in missing) or time.monotonic() > deadline:
                break
        ports = (port, *(self.called[number, name][1] for name in others if (number, name) in self.called))
        for name in others:
            if (number, name) in self.called:
                with contextlib.closing(self.called.pop((number, name))[0]) as connection:
                    _send(connection, {"missing": missing} if missing else {"ports": ports})
        if missing:
            raise Missing(missing, f"{', '.join(missing)} did not come to {self.node}")
        return ports

    def _follow(self, number: int, leader: str, port: int, deadline: float) -> tuple[int, ...]:
        tries, why = 0, ""
        while tries < _TRIES and time.monotonic() < deadline:
            try:
                with socket.create_connection(self.plan.nodes[leader], _ANSWER_S) as connection:
                    _send(connection, {"token": self.plan.token, "number": number, "node": self.node, "port": port})
                    connection.settimeout(max(1.0, deadline - time.monotonic()))
                    answer = _line(connection)
            except (OSError, ValueError) as error:
                why = str(getattr(error, "strerror", None) or error)
                tries += self.all_started
                time.sleep(_POLL_S)
                continue
            members = self.plan.exchanges[number].members
            missing = [name for name in members if name in (answer.get("missing") or ())]
            if missing:
                raise Missing(missing, f"{', '.join(missing)} did not come to {leader}")
            ports = answer.get("ports")
            if isinstance(ports, list) and len(ports) == len(members) and all(map(_is_port, ports)):
                return tuple(ports)
            why, tries = "an answer that is none", _TRIES
        raise Missing([leader], f"{leader} cannot be reached from {self.node}: {why or 'no answer'}")

    def _accept(self) -> None:
        """Take one call, if there is one. A call that is not of this run is dropped."""
        try:
            connection, _ = self.listening.accept()
        except OSError:
            return
        connection.settimeout(_ANSWER_S)
        with contextlib.suppress(OSError, ValueError):
            said = _line(connection)
            number, node, port = said.get("number"), said.get("node"), said.get("port")
            if said.get("token") != self.plan.token:
                raise ValueError("of another run")
            if isinstance(number, int) and number in self.plan.exchanges and isinstance(node, str) and _is_port(port):
                self.called[number, node] = (connection, port)
                return
        connection.close()

    def _is_there(self, name: str) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(self.plan.nodes[name], _ANSWER_S):
            return True
        return False


def take_part(plan: LinkPlan, node: str, rack: str | None, keep: Callable[[Report], None]) -> None:
    """Take part in all exchanges of ``node``, and give each report to ``keep`` as soon as it is there.

    Raise UsageError if the node is not of the plan, or its port is taken.
    """
    if node not in plan.nodes:
        raise UsageError(f"{node} is not in the plan of exchanges; its nodes: {', '.join(list(plan.nodes)[:5])}, …")
    port = plan.nodes[node][1]
    try:
        listening = socket.create_server(("", port), backlog=128)
    except OSError as error:
        raise UsageError(f"port {port}: {error.strerror or error}; name another with --port") from error
    listening.settimeout(_POLL_S)
    # Imported once: each exchange runs in a fork of this process, which has not started TensorFlow's runtime.
    _ = tf.__version__
    lingering: list[multiprocessing.process.BaseProcess] = []
    with contextlib.closing(listening):
        meeting = Meeting(plan, node, listening)
        own = [number for number, each in plan.exchanges.items() if node in each.members]
        for number in sorted(own, key=lambda number: plan.exchanges[number].round):
            keep(replace(_one(meeting, number, rack, lingering), attempt=plan.exchanges[number].attempt))
    for process in lingering:
        process.join(2 * _LINGER_S)


def _one(
    meeting: Meeting, number: int, rack: str | None, lingering: list[multiprocessing.process.BaseProcess]
) -> Report:
    plan, node = meeting.plan, meeting.node
    members = plan.exchanges[number].members
    with socket.socket() as reserved:
        reserved.bind(("", 0))
        port = reserved.getsockname()[1]
        try:
            ports = meeting.meet(number, port)
        except Missing as error:
            return Report(node, number, "failed", error.why, error.names, rack=rack)
    addresses = [f"{plan.nodes[name][0]}:{each}" for name, each in zip(members, ports, strict=True)]
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_in_a_fork,
        args=(theirs, addresses, members.index(node), number, plan.sizes_bytes, plan.limit_s),
        daemon=True,
    )
    process.start()
    theirs.close()
    with contextlib.closing(ours):
        try:
            if not ours.poll(plan.limit_s):
                process.kill()
                return Report(node, number, "failed", f"no result within {plan.limit_s:g} s", rack=rack)
            error_text, wrong, timings = ours.recv()
        except EOFError:
            process.join()
            return Report(node, number, "failed", f"its process ended with {process.exitcode}", rack=rack)
    lingering.append(process)
    if error_text:
        return Report(node, number, "failed", error_text, rack=rack)
    return Report(node, number, "wrong" if wrong else "done", "; ".join(wrong), (), timings, rack)


def _in_a_fork(
    answer: Connection,
    addresses: Sequence[str],
    index: int,
    number: int,
    sizes_bytes: Sequence[int],
    limit_s: float,
) -> None:
    os.dup2(sys.stderr.fileno(), 1)  # what TensorFlow prints is no report
    # Ends this process where the agent was killed, and cannot.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(limit_s + _LINGER_S) + 1)
    result: tuple[str, list[str], tuple[Timing, ...]]
    try:
        wrong, timings = exchange(addresses, index, number, sizes_bytes, limit_s)
        result = ("", wrong, tuple(timings))
    except Exception as error:  # noqa: BLE001 the boundary of the process: what TensorFlow raises is the result
        text = " ".join(str(error).split())
        result = (f"{type(error).__name__}: {text[:300]}", [], ())
    answer.send(result)
    answer.close()
    time.sleep(_LINGER_S)
    os._exit(0)


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _line(connection: socket.socket) -> dict[str, Any]:
    """Read one message. Raise ValueError if it is none, OSError if it does not come."""
    data = b""
    while not data.endswith(b"\n"):
        part = connection.recv(_LONGEST)
        data += part
        if not part or len(data) > _LONGEST:
            raise ValueError("the connection was closed" if not part else "a message that is too long")
    message = json.loads(data)
    if isinstance(message, dict):
        return message
    raise ValueError("a message that is none")


def _is_port(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536
