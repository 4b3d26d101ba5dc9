"""The command line and the plug-in on ``cores:2``: what they prove is from processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from core_processes import TWO_CORES

import harness

pytestmark = [TWO_CORES, pytest.mark.usefixtures("forked_workers")]

_PROGRAM = """
import tensorflow as tf

@tf.function
def spread():
    a = tf.random.normal([4, 3])  # a constant would be folded
    with tf.device("/job:core/task:0"):
        b = tf.matmul(a, tf.ones([3, 2]))
    with tf.device("/job:core/task:1"):
        return tf.nn.relu(b)
"""
_TESTS = """
    import harness
    import numpy as np
    import pytest
    import tensorflow as tf

    ROWS = {"x": np.arange(21.0, dtype=np.float32).reshape(7, 3)}

    @pytest.fixture(scope="module")
    def weights(devices):
        return tf.Variable(tf.ones([3, 2]) / 7.0)

    @pytest.mark.devices(min=2, kind="core")
    @pytest.mark.parametrize("colocate", [True, False])
    def test_backward_ops_and_batches_of_any_size(devices, verify, weights, colocate):
        def model(x):
            return tf.tanh(tf.matmul(x, weights))

        parallel = harness.make_parallel(model, devices, colocate_gradients=colocate)
        modes = ["eager", "graph", "dynamic"]
        verification = verify(parallel, model, ROWS, variables=[weights], modes=modes, check=False)
        assert verification.passed == colocate, verification
        assert {finding.kind for finding in verification.findings} == (set() if colocate else {"gradient-placement"})
        assert set(devices.names) <= set(verification.exercised.devices)
        for trace in verification.traces.values():
            where = {str(op.device) for op in trace.ops if op.role == "gradient" and op.type == "TanhGrad"}
            assert where == (set(devices.names) if colocate else {devices.host})

    def test_a_function_that_eager_code_calls_in_another_process_has_no_graph(devices, verify, weights):
        model = tf.function(lambda x: tf.tanh(tf.matmul(x, weights)))

        def towers(x):
            results = []
            for device, rows in zip(devices, tf.split(x, [4, 3])):
                with tf.device(device.name):
                    results.append(model(rows))
            return tf.concat(results, 0)

        with pytest.raises(harness.EvidenceError, match=r"ran on /job:core.*call it within a tf.function, or verify"):
            verify(towers, model, ROWS)
        verify(towers, model, ROWS, modes=["graph"])

    @pytest.mark.devices(kind="logical-cpu")
    def test_of_another_kind():
        raise AssertionError("skipped before it runs")
"""


def _harness(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(harness.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "harness.cli.app", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_a_function_is_traced_on_the_servers_that_ran_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM, encoding="utf-8")
    done = _harness(tmp_path, "trace", "program.py:spread", "--devices", "cores:2")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"core/0/CPU:0\W.*MatMul", done.stdout)
    assert re.search(r"core/1/CPU:0\W.*Relu", done.stdout)


def test_the_devices_are_shown_with_their_cores(tmp_path: Path) -> None:
    done = _harness(tmp_path, "devices", "--devices", "cores:2")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"/job:core/.* core on /physical_device:CPU:core=\d", done.stdout)) == 2
    assert re.search(r"for speedups +measurements use (gpu|cores:\d+): ", done.stdout)


def test_devices_exist_and_backward_ops_are_judged_in_a_validation(tmp_path: Path) -> None:
    checks = ("devices-distinct", "vector-add", "matpow", "gradient-colocation")
    only = [part for check in checks for part in ("--only", check)]
    done = _harness(tmp_path, "validate", "--devices", "cores:2", *only)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"PASS on cores:2: {len(checks)} checks" in done.stdout


def test_a_session_of_tests_runs_on_cores(
    pytester: pytest.Pytester, inner_pytest: Callable[..., pytest.RunResult]
) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest("-rs", "--harness-devices=cores:2", real=True)
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["2 core devices from cores:2 (--harness-devices): 2 servers on loopback*"])
