"""Checks that backward ops run on the device of their forward op, with a control run in which they do not."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.checking.check import Check, CheckContext
from harness.checking.tally import Tally
from harness.lazy import tf
from harness.records import CheckResult

#: Features, hidden units and outputs of the tower: no two alike, so that no transposed weight fits by chance.
FEATURES, HIDDEN, OUTPUTS = 6, 7, 3


def run(context: CheckContext) -> CheckResult:
    """Verify a dense tower under ``make_parallel``, and once more without colocation, which must be detected."""
    from harness.judgement.verify import verify
    from harness.parallel.data import make_parallel

    devices = context.devices
    tower, variables = _tower(context.seed)
    random = np.random.default_rng(context.seed + 1)
    inputs = {"x": random.standard_normal((5 * len(devices) + 1, FEATURES)).astype(np.float32)}
    tally = Tally()
    tally.add(verify(make_parallel(tower, devices), tower, inputs, devices=devices, variables=variables))
    tally.require_devices(devices)
    if not tally.exercised.gradient_ops:
        tally.unproven("no backward op was proven to run on any device")
    control = verify(
        make_parallel(tower, devices, colocate_gradients=False), tower, inputs, devices=devices, variables=variables
    )
    seen = [finding for finding in control.findings if finding.kind == "gradient-placement"]
    tally.measured["misplaced_gradient_ops_seen_in_control"] = len(seen)
    if not seen:
        tally.unproven(
            "the control run has backward ops on the wrong device on purpose, but harness.verify reported none of "
            f"them ({control.verdict}: {control.reason})"
        )
    return tally.result(
        f"all {tally.exercised.gradient_ops} backward ops ran on the device of their forward op; "
        "harness.verify detected misplaced ones in a control run without colocation",
        "read the findings: each names a backward op, where it ran and where its forward op ran",
    )


def _tower(seed: int) -> tuple[Any, list[Any]]:
    """A dense tower of two layers, ``x`` ``[rows, FEATURES]`` to ``[rows, OUTPUTS]``, and its variables."""
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        return tf.Variable((random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    first, bias, second = weights(FEATURES, HIDDEN), weights(HIDDEN), weights(HIDDEN, OUTPUTS)

    def tower(x: Any) -> Any:
        return tf.matmul(tf.tanh(tf.matmul(x, first) + bias), second)

    return tower, [first, bias, second]


CHECK = Check(
    id="gradient-colocation",
    title="backward ops run on the devices of their forward ops",
    proves="every backward op of a dense tower runs on the device of its forward op, and misplaced ones are detected",
    minimum_devices=2,
    typical_s=0.8,
    run=run,
)
