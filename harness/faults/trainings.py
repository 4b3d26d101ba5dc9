"""Trainings under ``tf.distribute`` with a fault each, beside the same done right (T01 to T11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.devices.device import Devices
from harness.distribute.one_process import examine
from harness.distribute.single_device import LOOPS as SESSIONS, Experiment
from harness.distribute.training import Data, Training
from harness.faults.fault import Fault, Planted, kinds
from harness.faults.samples import sample
from harness.judgement.verification import Verification
from harness.lazy import tf

FEATURES, OUTPUTS = 5, 3
LOOPS = tuple(SESSIONS)


@dataclass(frozen=True)
class TrainingCase(Planted):
    """A training under ``MirroredStrategy``; ``modes`` are its loops, which TensorFlow runs as graphs."""

    parallel: Callable[[], Training]
    twin: Callable[[], Training]
    kinds: frozenset[str]
    modes: tuple[str, ...] = LOOPS
    also: frozenset[str] = frozenset({"gradient"})

    def judge(self, devices: Devices, *, faulty: bool) -> Verification:
        """Train for three steps on equal shards, and judge."""
        build = self.parallel if faulty else self.twin
        batch = 2 * len(devices)
        data = Data(sample(3 * batch, FEATURES), sample(3 * batch, OUTPUTS, seed=1), batch)
        found = examine("mirrored", devices, Experiment(build, build.__name__, data, 3, self.modes))
        # What no loop shows alone, all show.
        loops = {SESSIONS[name].loop: name for name in self.modes}
        findings = tuple(replace(each, mode=loops.get(each.mode, ", ".join(self.modes))) for each in found.findings)
        return replace(found, findings=findings)


def model_of(*between: Any, **dense: Any) -> Any:
    """Return a model of two dense layers, with other layers between them."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Dense(7, activation="tanh", name="first", **dense),
            *between,
            layers.Dense(OUTPUTS, name="last"),
        ]
    )


def sgd() -> Any:
    """Return an optimizer."""
    return tf.keras.optimizers.SGD(0.1)


def clean() -> Training:
    """Nothing is wrong."""
    metrics = [tf.keras.metrics.MeanAbsoluteError(name="mae")]
    return Training(model_of(), tf.keras.losses.MeanSquaredError(), tf.keras.optimizers.SGD(0.1, momentum=0.9), metrics)


def scalar_loss() -> Training:
    """V09: a loss that is one number whatever the rows."""

    def squares(y: Any, predicted: Any) -> Any:
        return tf.reduce_mean(tf.square(y - predicted))

    return Training(model_of(), squares, sgd())


def loss_per_row() -> Training:
    """The same with a number for each row."""

    def squares(y: Any, predicted: Any) -> Any:
        return tf.reduce_mean(tf.square(y - predicted), axis=-1)

    return Training(model_of(), squares, sgd())


