"""Starts the TensorFlow servers of ``cores:N``, each in its own process, and ends them.

No Python object ends them when the interpreter exits: TensorFlow's client tells them to forget its functions at its
very end, and complains on stderr if they are gone. They end when the kernel closes this process's end of a pipe.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.devices import core_server
from harness.errors import CoreServerFailed
from harness.tensorflow_version import C_LIBRARY

#: Time limit of the start, in seconds. TensorFlow's library has 1 GB, the disk may be cold, and the machine busy.
START_LIMIT_S = 300.0
#: Bytes of a server's log shown in an error.
_TAIL_BYTES = 2000
#: Environment variables of gRPC: the proxy, and the hosts reached without it.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_NO_PROXY = ("no_grpc_proxy", "no_proxy")
_HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class CoreServer:
    """A running server. ``address`` is its host and port."""

    cpu: int
    pid: int
    address: str


class CoreServers:
    """The servers of one process. They end with it, or with :meth:`stop` after a failed start."""

    def __init__(self, cpus: Sequence[int], tensorflow: Path, *, deterministic: bool = False) -> None:
        """Start a server on each of ``cpus``, without waiting. ``tensorflow``: its package's folder.

        Raises:
            CoreServerFailed: a process could not be started.
        """
        self._cpus = tuple(cpus)
        self._started_s = time.monotonic()
        self._pids: list[int] = []
        self._stdouts: list[int] = []
        self._logs: list[IO[bytes]] = []
        read_end, self._alive = os.pipe()
        try:
            for cpu in cpus:
                self._spawn(cpu, tensorflow / C_LIBRARY, read_end, _environment(deterministic))
        except OSError as error:
            self.stop()
            raise CoreServerFailed(cpu, f"could not be started ({error})", "") from error
        finally:
            os.close(read_end)

    def _spawn(self, cpu: int, library: Path, stdin: int, environment: Mapping[str, str]) -> None:
        stdout, write_end = os.pipe()
        self._stdouts.append(stdout)
        # A file without a name: nothing is left of it, however the processes end.
        log = tempfile.TemporaryFile()  # noqa: SIM115 - kept for as long as the server runs
        self._logs.append(log)
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", core_server.__file__, str(cpu), str(library), str(os.getpid())],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_DUP2, write_end, 1),
                    (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                ],
                # ^C in a terminal reaches the whole group; it should end the client, and the servers with it.
                setsigmask=[signal.SIGINT],
            )
        finally:
            os.close(write_end)
        self._pids.append(pid)

    def wait(self, limit_s: float = START_LIMIT_S) -> tuple[CoreServer, ...]:
        """Wait until all servers are ready.

        If one ends, or is not ready within ``limit_s`` seconds, end all, and raise CoreServerFailed.
        """
        servers = []
        for index, (cpu, stdout) in enumerate(zip(self._cpus, self._stdouts, strict=True)):
            address = self._read_line(stdout, self._started_s + limit_s)
            if not address.endswith("\n"):
                late = time.monotonic() >= self._started_s + limit_s
                what = f"did not start within {limit_s:g} s" if late else "exited while starting"
                log = self.log_tail(index)
                self.stop()
                raise CoreServerFailed(cpu, what, log)
            servers.append(CoreServer(cpu, self._pids[index], address.strip()))
        for stdout in self._stdouts:
            os.close(stdout)
        self._stdouts.clear()
        return tuple(servers)

    @staticmethod
    def _read_line(descriptor: int, deadline_s: float) -> str:
        line = b""
        while not line.endswith(b"\n"):
            left = deadline_s - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                break
            chunk = os.read(descriptor, 1024)
            if not chunk:
                break
            line += chunk
        return line.decode(errors="replace")

    def log_tail(self, index: int) -> str:
        """Read the end of the log of a server."""
        descriptor = self._logs[index].fileno()
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace").strip()

    def stop(self) -> None:
        """End the servers, and wait for their end."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)  # a child that nobody has waited for: the id is its own
            os.waitpid(pid, 0)
        for descriptor in (*self._stdouts, *([self._alive] if self._alive >= 0 else [])):
            os.close(descriptor)
        for log in self._logs:
            log.close()
        self._pids, self._stdouts, self._logs, self._alive = [], [], [], -1


def _environment(deterministic: bool) -> dict[str, str]:
    """Make a server's environment: no GPU, no proxy between servers, and the client's determinism."""
    environment = {**os.environ, **proxy_exception(os.environ), "CUDA_VISIBLE_DEVICES": "-1"}
    if deterministic:
        environment["TF_DETERMINISTIC_OPS"] = "1"
    return environment


def proxy_exception(environ: Mapping[str, str], reached: Sequence[str] = (_HERE,)) -> dict[str, str]:
    """Give the variables that let gRPC reach hosts, by default this one, without a proxy; empty if none is set.

    gRPC would use the proxy even for 127.0.0.1, and hang.
    """
    if not any(environ.get(name) for name in _PROXIES):
        return {}
    known = next((environ[name] for name in _NO_PROXY if environ.get(name)), "")
    hosts = [host for host in known.split(",") if host.strip()]
    return {_NO_PROXY[0]: ",".join([*hosts, *(host for host in dict.fromkeys(reached) if host not in hosts)])}
