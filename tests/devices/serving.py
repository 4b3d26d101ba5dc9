"""Hosts of a cluster for tests: processes of ``harness serve`` on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import harness

_IMPORT_ROOT = Path(harness.__file__).resolve().parent.parent
#: How long a host may take to say its address, in seconds: the machine may be busy.
LIMIT_S = 600


@dataclass(frozen=True)
class ServingHost:
    """A host that serves. ``said``: the file with what it says on stderr."""

    process: subprocess.Popen[str]
    address: str
    said: Path

    @property
    def pid(self) -> int:
        return self.process.pid


def spec_of(hosts: list[ServingHost]) -> str:
    return "cluster:" + ",".join(host.address for host in hosts)


def start_serving(said: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start ``harness serve``, and do not wait for it."""
    paths = [str(_IMPORT_ROOT), os.environ.get("PYTHONPATH", "")]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # else a test in the background lets ^C be ignored
    try:
        with said.open("w") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "harness.cli.app", "serve", *arguments],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
    finally:
        signal.signal(signal.SIGINT, before)


def address_of(process: subprocess.Popen[str], said: Path) -> str:
    """The line that it prints once it serves."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
    line = process.stdout.readline().strip() if ready else ""
    assert line, f"no address within {LIMIT_S} s: {said.read_text()}"
    return line


@contextlib.contextmanager
def serving(count: int, *arguments: str) -> Iterator[list[ServingHost]]:
    """``count`` hosts, started at once; they are gone at the end, whatever happened to them."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        files = [Path(folder) / f"{index}.log" for index in range(count)]
        started = []
        for said in files:
            process = start_serving(said, *arguments)
            ending.callback(_end, process)
            started.append(process)
        yield [
            ServingHost(process, address_of(process, said), said) for process, said in zip(started, files, strict=True)
        ]


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()  # also a stopped one
    process.communicate()
