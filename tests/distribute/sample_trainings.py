"""Trainings with a fault each, beside the same done right. The process of a strategy loads them from here."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np

from harness.distribute import Training
from harness.distribute.training import Data
from harness.faults.trainings import (
    FEATURES,
    OUTPUTS,
    added_mean,
    added_sum,
    applied_once,
    applied_per_shard,
    clean,
    clipped,
    hardly_clipped,
    loss_per_row,
    misses_an_update,
    model_of,
    normalised,
    normalised_together,
    reads_a_batch_each,
    reads_its_part,
    reads_the_same,
    scalar_loss,
    sgd,
)

#: Those of the catalogue of planted faults, and the ones below.
__all__ = [
    "added_mean",
    "added_sum",
    "applied_once",
    "applied_per_shard",
    "clean",
    "clipped",
    "hardly_clipped",
    "loss_per_row",
    "misses_an_update",
    "normalised",
    "normalised_together",
    "reads_a_batch_each",
    "reads_its_part",
    "reads_the_same",
    "scalar_loss",
]
ROWS = 22


def data(seed: int = 0) -> tuple[Any, Any]:
    """22 rows: batches of 8, 8 and 6."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return x, random.normal(size=(ROWS, OUTPUTS)).astype(np.float32)


def images() -> Data:
    """A batch of 64 images of 24 by 24."""
    random = np.random.default_rng(0)
    return Data(random.standard_normal((64, 24, 24, 3), "float32"), random.integers(0, 10, 64), 64)


def sums_over_images() -> Training:
    """A gradient that adds up 25,600 numbers: replicas add them up in another order, and round otherwise."""
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv2D(32, 3, activation="relu") for _ in range(2)]
    model = keras.Sequential(
        [keras.Input((24, 24, 3)), *layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]
    )
    return Training(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.optimizers.SGD(0.1))


def named_metrics() -> Training:
    """Metrics by the names that ``compile`` takes."""
    return Training(model_of(), "mse", sgd(), ["accuracy", "mae"])


def named_metrics_normalised() -> Training:
    """The same beside a normalisation by the statistics of each shard."""
    return replace(normalised(), metrics=["accuracy", "mae"])


def unknown_metric() -> Training:
    return Training(model_of(), "mse", sgd(), ["acuracy"])


def adam() -> Training:
    import tensorflow as tf

    return Training(model_of(), "mse", tf.keras.optimizers.Adam(0.01))


def dropped_out() -> Training:
    """Random numbers that each replica draws for itself: nothing can be compared."""
    import tensorflow as tf

    return Training(model_of(tf.keras.layers.Dropout(0.5, name="drop")), "mse", tf.keras.optimizers.SGD(0.1))


def breaks() -> Training:
    raise KeyError("gone")


def no_training() -> Any:
    return 3


def other_learning_rate() -> Training:
    """The second worker learns at another rate."""
    import tensorflow as tf

    index = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1 + 0.05 * index, 1000, 1.0)
    return Training(model_of(), "mse", tf.keras.optimizers.SGD(rate))


def same_learning_rate() -> Training:
    import tensorflow as tf

    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1000, 1.0)
    return Training(model_of(), "mse", tf.keras.optimizers.SGD(rate))


def hangs() -> Training:
    """C08: the second worker does something else, and the first waits for it."""
    if json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index"):
        time.sleep(3600)
    return clean()


def dies() -> Training:
    """The second worker is killed."""
    if json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index"):
        os.kill(os.getpid(), signal.SIGKILL)
    return clean()


def convex() -> Training:
    """Least squares: whatever the order of the updates, there is one minimum."""
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Input((FEATURES,)), tf.keras.layers.Dense(OUTPUTS)])
    return Training(model, "mse", tf.keras.optimizers.SGD(0.1))


def _counting(add: Any) -> Training:
    import tensorflow as tf

    made = convex()
    model, optimizer = made.model, made.optimizer
    counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="seen")

    def step(x: Any, y: Any, rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - model(x, training=True)))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        add(counter)
        return loss, None

    return Training(model, "mse", optimizer, step=step, counters=[counter])


def loses_updates() -> Training:
    """A counter that is read, and written back a while later: workers overwrite one another's."""
    import tensorflow as tf

    def add(counter: Any) -> None:
        seen = counter.read_value()
        with tf.control_dependencies([seen]):
            work = tf.random.uniform([300, 300])
            for _ in range(8):
                work = tf.matmul(work, work) / 100.0
        with tf.control_dependencies([work]):
            counter.assign(seen + 1)

    return _counting(add)


def loses_none() -> Training:
    return _counting(lambda counter: counter.assign_add(1))


def eight_units() -> Training:
    """Weights whose columns can be divided by 2 and by 4, and some that cannot."""
    import tensorflow as tf

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(8, activation="tanh"), layers.Dense(OUTPUTS)])
    return Training(model, "mse", tf.keras.optimizers.Adam(0.01))


def with_keras_distribution() -> Training:
    """P15: Keras accepts this with TensorFlow, and does nothing."""
    import tensorflow as tf

    mesh = tf.keras.distribution.DeviceMesh((2,), ["batch"], ["cpu:0", "cpu:1"])
    tf.keras.distribution.set_distribution(
        tf.keras.distribution.DataParallel(device_mesh=mesh, auto_shard_dataset=False)
    )
    return clean()


def second_strategy() -> Training:
    """C07: another strategy over the same devices has exchanged something in this process."""
    import tensorflow as tf

    if not tf.distribute.has_strategy():
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        other = tf.distribute.MirroredStrategy([f"{kind}:0", f"{kind}:1"])

        @tf.function  # type: ignore[untyped-decorator]
        def exchange() -> Any:
            return other.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([3])))

        exchange()
    return clean()


def _with_a_count(steps: int | None) -> Training:
    """A metric whose result is its variable, and gradients that are accumulated over ``steps``."""
    import tensorflow as tf

    class Count(tf.keras.metrics.Metric):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="count")
            self.count = self.add_weight(shape=(), initializer="zeros", name="count")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            self.count.assign_add(tf.reduce_sum(tf.cast(tf.abs(y_true - y_pred) < 1.0, tf.float32)))

        def result(self) -> Any:
            return self.count

    optimizer = tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=steps)
    return replace(clean(), optimizer=optimizer, metrics=(Count(),))


def returns_its_variable() -> Training:
    return _with_a_count(None)


def accumulates() -> Training:
    return _with_a_count(2)
