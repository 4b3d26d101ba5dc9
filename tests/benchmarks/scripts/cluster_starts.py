#!/usr/bin/env python
"""Starts and stops clusters of local hosts, one after the other, and counts what came of it.

    python tests/benchmarks/scripts/cluster_starts.py  # 200 clusters of 3 hosts: about half an hour on two cores
    python tests/benchmarks/scripts/cluster_starts.py --clusters 20 --connect

Each host is a ``harness serve``, which lets the kernel pick its port. A cluster is started when all of its hosts have
said their addresses, no two alike, and a server answers at each; with ``--connect``, when a client in a process of its
own has computed on each. Then its hosts are killed, and none may be left. Exits with 1 where one start failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# The repository's own package, whether it is installed or not.
_ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_ROOT))

#: How long a host may take to say its address, in seconds, and a client to compute on each.
LIMIT_S = 120.0
_CLIENT = """
import sys
import harness
import tensorflow as tf
for device in harness.configure(sys.argv[1]):
    with tf.device(device.name):
        assert float(tf.reduce_sum(tf.ones([3]))) == 3.0
"""


def start_and_stop(hosts: int, *, connect: bool) -> tuple[str, list[str]]:
    """One cluster: what came of it (``started``, or what failed), and the addresses of its hosts."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "harness.cli.app", "serve"]
    processes: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as ending:
        for _ in range(hosts):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
            ending.callback(_end, process)
            processes.append(process)
        addresses = [_address(process) for process in processes]
        outcome = _outcome(addresses, connect, environment)
        if outcome != "started":
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4000:])
    return outcome, addresses


def _outcome(addresses: list[str], connect: bool, environment: dict[str, str]) -> str:
    from harness.devices.address import distinct
    from harness.devices.hosts import Host, silent

    if "" in addresses:
        return "a host did not say its address"
    try:
        found = distinct(addresses)
    except ValueError as error:
        return f"clash: {error}"
    if quiet := silent([Host("worker", task, address) for task, address in enumerate(found)]):
        return f"a host {quiet[0].why}"
    if connect:
        spec = f"cluster:{','.join(addresses)}"
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT, spec],
            env=environment,
            timeout=LIMIT_S,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.stderr.write(done.stderr[-4000:])
            return "a client could not compute on it"
    return "started"


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], LIMIT_S)
    return process.stdout.readline().strip() if ready else ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=200, help="how many, one after the other")
    parser.add_argument("--hosts", type=int, default=3, help="hosts of each")
    parser.add_argument("--connect", action="store_true", help="also compute on each, from a client")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for number in range(1, options.clusters + 1):
        outcome, _ = start_and_stop(options.hosts, connect=options.connect)
        outcomes[outcome] += 1
        if number % 20 == 0 or number == options.clusters:
            said = ", ".join(f"{count} {what}" for what, count in outcomes.items())
            sys.stdout.write(f"{number} of {options.clusters} after {time.monotonic() - began:.0f} s: {said}\n")
            sys.stdout.flush()
    return 0 if outcomes["started"] == options.clusters else 1


if __name__ == "__main__":
    sys.exit(main())
