"""``MirroredStrategy``: a small Keras model trained on all devices matches its single-device training."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.checking.check import Check, CheckContext, Level
from harness.checking.tally import Tally
from harness.distribute.training import Training
from harness.lazy import tf
from harness.records import CheckResult

STEPS = 3
#: Rows of a batch on each device; the last batch has half of them, so that it is uneven and can be divided still.
ROWS_EACH = 4
#: How many random set-ups are judged besides.
EXAMPLES = {Level.QUICK: 0, Level.STANDARD: 1, Level.DEEP: 10}
FEATURES, UNITS, OUTPUTS = 5, 7, 3
LEARNING_RATE, MOMENTUM = 0.1, 0.9


def run(context: CheckContext) -> CheckResult:
    """Judge the training with Keras's ``fit`` and with a custom loop."""
    from harness.distribute.one_process import examine
    from harness.distribute.single_device import Experiment
    from harness.distribute.training import Data
    from harness.strategies import sample, training_setups

    devices = context.devices
    random = np.random.default_rng(context.seed)
    batch = ROWS_EACH * len(devices)
    rows = 2 * batch + batch // 2
    x = random.standard_normal((rows, FEATURES)).astype(np.float32)
    y = random.standard_normal((rows, OUTPUTS)).astype(np.float32)
    found = examine("mirrored", devices, Experiment(build, "the check's model", Data(x, y, batch), STEPS))
    tally = Tally()
    tally.add(found)
    examples = EXAMPLES[context.level]
    for setup in sample(training_setups(replicas=len(devices)), examples, seed=context.seed) if examples else ():
        asked = Experiment(setup.build, repr(setup), Data(*setup.data(), setup.batch_size), setup.steps)
        tally.add(examine("mirrored", devices, asked), repr(setup))
    tally.measured.update(found.measured)
    tally.require_devices(devices)
    sizes = [count.size_bytes for count in found.collectives]
    if sizes and None not in sizes:
        tally.measured["collective_bytes_of_a_step_per_device"] = float(max(filter(None, sizes), default=0))
    return tally.result(
        f"{STEPS} steps of Keras's fit and of a custom loop, with a half-size last batch, match the single-device "
        "run; replicas hold identical bits and run the same collectives",
        "read the findings: each names the step and, where the cause is known, the layer, loss or optimizer option",
    )


def build() -> Training:
    """A model of two dense layers."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((FEATURES,)), layers.Dense(UNITS, activation="tanh"), layers.Dense(OUTPUTS)]
    )
    metrics: list[Any] = [tf.keras.metrics.MeanAbsoluteError(name="mae")]
    return Training(
        model,
        tf.keras.losses.MeanSquaredError(),
        tf.keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM),
        metrics,
    )


CHECK = Check(
    id="mirrored-strategy",
    title="a Keras training under MirroredStrategy",
    proves=f"{STEPS} steps of a Keras model under MirroredStrategy, in Keras's fit and in a custom loop, match the "
    "single-device run in losses, metrics, gradients, weights and slots; replicas stay in sync, and each device takes "
    "part in the collectives",
    minimum_devices=2,
    typical_s=16,
    run=run,
    level=Level.STANDARD,
    one_process=True,
)
