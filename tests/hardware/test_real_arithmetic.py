"""The operations of the arithmetic check as TensorFlow's own kernels compute them on logical CPUs."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from numpy_machine import CPU_SOFTWARE, NumpyMachine, context, cpus

from harness.checking.check import Level
from harness.hardware.machine import Operation


class TensorFlowOnCpus(NumpyMachine):
    """TensorFlow's kernels on the logical CPUs of this process, timed by a real clock."""

    def clock_s(self) -> float:
        return time.perf_counter()

    def put(self, array: Any, card: str) -> Any:
        import tensorflow as tf

        with tf.device(card):
            return card, tf.constant(array)

    def fetch(self, buffer: Any) -> Any:
        return buffer[1].numpy()

    def run(self, operation: Operation, card: str, buffers: Sequence[Any], repeats: int = 1) -> Any:
        import tensorflow as tf

        key = (operation, card)
        if key not in self.known:
            self.known[key] = (operation, tf.function(operation.tensorflow, autograph=False))
        with tf.device(card):
            for _ in range(repeats):
                result = self.known[key][1](*(buffer[1] for buffer in buffers))
        result.numpy()
        return card, result


def run_on_two_logical_cpus() -> None:
    """Both levels, the operations of ``deep``, and one without a kernel; print what came out as one line of JSON."""
    import numpy as np
    import tensorflow as tf

    from harness.devices.runtime import configure
    from harness.hardware import operations
    from harness.hardware.arithmetic.check import CHECK
    from harness.hardware.arithmetic.judge import deviation
    from harness.hardware.arithmetic.trials import values_of
    from harness.hardware.operations import NoKernel, raising_no_kernel

    configure("cpu:2")
    machine = TensorFlowOnCpus(cpus(2), facts=CPU_SOFTWARE)
    told: dict[str, Any] = {}
    for level in (Level.QUICK, Level.STANDARD):
        started = time.perf_counter()
        outcome = CHECK.run(context(machine, level))
        told[str(level)] = {
            "verdict": str(outcome.verdict),
            "found": [finding.message for finding in outcome.findings if finding.kind != "rate"],
            "scope": outcome.scope,
            "rates": {figure.name: figure.value for figure in outcome.figures if figure.device == "CPU:0"},
            "elapsed_s": time.perf_counter() - started,
        }
    shares: dict[str, float] = {}
    for trial in values_of(Level.STANDARD):
        for seed in range(5):
            operands = trial.operands(np.random.default_rng([seed, 99]))
            reference = trial.reference(operands)
            buffers = [machine.put(each, "CPU:0") for each in operands]
            result = operations.wide(machine.fetch(machine.run(trial.operation, "CPU:0", buffers)))
            share = deviation(result, reference, trial.allowed(operands, reference, False)).share
            shares[trial.operation.name] = max(share, shares.get(trial.operation.name, 0.0))
    told["shares"] = shares
    bytes_of = [machine.put(np.ones((4, 4), np.uint8), "CPU:0")] * 2
    try:
        with raising_no_kernel():
            machine.run(operations.matmul(4, "uint8"), "CPU:0", bytes_of)
    except NoKernel as error:
        told["missing"] = str(error)
    try:
        with raising_no_kernel():
            machine.run(
                operations.matmul(4, "float32"), "CPU:0", [machine.put(np.ones((4, 3), np.float32), "CPU:0")] * 2
            )
    except tf.errors.InvalidArgumentError:
        told["other"] = "raised as it is"
    except ValueError:
        told["other"] = "raised as it is"
    print(json.dumps(told))


def test_tensorflows_kernels_are_within_their_bounds_and_their_rates_are_measured(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    told = json.loads(fresh_process(run_on_two_logical_cpus).stdout.splitlines()[-1])
    for level in ("quick", "standard"):
        seen = told[level]
        assert seen["found"] == []
        assert seen["verdict"] in ("PASS", "WARN"), "a rate is a warning at most on CPUs"
        assert not any(said.startswith("no kernel") for said in seen["scope"]), seen["scope"]
        assert "CPU:0, CPU:1: no TF32, float32 products have full precision" in seen["scope"]
    assert told["quick"]["rates"] == {}
    assert min(told["standard"]["rates"].values()) > 0
    assert {"memory bandwidth", "matmul float32"} <= set(told["standard"]["rates"])
    assert {"fft complex64", "sort float32", "convolution float32", "matmul bfloat16"} <= set(told["standard"]["rates"])
    shares = told["shares"]
    assert len(shares) >= 30
    for name, share in shares.items():
        exact = name.startswith("sort") or name.endswith(("int8", "int32", "int64"))
        assert share == 0 if exact else share <= 1, name
    assert shares["matmul float32"] > 0.001, "the bound is no more than a thousand times what is"
    assert "MatMul" in told["missing"]
    assert told["other"] == "raised as it is"
