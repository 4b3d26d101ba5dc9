"""Trainings with a fault each, beside the same done right. The process of a strategy loads them from here."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.distribute import Training

ROWS, FEATURES, OUTPUTS = 22, 5, 3


def data(seed: int = 0) -> tuple[Any, Any]:
    """22 rows: batches of 8, 8 and 6."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return x, random.normal(size=(ROWS, OUTPUTS)).astype(np.float32)


def _model(*between: Any, **dense: Any) -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Dense(7, activation="tanh", name="first", **dense),
            *between,
            layers.Dense(OUTPUTS, name="last"),
        ]
    )


def _sgd() -> Any:
    import tensorflow as tf

    return tf.keras.optimizers.SGD(0.1)


def clean() -> Training:
    import tensorflow as tf

    metrics = [tf.keras.metrics.MeanAbsoluteError(name="mae")]
    return Training(_model(), tf.keras.losses.MeanSquaredError(), tf.keras.optimizers.SGD(0.1, momentum=0.9), metrics)


def named_metrics() -> Training:
    """Metrics by the names that ``compile`` takes."""
    return Training(_model(), "mse", _sgd(), ["accuracy", "mae"])


def unknown_metric() -> Training:
    return Training(_model(), "mse", _sgd(), ["acuracy"])


def adam() -> Training:
    import tensorflow as tf

    return Training(_model(), "mse", tf.keras.optimizers.Adam(0.01))


def scalar_loss() -> Training:
    """V09: a loss that is one number whatever the rows."""
    import tensorflow as tf

    def squares(y: Any, predicted: Any) -> Any:
        return tf.reduce_mean(tf.square(y - predicted))

    return Training(_model(), squares, tf.keras.optimizers.SGD(0.1))


def loss_per_row() -> Training:
    import tensorflow as tf

    def squares(y: Any, predicted: Any) -> Any:
        return tf.reduce_mean(tf.square(y - predicted), axis=-1)

    return Training(_model(), squares, tf.keras.optimizers.SGD(0.1))


