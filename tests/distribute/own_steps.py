"""Trainings with a step of their own, each fault beside the same done right, and metrics that replicas combine."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from harness.distribute import Training

Loss = Callable[[Any, Any, Any, Any], Any]


def replicas() -> Any:
    """How many replicas there are, as a number of the loss."""
    import tensorflow as tf

    return tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, tf.float32)


def share(net: Any, x: Any, y: Any, rows: Any) -> Any:
    """A replica's share of the mean over the rows of the batch."""
    import tensorflow as tf

    return tf.reduce_sum(tf.reduce_mean(tf.square(y - net(x, training=True)), axis=-1)) / tf.cast(rows, tf.float32)


def penalty(net: Any) -> Any:
    """A penalty on the weights, written out."""
    import tensorflow as tf

    return 0.05 * tf.add_n([tf.reduce_sum(tf.square(each.value)) for each in net.trainable_weights])


def stepping(
    loss_of: Loss,
    optimizer: Callable[[], Any] | None = None,
    exchange: Callable[[list[Any]], list[Any]] = lambda gradients: gradients,
    *,
    returns: bool = True,
    regularizer: Any = None,
) -> Training:
    """A step whose loss is ``loss_of``; ``exchange`` is made of the gradients before they are applied."""
    import tensorflow as tf

    dense = tf.keras.layers.Dense(3, kernel_regularizer=regularizer)
    net = tf.keras.Sequential([tf.keras.Input((4,)), dense])
    made = tf.keras.optimizers.SGD(0.1) if optimizer is None else optimizer()

    def step(x: Any, y: Any, rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(net, x, y, rows)
        gradients = tape.gradient(loss, net.trainable_variables)
        made.apply_gradients(zip(exchange(gradients), net.trainable_variables, strict=True))
        return loss, gradients if returns else None

    return Training(net, "mse", made, step=step)


def adam() -> Any:
    import tensorflow as tf

    return tf.keras.optimizers.Adam(0.01)


def momentum() -> Any:
    import tensorflow as tf

    return tf.keras.optimizers.SGD(0.1, momentum=0.9)


def regularized_in_each() -> Training:
    import tensorflow as tf

    added: Loss = lambda net, *batch: share(net, *batch) + tf.add_n(net.losses)  # noqa: E731
    return stepping(added, regularizer=tf.keras.regularizers.L2(0.05))


def regularized() -> Training:
    import tensorflow as tf

    added: Loss = lambda net, *batch: share(net, *batch) + tf.nn.scale_regularization_loss(tf.add_n(net.losses))  # noqa: E731
    return stepping(added, regularizer=tf.keras.regularizers.L2(0.05))


def penalized_in_each() -> Training:
    return stepping(lambda net, *batch: share(net, *batch) + penalty(net), adam)


def averaged_again() -> Training:
    """Each replica has a share of the loss, and the shares are averaged."""
    return stepping(share, momentum, lambda gradients: [each / replicas() for each in gradients])


def averaged_unseen() -> Training:
    """The same where the step returns no gradients."""
    return stepping(share, momentum, lambda gradients: [each / replicas() for each in gradients], returns=False)


def added_up() -> Training:
    return stepping(share, momentum)


def _centred(net: Any, x: Any, y: Any, mean: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(tf.square(y - net(x - mean, training=True)), axis=-1)


def centred_in_each() -> Training:
    """Rows are centred by the mean of those of the replica."""
    import tensorflow as tf

    def loss_of(net: Any, x: Any, y: Any, rows: Any) -> Any:
        return tf.reduce_sum(_centred(net, x, y, tf.reduce_mean(x, axis=0))) / tf.cast(rows, tf.float32)

    return stepping(loss_of)


def centred() -> Training:
    """The same by the mean of the batch."""
    import tensorflow as tf

    def loss_of(net: Any, x: Any, y: Any, rows: Any) -> Any:
        context = tf.distribute.get_replica_context()
        mean = context.all_reduce("sum", tf.reduce_sum(x, axis=0)) / tf.cast(rows, tf.float32)
        return tf.reduce_sum(_centred(net, x, y, mean)) / tf.cast(rows, tf.float32)

    return stepping(loss_of)


def lost_by_one() -> Training:
    """What replica 1 computes reaches neither the loss nor the update."""
    import tensorflow as tf

    def loss_of(net: Any, x: Any, y: Any, rows: Any) -> Any:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        kept = tf.cast(tf.not_equal(number, 1), tf.float32)
        return kept * share(net, x, y, rows)

    return stepping(loss_of)


def other_optimum() -> Training:
    """A fault that no cause knows: the loss has another power where there are several replicas."""
    import tensorflow as tf

    def loss_of(net: Any, x: Any, y: Any, rows: Any) -> Any:
        error = tf.abs(y - net(x, training=True)) ** (1.0 + 1.0 / (2.0 * replicas() - 1.0))
        return tf.reduce_sum(error) / tf.cast(rows, tf.float32)

    return stepping(loss_of)


def _less_a_mean(mean: Any) -> Training:
    """From the truth, a moving average of it is taken off, which is no variable of the model."""
    import tensorflow as tf

    net = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3)])
    optimizer = tf.keras.optimizers.SGD(0.1)

    def step(x: Any, y: Any, rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = share(net, x, y - mean, rows)
        gradients = tape.gradient(loss, net.trainable_variables)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        mean.assign(0.5 * mean + 0.5 * tf.reduce_mean(y, axis=0))
        return loss, gradients

    return Training(net, "mse", optimizer, step=step)


def mean_of_each() -> Training:
    """Each replica has a moving average of its own rows."""
    import tensorflow as tf

    on_read = tf.VariableSynchronization.ON_READ
    mean = tf.Variable(tf.zeros([3]), trainable=False, synchronization=on_read, aggregation=tf.VariableAggregation.MEAN)
    return _less_a_mean(mean)


def mean_of_all() -> Training:
    import tensorflow as tf

    mean = tf.Variable(tf.zeros([3]), trainable=False, aggregation=tf.VariableAggregation.MEAN)
    return _less_a_mean(mean)


@cache
def _kept_for_good() -> Any:
    import tensorflow as tf

    return tf.Variable(tf.zeros([3]), trainable=False)


def mean_from_run_to_run() -> Training:
    """A variable that was made once, and goes on from where another run ended."""
    return _less_a_mean(_kept_for_good())


def _metric(assign: str, reduce: str) -> Any:
    import tensorflow as tf

    class Close(tf.keras.metrics.Metric):  # type: ignore[misc]
        """Of the errors, those below 1: kept as a share, or counted."""

        def __init__(self) -> None:
            super().__init__(name="close")
            self.close = self.add_weight(shape=(), initializer="zeros", name="kept")

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            close = tf.cast(tf.abs(y_true - y_pred) < 1.0, tf.float32)
            getattr(self.close, assign)(getattr(tf, reduce)(close))

        def result(self) -> Any:
            return tf.convert_to_tensor(self.close)

    return Close()


def _measured(metric: Any) -> Training:
    import tensorflow as tf

    net = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3)])
    return Training(net, "mse", tf.keras.optimizers.SGD(0.01), [metric])


