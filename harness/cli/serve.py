"""``harness serve``: this host's devices for clients on other hosts."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated

import typer

from harness.cli.endings import Ended
from harness.cli.errors import clear_errors, say
from harness.cli.options import whole_number
from harness.errors import UsageError

_LARGEST_PORT = 65535


def serve(
    port: Annotated[
        int, typer.Option("--port", parser=whole_number, metavar="P", help="Port to listen on; 0: any free port.")
    ] = 0,
    bind: Annotated[
        str,
        typer.Option("--bind", metavar="HOST", help="Address of this host to listen on; 0.0.0.0 for all."),
    ] = "127.0.0.1",
    devices: Annotated[
        int, typer.Option("--devices", parser=whole_number, metavar="N", help="How many logical CPUs to offer.")
    ] = 1,
) -> None:
    """Start TensorFlow's server and offer this host's devices to other hosts, until ^C.

    Prints the address of the server, HOST:PORT, on one line. Without --bind only this machine can reach it.
    TensorFlow's gRPC has no password: anyone who reaches the port can run any op, and read and write files, as the
    user who runs the server.
    """
    from harness.devices.host_server import start_server
    from harness.devices.kinds.kind import MAX_COUNT

    with clear_errors():
        if not 0 <= port <= _LARGEST_PORT:
            raise UsageError(f"--port {port}; accepted: 0 (any free port) to {_LARGEST_PORT}")
        if not 1 <= devices <= MAX_COUNT:
            raise UsageError(f"--devices {devices}; accepted: 1 to {MAX_COUNT} logical CPUs")
        server = start_server(port, bind, devices)
    if server.open_to_others:
        import psutil

        user = psutil.Process().username()
        say(
            f"warning: anyone who can connect to {server.address} can run any TensorFlow op as user {user}, and can "
            "read and write that user's files, because TensorFlow's gRPC asks for no password. Let only the hosts of "
            "the cluster reach the port, and stop the server with ^C when the cluster is done"
        )
    try:
        typer.echo(server.address)
        # In turns: a signal that arrives just before a wait is seen only after it.
        never = threading.Event()
        while not never.wait(timeout=1.0):
            pass
    except Ended as ended:
        say(f"ended by {ended}")
        sys.stdout.flush()
        # TensorFlow's server has no end of its own, and its threads would outlive what Python takes down.
        os._exit(ended.exit_code)
