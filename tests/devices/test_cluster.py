"""Three hosts on this machine: what runs on one process runs on them unchanged, from every front."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import ServingHost, serving, spec_of

import harness

pytestmark = [pytest.mark.usefixtures("forked_workers"), pytest.mark.long]

FreshProcess = Callable[..., subprocess.CompletedProcess[str]]

#: Generated programs of each pattern that the cluster is given.
EXAMPLES = 4
_PROGRAM = """
import tensorflow as tf

@tf.function
def spread():
    a = tf.random.normal([4, 3])  # a constant would be folded
    with tf.device("/job:worker/task:0"):
        b = tf.matmul(a, tf.ones([3, 2]))
    with tf.device("/job:worker/task:2"):
        return tf.nn.relu(b)

def lost():
    raise tf.errors.UnavailableError(None, None, "no /job:worker/replica:0/task:1 here")
"""
_TESTS = """
    import harness
    import numpy as np
    import pytest
    import tensorflow as tf

    @pytest.mark.devices(min=3, kind="remote")
    @pytest.mark.parametrize("colocate", [True, False])
    def test_backward_ops_are_where_they_belong(devices, verify, colocate):
        weights = tf.Variable(tf.ones([3, 2]) / 7.0)

        def model(x):
            return tf.tanh(tf.matmul(x, weights))

        parallel = harness.make_parallel(model, devices, colocate_gradients=colocate)
        rows = {"x": np.arange(21.0, dtype=np.float32).reshape(7, 3)}
        verification = verify(parallel, model, rows, variables=[weights], check=False)
        assert verification.passed == colocate, verification
        assert {finding.kind for finding in verification.findings} == (set() if colocate else {"gradient-placement"})

    @pytest.mark.devices(kind="core")
    def test_of_another_kind():
        raise AssertionError("skipped before it runs")
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[ServingHost]]:
    with serving(3) as started:
        yield started


def _harness(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent  # where planted suites are
    paths = [str(Path(harness.__file__).resolve().parent.parent), str(here), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "harness.cli.app", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def the_same_checks_as_one_process() -> None:
    from core_processes import addresses_of_this_machine, listening_ports
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis.strategies import SearchStrategy

    from harness.checks.ensembles import verify_models
    from harness.checks.generated_programs import verify_program
    from harness.checks.model_parallel import verify_staged
    from harness.devices.address import Address
    from harness.devices.fingerprint import fingerprint
    from harness.devices.hosts import Host, silent
    from harness.devices.runtime import configure, current
    from harness.errors import DevicesAlreadyConfigured
    from harness.strategies import models, programs, staged_programs

    spec = os.environ["HOSTS"]
    devices = configure(spec)
    addresses = spec.removeprefix("cluster:").split(",")
    assert devices.names == tuple(f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(3))
    assert [(each.kind, each.physical) for each in devices] == [("remote", f"{where}/CPU:0") for where in addresses]
    assert devices.host == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert all(where in devices.reason for where in addresses)
    assert configure(spec) is devices is current()
    assert (fingerprint().spec, fingerprint().devices) == (spec, devices.names)
    for other in ("cpu:1", f"cluster:{addresses[0]}"):
        with pytest.raises(DevicesAlreadyConfigured, match="3 remote device"):
            configure(other)

    # All hosts are on loopback, and so this process listens for this machine alone.
    (own,) = listening_ports(os.getpid())
    assert not silent([Host("localhost", 0, Address("127.0.0.1", own))])
    for address in addresses_of_this_machine():
        with pytest.raises(TimeoutError):
            socket.create_connection((address, own), timeout=0.5)

    proven = {"programs": 0, "staged": 0, "models": 0}

    def shown(name: str, strategy: SearchStrategy[Any], verify: Callable[..., harness.Verification]) -> None:
        @seed(7)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def hold(example: Any) -> None:
            found = verify(example, devices)
            assert found.findings == (), found
            proven[name] += found.passed and found.exercised.values > 0

        hold()

    shown("programs", programs(), verify_program)
    shown("staged", staged_programs(max_stages=3), verify_staged)
    shown("models", models(max_models=3), verify_models)
    assert all(proven.values()), proven
    print("proven", proven)


def test_data_parallel_programs_pipelines_and_ensembles_pass_as_in_one_process(
    hosts: list[ServingHost], fresh_process: FreshProcess
) -> None:
    done = fresh_process(the_same_checks_as_one_process, HOSTS=spec_of(hosts))
    assert "proven" in done.stdout


def test_the_hosts_that_tf_config_names_are_shown_with_their_addresses(
    hosts: list[ServingHost], tmp_path: Path
) -> None:
    names = ", ".join(f'"{host.address}"' for host in hosts)
    config = f'{{"cluster": {{"chief": ["10.0.0.1:1"], "worker": [{names}]}}, "task": {{"type": "chief", "index": 0}}}}'
    done = _harness(tmp_path, "devices", "--devices", "cluster:tf_config", TF_CONFIG=config)
    assert (done.returncode, done.stderr) == (0, "")
    for task, host in enumerate(hosts):
        assert re.search(rf"/job:worker/replica:0/task:{task}/device:CPU:0 .*{host.address}/CPU:0", done.stdout)


def test_a_function_is_traced_on_the_hosts_that_ran_it_and_an_error_names_the_host(
    hosts: list[ServingHost], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM, encoding="utf-8")
    done = _harness(tmp_path, "trace", "program.py:spread", "--devices", spec_of(hosts))
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"worker/0/CPU:0\W.*MatMul", done.stdout)
    assert re.search(r"worker/2/CPU:0\W.*Relu", done.stdout)
    assert re.search(r"worker/0/CPU:0\W+worker/2/CPU:0\W", done.stdout), "a transfer from host to host"
    failed = _harness(tmp_path, "trace", "program.py:lost", "--devices", spec_of(hosts))
    assert failed.returncode == 2
    assert f"/job:worker/task:1 is {hosts[1].address}" in failed.stderr


def test_a_session_of_tests_runs_on_the_hosts(
    hosts: list[ServingHost], pytester: pytest.Pytester, inner_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest("-rs", f"--harness-devices={spec_of(hosts)}", real=True)
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["3 remote devices from cluster:*: 3 devices of 3 hosts, as requested: *"])


def on_several_cpus_of_a_host() -> None:
    import tensorflow as tf

    from harness.devices.runtime import configure
    from harness.judgement.verify import verify
    from harness.parallel.data import make_parallel

    devices = configure(os.environ["HOSTS"])
    assert [device.parsed.short for device in devices] == ["worker/0/CPU:0", "worker/0/CPU:1", "worker/0/CPU:2"]
    found = verify(make_parallel(tf.tanh, devices), tf.tanh, {"x": tf.random.normal([7, 3])}, devices=devices)
    assert found.passed, found
    assert found.exercised.devices == devices.names


def test_a_host_can_offer_several_logical_cpus(fresh_process: FreshProcess) -> None:
    with serving(1, "--devices", "3") as several:
        fresh_process(on_several_cpus_of_a_host, HOSTS=spec_of(several))