def _adding(reduce: str) -> Any:
    class Activity(tf.keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            self.add_loss(0.01 * getattr(tf, reduce)(tf.square(x)))
            return x

    return Activity(name="activity")


def added_sum() -> Training:
    """V10: a layer adds a sum over the rows to the loss."""
    return Training(model_of(_adding("reduce_sum")), "mse", sgd())


def added_mean() -> Training:
    """The same with a mean, and with weights that are regularised."""
    model = model_of(_adding("reduce_mean"), kernel_regularizer=tf.keras.regularizers.L2(0.01))
    return Training(model, "mse", sgd())


def clipped() -> Training:
    """V11."""
    return Training(model_of(), "mse", tf.keras.optimizers.SGD(0.1, clipnorm=0.1))


def hardly_clipped() -> Training:
    """The same with a limit that no gradient reaches."""
    return Training(model_of(), "mse", tf.keras.optimizers.SGD(0.1, clipnorm=1e6))


def normalised() -> Training:
    """V13."""
    layer = tf.keras.layers.BatchNormalization(name="norm")
    return Training(model_of(layer), "mse", sgd())


def normalised_together() -> Training:
    """The same with the statistics of the whole batch."""
    layer = tf.keras.layers.BatchNormalization(name="norm", synchronized=True)
    return Training(model_of(layer), "mse", sgd())


def applied_per_shard() -> Training:
    """V15: a replica applies its gradients once for each of as many shards as there are replicas."""
    model, optimizer = model_of(), sgd()
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


def _stepping(
    share: Callable[[Any, Any], Any], exchange: Callable[[Any], Any] = lambda gradients: gradients, rate: float = 0.1
) -> Training:
    """A step whose loss is ``share`` of the losses of a replica's rows and of the number of rows in the batch."""
    model, optimizer = model_of(), tf.keras.optimizers.SGD(rate)

    def step(x: Any, y: Any, rows: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean(tf.square(y - model(x, training=True)), axis=-1)
            loss = share(losses, tf.cast(rows, tf.float32))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(exchange(gradients), variables, strict=True))
        return loss, gradients

    return Training(model, "mse", optimizer, step=step)


def _share(losses: Any, rows: Any) -> Any:
    return tf.reduce_sum(losses) / rows


def applied_once() -> Training:
    """Gradients of the share of each replica, applied once."""
    return _stepping(_share)


def mean_of_own_rows() -> Training:
    """V08: each replica's loss is the mean over its own rows, and the gradients are added up."""
    return _stepping(lambda losses, _: tf.reduce_mean(losses))


def exchanged_twice() -> Training:
    """The gradients are added up by hand, and once more by the optimizer."""
    return _stepping(_share, lambda gradients: tf.distribute.get_replica_context().all_reduce("sum", gradients))


def rate_times_replicas() -> Training:
    """The learning rate grows with the number of replicas."""
    return _stepping(_share, rate=0.1 * tf.distribute.get_strategy().num_replicas_in_sync)


def misses_an_update() -> Training:
    """Device 1 leaves out its third update."""

    class Forgetful(tf.keras.optimizers.SGD):  # type: ignore[misc]
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            if variable.device.endswith(":1"):
                gradient *= tf.cast(tf.not_equal(tf.convert_to_tensor(self.iterations), 2), gradient.dtype)
            super().update_step(gradient, variable, learning_rate)

    return Training(model_of(), "mse", Forgetful(0.1))


def own_reader(context: Any, arrays: Sequence[Any], rows: int) -> Any:
    """Every replica reads its part of each batch."""
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
    own = rows // context.num_replicas_in_sync
    whole = [array[: len(array) // rows * rows] for array in arrays]
    chosen = np.arange(len(whole[0])) % rows < own
    part = tf.data.Dataset.from_tensor_slices(tuple(array[chosen] for array in whole)).batch(own)
    # In one process the replicas take turns at one pipeline; every worker has one of its own.
    turns = context.num_replicas_in_sync // context.num_input_pipelines
    if turns == 1:
        return part.repeat()
    return part.flat_map(lambda x, y: tf.data.Dataset.from_tensors((x, y)).repeat(turns)).repeat()


def batch_each(_: Any, arrays: Sequence[Any], rows: int) -> Any:
    """C06: every replica reads a batch, so that the whole batch grows with the number of devices."""
    return tf.data.Dataset.from_tensor_slices(tuple(arrays)).batch(rows, drop_remainder=True).repeat()


def reads_a_batch_each() -> Training:
    """Reads by :func:`batch_each`."""
    return Training(model_of(), "mse", sgd(), input=batch_each)


def reads_its_part() -> Training:
    """Reads by :func:`own_reader`."""
    return Training(model_of(), "mse", sgd(), input=own_reader)


def reads_the_same() -> Training:
    """Reads by :func:`same_reader`."""
    return Training(model_of(), "mse", sgd(), input=same_reader)


def _training(
    name: str,
    title: str,
    source: str,
    parallel: Callable[[], Training],
    twin: Callable[[], Training],
    cause: str,
    *found: str,
    modes: tuple[str, ...] = LOOPS,
) -> Fault[TrainingCase]:
    case = TrainingCase(parallel, twin, kinds(*(found or ("value",))), modes)
    return Fault(name, title, source, lambda _: case, cause)


_CUSTOM = ("custom",)

FAULTS = (
    _training(
        "T01-scalar-loss",
        "a loss that is one number for all rows, not one for each row",
        "tensorflow 55321, keras 16285",
        scalar_loss,
        loss_per_row,
        "loss squares .*counts in full, not in proportion to its share",
    ),
    _training(
        "T02-added-sum",
        "a layer adds a sum over the rows to the loss",
        "keras PR 20609",
        added_sum,
        added_mean,
        r"layer activity.*divides layer losses by the number of replicas \(<n>\)",
    ),
    _training(
        "T03-clipped",
        "clipnorm clips the gradients of each replica, not their sum",
        "tensorflow 33929",
        clipped,
        hardly_clipped,
        "clips the gradients of each replica before",
    ),
    _training(
        "T04-normalised",
        "batch normalisation on the rows of each replica",
        "tensorflow 7439",
        normalised,
        normalised_together,
        "layer norm.*uses the statistics of one replica's rows",
        "value",
        "sync",
    ),
    _training(
        "T05-applied-per-shard",
        "gradients applied once for each part of the batch",
        "tensorflow PR 21824",
        applied_per_shard,
        applied_once,
        "counted <n> updates in 1 step:",
        "update-count",
        "value",
        modes=_CUSTOM,
    ),
    _training(
        "T06-misses-an-update",
        "a replica misses an update",
        "made up for this list",
        misses_an_update,
        clean,
        "missed an update",
        "sync",
        "value",
        modes=_CUSTOM,
    ),
    _training(
        "T07-same-rows",
        "every replica reads the same rows",
        "example programs",
        reads_the_same,
        reads_its_part,
        "all <n> replicas were given the same",
        "input",
        "value",
        modes=_CUSTOM,
    ),
    _training(
        "T08-a-batch-each",
        "every replica reads a whole batch instead of its part",
        "example programs",
        reads_a_batch_each,
        reads_its_part,
        "the batch grows with the number of devices",
        "input",
        "value",
        modes=_CUSTOM,
    ),
    _training(
        "T09-mean-of-own-rows",
        "each replica's loss is a mean over its own rows, and gradients are added up",
        "tensorflow 25806",
        mean_of_own_rows,
        applied_once,
        "<n> times",
        modes=_CUSTOM,
    ),
    _training(
        "T10-exchanged-twice",
        "gradients added up twice: by hand, and again by the optimizer",
        "public code",
        exchanged_twice,
        applied_once,
        "<n> times",
        modes=_CUSTOM,
    ),
    _training(
        "T11-rate-times-replicas",
        "a learning rate that grows with the number of replicas",
        "public code",
        rate_times_replicas,
        applied_once,
        "learning rate|<n> times",
        modes=_CUSTOM,
    ),
)
