"""Fits a second-degree polynomial with Adam, sharded and not: both take the same steps to the right weights.

The data are ``y = 5 x^2 + 3``, so the weights of ``x^2``, ``x`` and 1 are 5, 0 and 3. The example's learning rate of
0.1 leaves the constant at 3.3 after its 1000 steps; 0.5 reaches 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.checking.check import Check, CheckContext
from harness.checking.tally import Tally
from harness.checks.trajectory import Trajectory, compare, train
from harness.devices.device import Devices
from harness.lazy import tf
from harness.plural import plural
from harness.records import CheckResult

STEPS = 1000
LEARNING_RATE = 0.5
#: Samples in a step: no multiple of a usual number of devices, so that shards are uneven.
SAMPLES = 101
#: The weights that the data were made with, and how near the fit has to come.
TRUE_WEIGHTS = (5.0, 0.0, 3.0)
NEAR = 0.01


def run(context: CheckContext) -> CheckResult:
    """Fit three times: sharded, on one device, and on one device in float64; and verify one step."""
    from harness.judgement.verify import verify
    from harness.parallel.data import make_parallel

    devices = context.devices
    tally = Tally()
    model, weights = _model("float32", context.seed)
    step = next(_samples(context.seed, "float32"))
    tally.add(verify(make_parallel(model, devices), model, step, devices=devices, variables=[weights]), "one step")
    tally.require_devices(devices)

    sharded = _fit(devices, "float32", context.seed)
    single = _fit(None, "float32", context.seed)
    compare(sharded, single, _fit(None, "float64", context.seed), tally)
    for name, trajectory in (("sharded", sharded), ("single-device", single)):
        _judge_weights(name, trajectory, tally)
    reached = ", ".join(f"{weight:.3f}" for weight in sharded.weights[-1])
    return tally.result(
        f"{STEPS:,} steps on {plural(len(devices), 'device')} match the single-device run; weights: [{reached}]",
        "look at the first step that differs: likely causes are a plain mean of the shards' means, and dropped rows",
    )


def _model(dtype: str, seed: int) -> tuple[Any, Any]:
    """The loss per sample of ``x`` and ``y`` (``[samples]``), and its weights ``[3, 1]``."""
    start = np.random.default_rng(seed).uniform(-0.8, 0.8, (len(TRUE_WEIGHTS), 1)).astype(np.float32)
    weights = tf.Variable(start.astype(dtype))

    def model(x: Any, y: Any) -> Any:
        features = tf.stack([tf.square(x), x, tf.ones_like(x)], 1)
        return tf.square(tf.squeeze(tf.matmul(features, weights), 1) - y)

    return model, weights


def _samples(seed: int, dtype: str) -> Any:
    """The data of each step: made in float32, so that all runs see the same numbers."""
    random = np.random.default_rng(seed + 1)
    for _ in range(STEPS):
        x = random.uniform(-10, 10, SAMPLES).astype(np.float32)
        y = 5 * x**2 + 3
        yield {"x": x.astype(dtype), "y": y.astype(dtype)}


def _fit(devices: Devices | None, dtype: str, seed: int) -> Trajectory:
    """Train for ``STEPS`` steps, sharded over ``devices`` or (``None``) on the default device."""
    model, weights = _model(dtype, seed)
    optimizer = tf.keras.optimizers.Adam(LEARNING_RATE)
    return train(model, [weights], optimizer, _samples(seed, dtype), devices)


def _judge_weights(name: str, trajectory: Trajectory, tally: Tally) -> None:
    reached = trajectory.weights[-1]
    distance = float(np.abs(reached - TRUE_WEIGHTS).max())
    tally.measured[f"distance_from_true_weights_{name.replace('-', '_')}"] = distance
    if not distance <= NEAR:
        expected, found = f"{list(TRUE_WEIGHTS)} within {NEAR:g}", [round(float(weight), 4) for weight in reached]
        message = f"the {name} fit did not reach the true weights"
        tally.fail("value", f"weights, {name} run", expected, str(found), message)


CHECK = Check(
    id="polynomial-fit",
    title="a polynomial fit with Adam",
    proves=f"{STEPS:,} steps of Adam match the single-device run in losses, gradients and weights, and the weights "
    "come near [5, 0, 3]",
    minimum_devices=2,
    typical_s=2.5,
    run=run,
)