def _adding(reduce: str) -> Any:
    import tensorflow as tf

    class Activity(tf.keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            self.add_loss(0.01 * getattr(tf, reduce)(tf.square(x)))
            return x

    return Activity(name="activity")


def added_sum() -> Training:
    """V10: a layer adds a sum over the rows to the loss."""
    import tensorflow as tf

    return Training(_model(_adding("reduce_sum")), "mse", tf.keras.optimizers.SGD(0.1))


def added_mean() -> Training:
    """The same with a mean, and with weights that are regularised."""
    import tensorflow as tf

    model = _model(_adding("reduce_mean"), kernel_regularizer=tf.keras.regularizers.L2(0.01))
    return Training(model, "mse", tf.keras.optimizers.SGD(0.1))


def clipped() -> Training:
    """V11."""
    import tensorflow as tf

    return Training(_model(), "mse", tf.keras.optimizers.SGD(0.1, clipnorm=0.1))


def hardly_clipped() -> Training:
    """The same with a limit that no gradient reaches."""
    import tensorflow as tf

    return Training(_model(), "mse", tf.keras.optimizers.SGD(0.1, clipnorm=1e6))


def normalised() -> Training:
    """V13."""
    import tensorflow as tf

    layer = tf.keras.layers.BatchNormalization(name="norm")
    return Training(_model(layer), "mse", tf.keras.optimizers.SGD(0.1))


def normalised_together() -> Training:
    import tensorflow as tf

    layer = tf.keras.layers.BatchNormalization(name="norm", synchronized=True)
    return Training(_model(layer), "mse", tf.keras.optimizers.SGD(0.1))


def dropped_out() -> Training:
    """Random numbers that each replica draws for itself: nothing can be compared."""
    import tensorflow as tf

    return Training(_model(tf.keras.layers.Dropout(0.5, name="drop")), "mse", tf.keras.optimizers.SGD(0.1))


def applied_per_shard() -> Training:
    """V15: a replica applies its gradients once for each of as many shards as there are replicas."""
    import tensorflow as tf

    model, optimizer = _model(), tf.keras.optimizers.SGD(0.1)
    shards = tf.distribute.get_strategy().num_replicas_in_sync

    def step(x: Any, y: Any, rows: Any) -> Any:
        share = tf.constant(0.0)
        for shard in range(shards):
            part = slice(shard, None, shards)
            with tf.GradientTape() as tape:
                squares = tf.reduce_mean(tf.square(y[part] - model(x[part], training=True)), axis=-1)
                loss = tf.reduce_sum(squares) / tf.cast(rows, tf.float32)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            share += loss
        return share, None

    return Training(model, "mse", optimizer, step=step)


def applied_once() -> Training:
    import tensorflow as tf

    model, optimizer = _model(), tf.keras.optimizers.SGD(0.1)

    def step(x: Any, y: Any, rows: Any) -> Any:
        with tf.GradientTape() as tape:
            squares = tf.reduce_mean(tf.square(y - model(x, training=True)), axis=-1)
            loss = tf.reduce_sum(squares) / tf.cast(rows, tf.float32)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss, gradients

    return Training(model, "mse", optimizer, step=step)


def misses_an_update() -> Training:
    """The last device leaves out its third update."""
    import tensorflow as tf

    class Forgetful(tf.keras.optimizers.SGD):  # type: ignore[misc]
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            if variable.device.endswith(":1"):
                gradient *= tf.cast(tf.not_equal(tf.convert_to_tensor(self.iterations), 2), gradient.dtype)
            super().update_step(gradient, variable, learning_rate)

    return Training(_model(), "mse", Forgetful(0.1))


def own_reader(context: Any, arrays: Sequence[Any], rows: int) -> Any:
    """Every replica reads its part of each batch."""
    import tensorflow as tf

    count = context.num_replicas_in_sync
    own = rows // count
    whole = [array[: len(array) // rows * rows] for array in arrays]
    chosen = np.arange(len(whole[0])) % rows // own
    mine = chosen == context.input_pipeline_id
    if context.num_input_pipelines == count:
        return tf.data.Dataset.from_tensor_slices(tuple(array[mine] for array in whole)).batch(own).repeat()
    return tf.data.Dataset.from_tensor_slices(tuple(whole)).batch(own).repeat()


def same_reader(context: Any, arrays: Sequence[Any], rows: int) -> Any:
    """Every replica reads the same rows."""
    import tensorflow as tf

    own = rows // context.num_replicas_in_sync
    whole = [array[: len(array) // rows * rows] for array in arrays]
    chosen = np.arange(len(whole[0])) % rows < own
    part = tf.data.Dataset.from_tensor_slices(tuple(array[chosen] for array in whole)).batch(own)
    # In one process the replicas take turns at one pipeline; every worker has one of its own.
    turns = context.num_replicas_in_sync // context.num_input_pipelines
    if turns == 1:
        return part.repeat()
    return part.flat_map(lambda x, y: tf.data.Dataset.from_tensors((x, y)).repeat(turns)).repeat()


def batch_each(context: Any, arrays: Sequence[Any], rows: int) -> Any:
    """C06: every replica reads a batch, so that the whole batch grows with the number of devices."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(tuple(arrays)).batch(rows, drop_remainder=True).repeat()


def reads_a_batch_each() -> Training:
    import tensorflow as tf

    return Training(_model(), "mse", tf.keras.optimizers.SGD(0.1), input=batch_each)


def reads_its_part() -> Training:
    import tensorflow as tf

    return Training(_model(), "mse", tf.keras.optimizers.SGD(0.1), input=own_reader)


def reads_the_same() -> Training:
    import tensorflow as tf

    return Training(_model(), "mse", tf.keras.optimizers.SGD(0.1), input=same_reader)


def breaks() -> Training:
    raise KeyError("gone")


def no_training() -> Any:
    return 3


def other_learning_rate() -> Training:
    """The second worker learns at another rate."""
    import tensorflow as tf

    index = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1 + 0.05 * index, 1000, 1.0)
    return Training(_model(), "mse", tf.keras.optimizers.SGD(rate))


def same_learning_rate() -> Training:
    import tensorflow as tf

    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1000, 1.0)
    return Training(_model(), "mse", tf.keras.optimizers.SGD(rate))


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
