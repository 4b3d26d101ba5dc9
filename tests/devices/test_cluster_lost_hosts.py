"""Hosts that are not there, that hang, and that die in the middle: each is named, and nothing waits for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ended_processes import is_gone, wait_until
from serving import serving, spec_of
from test_cluster import _harness

pytestmark = [pytest.mark.usefixtures("forked_workers"), pytest.mark.long]

FreshProcess = Callable[..., subprocess.CompletedProcess[str]]

#: A program that ends the host with the process id in DYING, in the middle of its second call.
_KILLS = """
import os
import signal

import tensorflow as tf

def step():
    with tf.device("/job:worker/task:1"):
        made = tf.random.normal([4, 3])
    os.kill(int(os.environ["DYING"]), signal.SIGKILL)
    with tf.device("/job:worker/task:1"):
        return tf.reduce_sum(tf.nn.relu(made)).numpy()
"""


def a_host_dies_while_programs_are_verified() -> None:
    import tensorflow as tf

    from harness.devices.runtime import configure
    from harness.judgement.verify import verify
    from harness.parallel.data import make_parallel

    devices = configure(os.environ["HOSTS"])
    address = devices[1].physical.removesuffix("/CPU:0")
    parallel = make_parallel(tf.tanh, devices)
    inputs = {"x": tf.random.normal([6, 2])}
    assert verify(parallel, tf.tanh, inputs, devices=devices).passed
    calls = []

    def dying(x):  # type: ignore[no-untyped-def]
        calls.append(parallel(x=x))
        if len(calls) == int(os.environ["AT_CALL"]):
            os.kill(int(os.environ["DYING"]), signal.SIGKILL)
        return parallel(x=x)

    found = verify(dying, tf.tanh, inputs, devices=devices, modes=["eager", "graph"])
    assert found.verdict == "FAIL", found
    errors = [finding for finding in found.findings if finding.kind == "error"]
    assert errors, found
    for finding in errors:
        assert finding.device == devices[1].name, finding
        assert f"{address} (/job:worker/task:1) refuses the connection" in finding.message, finding
    # The next one says so too, and at once.
    again = verify(parallel, tf.tanh, inputs, devices=devices, modes=["eager"])
    assert [finding.kind for finding in again.findings] == ["error"], again
    assert address in again.findings[0].message
    print("named")


@pytest.mark.parametrize("at_call", [1, 2])
def test_a_host_that_is_killed_while_a_program_is_verified_is_named_in_a_finding(
    fresh_process: FreshProcess, at_call: int
) -> None:
    with serving(2) as hosts:
        done = fresh_process(
            a_host_dies_while_programs_are_verified,
            HOSTS=spec_of(hosts),
            DYING=str(hosts[1].pid),
            AT_CALL=str(at_call),
        )
        assert "named" in done.stdout
        assert not is_gone(hosts[0].pid), "the other host goes on"


def test_hosts_that_are_not_there_or_hang_or_die_are_named_by_every_command(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_KILLS, encoding="utf-8")
    with serving(3) as hosts:
        spec = spec_of(hosts)
        # In the middle.
        done = _harness(tmp_path, "trace", "program.py:step", "--devices", spec, DYING=str(hosts[1].pid))
        assert done.returncode == 2, done
        assert "program.py:step raised" in done.stderr
        assert f"{hosts[1].address} (/job:worker/task:1) refuses the connection" in done.stderr
        # One that hangs in the middle: the time limit of the check ends it.
        rest = spec_of([hosts[0], hosts[2]])
        done = _harness(
            tmp_path,
            *("validate", "--devices", rest, "--timeout", "5"),
            STOPPED=str(hosts[2].pid),
            _HARNESS_SUITE="hanging_checks:SUITE",
        )
        assert done.returncode == 1, done
        hung = f"timed out after 5 s; {hosts[2].address} (/job:worker/task:1) does not answer within 5 s"
        assert hung in json.loads((tmp_path / "harness-report" / "run.json").read_text())["results"][0]["reason"]
        # Before the beginning, one that is dead and one that hangs.
        done = _harness(tmp_path, "validate", "--devices", spec, "--only", "vector-add")
        assert done.returncode == 2, done
        assert f"{hosts[1].address} (/job:worker/task:1) refuses the connection: nothing listens there" in done.stderr
        assert f"{hosts[2].address} (/job:worker/task:2) does not answer within 5 s" in done.stderr
        assert hosts[0].address not in done.stderr.replace(spec, "")
        assert "harness serve" in done.stderr
        os.kill(hosts[2].pid, signal.SIGCONT)
        # Servers that a client has left serve the next one.
        done = _harness(tmp_path, "validate", "--devices", rest, "--only", "vector-add")
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert wait_until(lambda: all(is_gone(host.pid) for host in hosts))
