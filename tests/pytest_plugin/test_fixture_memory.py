"""The fixture ``memory`` and its markers, in a session of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Session = Callable[..., pytest.RunResult]

_TESTS = """
    import pytest

    KEPT = []
    CALLS = []

    @pytest.fixture
    def step(devices):
        import tensorflow as tf

        with tf.device(devices[0].name):
            x = tf.ones([1024, 1024])

        @tf.function
        def fn():
            with tf.device(devices[0].name):
                return tf.reduce_sum(tf.matmul(x, x) + 1.0)

        fn()
        return fn

    def test_peak(memory, step, devices):
        step()
        peak = memory.peak(devices[0])
        assert "8 MiB" <= peak < "64 MiB", peak.source
        assert peak.source
        memory.reset()
        assert memory.peak("CPU:0") <= peak

    def test_too_much(memory, step):
        step()
        assert memory.peak("CPU:0") < "4 MiB"

    def test_no_such_device(memory):
        memory.peak("GPU:7")

    def test_steady(memory, step):
        losses = []
        for _ in memory.steady(steps=8):
            losses.append(step())

    @pytest.mark.device_memory("64 MiB")
    @pytest.mark.no_device_leaks(steps=8)
    def test_marked(step):
        CALLS.append(1)
        step()

    def test_calls():
        assert len(CALLS) == 8

    @pytest.mark.device_memory("4 MiB")
    def test_above_the_limit(step):
        step()

    @pytest.mark.no_device_leaks(8)
    def test_leaky(step):
        KEPT.append(step())

    @pytest.mark.device_memory("much")
    def test_bad_size():
        raise AssertionError("not called")

    @pytest.mark.no_device_leaks(step=8)
    def test_bad_argument():
        raise AssertionError("not called")

    @pytest.mark.device_memory("1 B")
    def test_fails_by_itself(step):
        raise ValueError("its own error")
"""


def test_the_fixture_measures_and_the_markers_limit_and_repeat(
    pytester: pytest.Pytester, inner_pytest: Session
) -> None:
    pytester.makepyfile(_TESTS)
    result = inner_pytest("--harness-devices=cpu:2", "--strict-markers", real=True)
    result.assert_outcomes(passed=3, failed=8)
    result.stdout.fnmatch_lines_random(
        [
            "E *assert * MiB < '4 MiB'",
            "E *device 'GPU:7' names 0 devices; accepted: one of CPU:0, CPU:1",
            "E *memory grows from step to step, for 24 steps:",
            "E *CPU:0 holds 4 B more after each step: the list 'losses' in test_steady (*.py:*: losses.append(step()))",
            "CPU:0: peak * MiB, limit 4 MiB (tensors that ops of this process allocated*",
            "CPU:0 holds 4 B more after each step: the list 'KEPT' of the module * (*.py:*: KEPT.append(step()))",
            "size 'much' is not valid; accepted: a number with a unit*",
            "*@pytest.mark.no_device_leaks: got an unexpected * 'step'; accepted: no_device_leaks(steps=20, allowed=0)",
            "E *ValueError: its own error",
        ]
    )
    result.stdout.no_fnmatch_line("*not called*Error*")
