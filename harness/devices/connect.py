"""Makes the servers of ``cores:N`` devices of this process: starts them, connects, and sees that all are there."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from harness.devices.core_server import JOB
from harness.devices.loopback import restrict_listening
from harness.devices.plan import Plan
from harness.devices.servers import CoreServer, CoreServers, proxy_exception
from harness.errors import CoreServerFailed

_HERE = "127.0.0.1"
#: The servers of this process, for as long as it lives.
_running: list[CoreServers] = []


def start_servers(tensorflow: Any, plan: Plan) -> CoreServers:
    """Start the servers of a plan; they come up while the caller goes on.

    Raises:
        CoreServerFailed: a process could not be started.
    """
    return CoreServers(plan.server_cpus, Path(tensorflow.__file__).parent, deterministic=plan.determinism)


def connect(tensorflow: Any, servers: CoreServers) -> tuple[CoreServer, ...]:
    """Wait for the servers, and make their devices known to TensorFlow, whose runtime has not started.

    This process becomes a server too, on loopback alone: the others fetch from it what they work on. Where this
    raises, the servers are ended.

    Raises:
        CoreServerFailed: one of them is not there, or TensorFlow cannot reach it.
    """
    running = servers.wait()
    os.environ.update(proxy_exception(os.environ))
    port = _free_port()
    cluster = {
        JOB: {task: server.address for task, server in enumerate(running)},
        "localhost": {0: f"{_HERE}:{port}"},
    }
    try:
        tensorflow.config.experimental_connect_to_cluster(tensorflow.train.ClusterSpec(cluster))
        # Only this starts the runtime, and with it the server of this process.
        tensorflow.config.list_logical_devices()
        _keep_to_this_machine(port)
    except (OSError, RuntimeError, ValueError, tensorflow.errors.OpError) as error:
        log = servers.log_tail(0)
        servers.stop()
        raise CoreServerFailed(running[0].cpu, f"could not be connected to ({error})", log) from error
    _running.append(servers)
    return running


def _free_port() -> int:
    """A port for the server of this process, which has to be known before it starts.

    TensorFlow listens without sharing: if another process takes the port first, it does not start, and says so.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
        free.bind((_HERE, 0))
        return int(free.getsockname()[1])


def _keep_to_this_machine(port: int) -> None:
    if not restrict_listening(port):
        raise RuntimeError(f"TensorFlow does not listen on port {port}, as it was told to")
