"""Connects to TensorFlow servers, so that their devices become devices of this process.

This process becomes a server too: the others fetch data from it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.devices.core_server import JOB
from harness.devices.hosts import Host, Silence, silent
from harness.devices.loopback import passing, restrict_listening
from harness.devices.plan import Plan
from harness.devices.resolvers import CLIENT_JOB
from harness.devices.servers import CoreServer, CoreServers, proxy_exception
from harness.errors import CoreServerFailed, HostUnreachable

_HERE = "127.0.0.1"
#: The servers of this process, for as long as it lives.
_running: list[CoreServers] = []


def start_servers(tensorflow: Any, plan: Plan) -> CoreServers:
    """Start the servers of a plan, without waiting for them. Raise CoreServerFailed if a process cannot be started."""
    return CoreServers(plan.server_cpus, Path(tensorflow.__file__).parent, deterministic=plan.options.determinism)


def connect(tensorflow: Any, servers: CoreServers) -> tuple[CoreServer, ...]:
    """Wait for the servers, and connect TensorFlow to them before its runtime starts.

    This process only listens on loopback. On an error, the servers are ended.

    Raises:
        CoreServerFailed: a server did not start, or TensorFlow cannot reach it.
    """
    running = servers.wait()
    os.environ.update(proxy_exception(os.environ))
    try:
        _join(tensorflow, {JOB: {task: server.address for task, server in enumerate(running)}}, _HERE, passing())
    except (OSError, RuntimeError, ValueError, tensorflow.errors.OpError) as error:
        log = servers.log_tail(0)
        servers.stop()
        raise CoreServerFailed(running[0].cpu, f"started, but could not be reached ({error})", log) from error
    _running.append(servers)
    return running


def connect_hosts(tensorflow: Any, hosts: Sequence[Host], spec: str) -> None:
    """Connect TensorFlow to ``hosts`` before its runtime starts. This process only listens for them and this machine.

    Raise HostUnreachable if no server answers on a host, or TensorFlow cannot connect to it.
    """
    if quiet := silent(hosts):
        raise HostUnreachable(spec, [str(each) for each in quiet])
    os.environ.update(proxy_exception(os.environ, [host.address.bare_host for host in hosts]))
    # Else TensorFlow waits forever for a host that is lost between the check above and the connection.
    os.environ.setdefault("GRPC_FAIL_FAST", "true")
    jobs: dict[str, dict[int, str]] = {}
    for host in hosts:
        jobs.setdefault(host.job, {})[host.task] = str(host.address)
    try:
        here, sources = _seen_from(hosts)
        _join(tensorflow, jobs, here, passing(sources))
    except (OSError, RuntimeError, ValueError, tensorflow.errors.OpError) as error:
        if quiet := silent(hosts):
            raise HostUnreachable(spec, [str(each) for each in quiet]) from error
        failed = [str(Silence(host, f"answers, but the connection failed ({error})")) for host in hosts]
        raise HostUnreachable(spec, failed, HostUnreachable.RESTART) from error


def _join(tensorflow: Any, jobs: Mapping[str, Mapping[int, str]], here: str, program: bytes) -> None:
    """Connect to the tasks of ``jobs``; ``here`` is this host's address for them, ``program`` the packet filter."""
    with held_port() as port:
        cluster = {**jobs, CLIENT_JOB: {0: f"{here}:{port}"}}
        tensorflow.config.experimental_connect_to_cluster(tensorflow.train.ClusterSpec(cluster))
        # Only this starts the runtime, and with it the server of this process.
        tensorflow.config.list_logical_devices()
    if not restrict_listening(port, program):
        raise RuntimeError(f"TensorFlow does not listen on the requested port {port}")


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Reserve a port for the server of this process, which must be known before it starts.

    The reserving socket does not listen, and shares its address, so TensorFlow can still listen there, while the kernel
    gives the port to nobody else.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield int(held.getsockname()[1])


def _seen_from(hosts: Sequence[Host]) -> tuple[str, list[str]]:
    """Find this host's address for the others, and their IP addresses."""
    sources: list[str] = []
    here = _HERE
    for host in hosts:
        bare, port = host.address.bare_host, host.address.port
        for family, _, _, _, where in socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM):
            sources.append(str(where[0]).partition("%")[0])
            own = _own_address(family, where)
            if here == _HERE and own is not None and not own.startswith("127.") and own != "::1":
                here = f"[{own}]" if ":" in own else own
                sources.append(own)
    return here, sources


def _own_address(family: int, where: Any) -> str | None:
    """Find the address from which this host would send to ``where``, without sending."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0]).partition("%")[0]
    return None