def shares_added_up() -> Training:
    return _measured(_metric("assign", "reduce_mean"))


def counts_added_up() -> Training:
    return _measured(_metric("assign_add", "reduce_sum"))


def classes() -> Training:
    """A metric that makes its variables when it is first updated, and has a result for each class."""
    import tensorflow as tf

    return _measured(tf.keras.metrics.F1Score(threshold=0.1))


def two_results() -> Training:
    """A metric that names its results itself."""
    import tensorflow as tf

    class Named(tf.keras.metrics.Mean):  # type: ignore[misc]
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            super().update_state(tf.abs(y_true - y_pred))

        def result(self) -> Any:
            return {"error": super().result(), "number": tf.convert_to_tensor(self.count)}

    return _measured(Named(name="named"))


def centred_by_a_layer() -> Training:
    """A layer that takes the mean of its replica's rows away."""
    import tensorflow as tf

    class Centred(tf.keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x - tf.reduce_mean(x, axis=0, keepdims=True)

    net = tf.keras.Sequential([tf.keras.Input((4,)), Centred(), tf.keras.layers.Dense(3)])
    return Training(net, "mse", tf.keras.optimizers.SGD(0.1))


def one_doubled() -> Training:
    """Of the gradients, one is as many times too large as there are replicas, and the other is right."""
    return stepping(share, exchange=lambda gradients: [gradients[0] * replicas(), *gradients[1:]])


def sum_in_a_layer() -> Training:
    """A layer that adds a sum over its rows to the loss, on which no weight depends."""
    import tensorflow as tf

    class Summed(tf.keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            self.add_loss(tf.reduce_sum(tf.square(x)))
            return x

    net = tf.keras.Sequential([tf.keras.Input((4,)), Summed(), tf.keras.layers.Dense(3)])
    return Training(net, "mse", tf.keras.optimizers.SGD(0.1))


def results_by_replica() -> Training:
    """A metric that no combination explains: each replica's result depends on which one it is."""
    import tensorflow as tf

    class Numbered(tf.keras.metrics.Mean):  # type: ignore[misc]
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
            context = tf.distribute.get_replica_context()
            number = context.replica_id_in_sync_group if context is not None else 0
            super().update_state(tf.abs(y_true - y_pred) ** (1.0 + tf.cast(number, tf.float32)))

    return _measured(Numbered(name="numbered"))
