"""Ray: a task for each node of a cluster, pinned to it, with all of its GPUs."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Generator, Sequence
from typing import Any

from harness.errors import UsageError
from harness.fleet.engines.engine import HERE, Asked, Done, MachineRun
from harness.report.printable import shortened

_POLL_S = 1.0
#: How long the address of a cluster may take to answer, in seconds.
_ANSWER_S = 10.0
_HOST_AND_PORT = re.compile(r"(?:ray://)?([^:/]+):(\d{1,5})")
#: How long a task may wait for the GPUs of its node, in seconds.
_WAIT_S = 120.0
#: How much longer than its command a task may take, in seconds.
_GRACE_S = 60.0


class RayEngine:
    """The nodes of the cluster at an address. ``program`` is the harness on the nodes: by default, as here."""

    name = "ray"
    needs_folder = False

    def __init__(self, address: str, wait_s: float = _WAIT_S, program: Sequence[str] = HERE) -> None:
        self.address, self.wait_s, self.program = address, wait_s, tuple(program)
        self._nodes: dict[str, Any] = {}

    def machines(self) -> list[Asked]:
        """Connect, and return the nodes that are alive; the others with why not."""
        import ray

        self._connect()
        found = []
        for node in sorted(ray.nodes(), key=lambda each: (each["NodeName"], each["NodeID"])):
            name = node["NodeName"]
            # Several nodes of one host have the same name.
            name = name if name not in self._nodes else f"{name}-{node['NodeID'][:8]}"
            self._nodes[name] = node
            found.append(Asked(name, "" if node["Alive"] else "not alive"))
        if not found:
            raise UsageError(f"--ray {self.address}: the cluster has no nodes")
        return found

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        """Return the addresses that Ray knows."""
        return {name: str(self._nodes[name]["NodeManagerAddress"]) for name in machines}

    def _connect(self) -> None:
        import ray

        # Ray itself tries for minutes, and says so in its own lines.
        if found := _HOST_AND_PORT.fullmatch(self.address):
            try:
                socket.create_connection((found[1], int(found[2])), _ANSWER_S).close()
            except OSError as error:
                raise UsageError(f"--ray {self.address}: {error.strerror or error}") from error
        try:
            ray.init(address=self.address, log_to_driver=False, configure_logging=False)
        except Exception as error:
            raise UsageError(f"--ray {self.address}: {shortened(str(error), 300)}") from error

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        """Start a task on each node, and yield each node when its task is done, or should have been long ago."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if not ray.is_initialized():
            self._connect()  # an earlier run has let go of it
        command = [*self.program, *work.command, "--json", *work.arguments]
        # The task is sent by value, so that the nodes need nothing of this module.
        task = ray.remote(max_retries=1)(_task)
        pending: dict[Any, str] = {}
        for machine in machines:
            node = self._nodes[machine]
            strategy = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            gpus = 0 if work.links else node["Resources"].get("GPU", 0)
            options = {"scheduling_strategy": strategy, "num_gpus": gpus}
            pending[task.options(**options).remote(command, machine, work.limit_s)] = machine
        deadline = time.monotonic() + self.wait_s + work.limit_s + _GRACE_S
        try:
            while pending and time.monotonic() < deadline:
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=_POLL_S)
                for reference in ready:
                    machine = pending.pop(reference)
                    try:
                        text, why = ray.get(reference)
                        yield Done(machine, text or None, why)
                    except ray.exceptions.RayError as error:
                        # Of what the task itself raised, its own error says more than Ray's traceback.
                        cause = getattr(error, "cause", None) or error
                        yield Done(machine, why=shortened(f"{type(cause).__name__}: {cause}", 300))
            # Its node hangs, or others have its GPUs.
            for machine in pending.values():
                yield Done(machine, why=f"no result within {work.limit_s:g} s, or not free for {self.wait_s:g} s")
        finally:
            for reference in pending:
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.cancel(reference, force=True)
            ray.shutdown()


def _task(command: list[str], machine: str, limit_s: float) -> tuple[str, str]:
    """Run the command, and return its record, or why there is none. It imports nothing of the harness."""
    import os
    import signal
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*command, "--report", folder],
            env={**os.environ, "HARNESS_NODE": machine},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            text, said = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "", f"no result within {limit_s:g} s"
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    lines = [line for line in said.splitlines() if line.strip()]
    return (text, "") if text.strip() else ("", lines[-1] if lines else f"no record; exit code {process.returncode}")
