"""``harness serve``: its one line, who reaches it, and its end."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from command_line import run, run_process, start
from ended_processes import is_gone

from harness.devices.address import Address
from harness.devices.hosts import Host, silent


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _answers(host: str, port: int, limit_s: float = 60.0) -> bool:
    return not silent([Host("worker", 0, Address(host, port))], limit_s)


def _own_address() -> str | None:
    return next(
        (
            entry.address
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family == socket.AF_INET and not entry.address.startswith("127.")
        ),
        None,
    )


def test_it_serves_this_machine_alone_until_it_is_ended(tmp_path: Path) -> None:
    process = start(tmp_path, "serve")
    address = Address.parse(_first_line(process))
    assert address.host == "127.0.0.1"
    assert _answers("127.0.0.1", address.port)
    if (own := _own_address()) is not None:
        assert not _answers(own, address.port, limit_s=2.0)
    # Another one cannot have its port, and says so in a line.
    refused = run_process(tmp_path, "serve", "--port", str(address.port))
    assert refused.returncode == 2
    assert refused.stdout == ""
    last = refused.stderr.splitlines()[-1]
    assert last.startswith(f"harness: error: TensorFlow's server cannot start on port {address.port}: ")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 130
    assert stdout == ""
    assert stderr.splitlines()[-1] == "harness: ended by SIGINT"
    assert "warning" not in stderr
    assert is_gone(process.pid)
    assert not _answers("127.0.0.1", address.port)
    assert list(tmp_path.iterdir()) == []


def test_where_other_hosts_reach_it_a_warning_says_who_can_run_what(tmp_path: Path) -> None:
    own = _own_address() or "0.0.0.0"
    process = start(tmp_path, "serve", "--bind", own, "--devices", "2")
    try:
        address = Address.parse(_first_line(process))
        if own != "0.0.0.0":
            assert address.host == own
            assert _answers(own, address.port)
        assert _answers("127.0.0.1", address.port), "clients on this machine too"
    finally:
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 143
    (warning,) = re.findall(r"^harness: warning: .*$", stderr, re.MULTILINE)
    assert f"anyone who can connect to {address} can run any TensorFlow op as user " in warning
    assert "read and write" in warning


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--port", "70000"), "--port 70000; accepted: 0 (any free port) to 65535"),
        (("--port", "-1"), "--port -1; accepted: 0 (any free port) to 65535"),
        (("--devices", "0"), "--devices 0; accepted: 1 to "),
        (("--bind", "198.51.100.1"), "--bind 198.51.100.1: not an address of this host"),
        (("--bind", "no-such-host.invalid"), "--bind no-such-host.invalid: not an address of this host"),
        (("--bind", ""), "--bind"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    done = run(tmp_path, "serve", *arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert why in line
