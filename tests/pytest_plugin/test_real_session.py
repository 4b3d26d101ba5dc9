"""The plug-in with the real TensorFlow and the library's own ``verify`` and ``trace``, as a user has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Session = Callable[..., pytest.RunResult]

_TESTS = """
    import harness
    import numpy as np
    import pytest
    import tensorflow as tf

    ROWS = {"x": np.arange(21.0, dtype=np.float32).reshape(7, 3)}

    def double_plus_one(x):
        return 2.0 * x + 1.0

    def test_tensorflow_by_itself_has_the_devices_too():
        assert len(tf.config.list_logical_devices("CPU")) == 3

    def test_a_right_program_passes(devices, verify):
        parallel = harness.make_parallel(double_plus_one, devices)
        verify(parallel, double_plus_one, ROWS, gradients=True)

    def test_a_program_that_drops_the_remainder_fails(devices, verify):
        def drops(x):
            each = x.shape[0] // len(devices)
            shards = []
            for index, device in enumerate(devices):
                with tf.device(device.name):
                    shards.append(double_plus_one(x[index * each : (index + 1) * each]))
            return tf.concat(shards, axis=0)

        with pytest.raises(harness.VerificationError, match="Row 6 of 7 was dropped"):
            verify(drops, double_plus_one, ROWS)
        verification = verify(drops, double_plus_one, ROWS, check=False)
        assert not verification.passed
        assert {finding.kind for finding in verification.findings} & {"shape", "value"}

    def test_what_ran_where(devices, trace):
        def on_the_last(x):
            with tf.device(devices[-1].name):
                return tf.linalg.matmul(x, x, transpose_a=True)

        devices_of_matmul = {str(op.device) for op in trace(on_the_last, ROWS["x"]).ops if op.type == "MatMul"}
        assert devices_of_matmul == {devices[-1].name}

    @pytest.mark.devices(min=4)
    def test_needs_more():
        raise AssertionError("skipped before it runs")
"""


def test_a_users_tests_run_on_three_logical_cpus_under_xdist(pytester: pytest.Pytester, inner_pytest: Session) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest("-n", "1", "-rs", "--harness-devices=cpu:3", real=True)
    result.assert_outcomes(passed=4, skipped=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "harness: devices cpu:3 (--harness-devices)",
            "3 logical-cpu devices from cpu:3 (--harness-devices): 3 logical CPUs, as requested*",
            "3 verifications: * on 3 devices",
            "2 of them did not pass:",
            "*needs 4 devices; configured: 3 logical-cpu devices from cpu:3 (--harness-devices)",
        ]
    )
