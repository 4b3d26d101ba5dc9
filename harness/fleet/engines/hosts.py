"""Hosts over ssh, for those who have no scheduler: so many at once, each with a time limit."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.fleet.engines.command import is_node
from harness.fleet.engines.engine import Asked, Done, MachineRun
from harness.fleet.files import MOST_BYTES
from harness.report.printable import shortened

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RACK = re.compile(r"[A-Za-z0-9][\w./-]{0,63}")
#: What the time limit of a machine is longer than that of its command, so that its record can still come.
_GRACE_S = 60.0
_POLL_S = 0.05


class Hosts:
    """The hosts of a file: ``[USER@]HOST [rack=NAME]`` in each line, with comments after ``#``."""

    name = "hosts"
    needs_folder = False

    def __init__(self, path: Path, ssh: str = SSH, program: str = "harness") -> None:
        self.path, self.ssh, self.program = path, shlex.split(ssh), program
        self._targets: dict[str, tuple[str, str]] = {}

    def machines(self) -> list[Asked]:
        """Read the file. Raise UsageError for a line that is no host, a host twice, or no host at all."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise UsageError(f"--hosts {self.path}: {why}") from error
        for number, line in enumerate(lines, start=1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            user, _, host = words[0].rpartition("@")
            rack = words[1].removeprefix("rack=") if len(words) == 2 and words[1].startswith("rack=") else ""
            wrong = len(words) > 1 and not _RACK.fullmatch(rack)
            if not is_node(host) or (user and not _USER.fullmatch(user)) or wrong:
                raise UsageError(f"--hosts {self.path}, line {number}: {line!r}; accepted: [USER@]HOST [rack=NAME]")
            if host in self._targets:
                raise UsageError(f"--hosts {self.path}, line {number}: {host} is named twice")
            self._targets[host] = (words[0], rack)
        if not self._targets:
            raise UsageError(f"--hosts {self.path}: names no host")
        return [Asked(host) for host in self._targets]

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        """Return the names of the hosts, as in the file."""
        return {name: name for name in machines}

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        """Run the work over ssh, and yield each host when it is done."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        for machine in machines:
            waiting.put(machine)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                try:
                    machine = waiting.get_nowait()
                except queue.Empty:
                    return
                done.put(self._ask(machine, work, ended))

        threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(work.at_once, len(machines)))]
        for thread in threads:
            thread.start()
        try:
            for _ in machines:
                yield done.get()
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def _ask(self, machine: str, work: MachineRun, ended: threading.Event) -> Done:
        target, rack = self._targets[machine]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    [*self.ssh, "--", target, self._remote(machine, rack, work)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=said,
                    start_new_session=True,
                )
            except OSError as error:
                return Done(machine, why=f"{self.ssh[0]}: {error.strerror or error}")
            deadline = time.monotonic() + work.limit_s + _GRACE_S
            why = ""
            while process.poll() is None and not why:
                if ended.is_set():
                    why = "interrupted"
                elif time.monotonic() > deadline:
                    why = f"no result within {work.limit_s:g} s"
                elif max(os.fstat(out.fileno()).st_size, os.fstat(said.fileno()).st_size) > MOST_BYTES:
                    why = "sent more than a record can have"
                else:
                    ended.wait(_POLL_S)
            if why:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            said.seek(0)
            text = out.read(MOST_BYTES).decode("utf-8", "replace")
            if why:
                return Done(machine, text.strip() or None, why)
            lines = said.read(MOST_BYTES).decode("utf-8", "replace").splitlines()
        if text.strip():
            return Done(machine, text)
        last = next((line for line in reversed(lines) if line.strip()), "")
        return Done(machine, why=shortened(last, 300) or f"no record; exit code {process.returncode}")

    def _remote(self, machine: str, rack: str, work: MachineRun) -> str:
        """The command for the host's shell. Its folder goes when it ends, and it ends at its time limit."""
        names = {"HARNESS_NODE": machine, **({"HARNESS_RACK": rack} if rack else {})}
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in names.items())
        limit = f"timeout --kill-after=30 {work.limit_s:g}"
        options = shlex.join(work.arguments)
        return (
            "d=$(mktemp -d) || exit 2; trap 'rm -rf \"$d\"' EXIT; "
            f'{settings} {limit} {self.program} {shlex.join(work.command)} --json --report "$d" {options}'
        )
