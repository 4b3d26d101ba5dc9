"""The loops that train: a custom one, as in TensorFlow's guide, and Keras's ``fit``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from harness.distribute.history import Recorder
from harness.distribute.session import Session, Watch, named_variables, number, results_of
from harness.distribute.training import Data, not_tuned, row_digests
from harness.lazy import tf


class CustomLoop(Session):
    """Steps of ``strategy.run`` in a ``tf.function``. A replica computes its share of the loss of the whole batch."""

    loop = "custom loop"

    def set_up(self) -> None:
        """Make the step."""
        self.optimizer.build(self.model.trainable_variables)
        #: One replica's part of a step.
        self.part = part = self.training.step or self._part
        if self.training.jit_compile:
            part = tf.function(part, jit_compile=True)
        strategy = self.strategy

        @tf.function  # type: ignore[untyped-decorator]
        def step(x: Any, y: Any, rows: Any) -> Any:
            return strategy.run(part, args=(x, y, rows))

        self._step = step

    def take_steps(self, data: Data, steps: int, recorder: Recorder, watch: Watch | None) -> None:
        """Take the steps. The last one is watched."""
        batches = iter(self._batches(data))
        for taken in range(steps):
            x, y = next(batches)
            rows = tf.constant(data.rows(taken), tf.int32)
            parts = zip(*map(self.strategy.experimental_local_results, (x, y)), strict=True)
            recorder.rows.append(tuple(row_digests(one.numpy(), other.numpy()) for one, other in parts))

            def step(x: Any = x, y: Any = y, rows: Any = rows) -> Any:
                return self._step(x, y, rows)

            loss, gradients = watch(step) if watch is not None and taken == steps - 1 else step()
            for name, gradient in zip(self.trainable_names, gradients or (), strict=False):
                if gradient is not None:
                    recorder.add("gradient", name, self._summed(gradient))
            results = [results_of(metric) for metric in self.training.metrics]
            self.record(recorder, float(self._summed(loss)), {name: each[name] for each in results for name in each})

    @property
    def trainable_names(self) -> list[str]:
        """The names of the variables that a step has gradients for, in their order."""
        return list(named_variables(self.model.trainable_variables))

    def _batches(self, data: Data) -> Any:
        own = self.training.input
        if own is None or int(self.strategy.num_replicas_in_sync) == 1:
            return self.strategy.experimental_distribute_dataset(data.dataset())
        return self.strategy.distribute_datasets_from_function(
            lambda context: not_tuned(own(context, data.arrays, data.batch_size))
        )

    def _part(self, x: Any, y: Any, rows: Any) -> tuple[Any, Any]:
        """Do one replica's part of a step."""
        optimizer, variables = self.optimizer, self.model.trainable_variables
        with tf.GradientTape() as tape:
            predicted = self.model(x, training=True)
            loss = share_of_loss(self.training.loss, y, predicted, rows)
            if self.model.losses:
                # As in Keras: layers are taken to add means over rows, or functions of the weights alone.
                replicas = tf.distribute.get_strategy().num_replicas_in_sync
                loss += tf.add_n([tf.cast(added, loss.dtype) for added in self.model.losses]) / replicas
            scaled = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        for metric in self.training.metrics:
            metric.update_state(y, predicted)
        return loss, [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]

    def _summed(self, value: Any) -> Any:
        """The sum over the replicas of this process, in float64."""
        parts = self.strategy.experimental_local_results(value)
        return sum(np.asarray(part.numpy(), np.float64) for part in parts)


class KerasFit(Session):
    """Keras's ``fit`` on the arrays, in their order. Metrics and the loss are running means, as Keras reports them.

    It compiles without XLA unless asked to: XLA hides where ops run, and rounds differently on one device.
    """

    loop = "fit"

    def set_up(self) -> None:
        """Compile the model."""
        made = self.training
        self.model.compile(
            optimizer=made.optimizer, loss=made.loss, metrics=list(made.metrics), jit_compile=made.jit_compile
        )
        # In mixed precision the model now has another optimizer.
        self.training = replace(made, optimizer=self.model.optimizer, metrics=())
        if self.strategy.num_replicas_in_sync == 1:
            # Under a strategy fit makes the slots when it starts, and their devices are checked. On one device they
            # are made now, so that the training can be restarted.
            self.optimizer.build(self.model.trainable_variables)

    def take_steps(self, data: Data, steps: int, recorder: Recorder, watch: Watch | None) -> None:
        """Take the steps; to be watched, take one more that is not recorded."""
        session = self

        class Record(tf.keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
                results = {"loss": math.nan, **(logs or {})}
                session.record(recorder, float(number(results.pop("loss"))), results)
                if len(recorder.iterations) == steps:
                    self.model.stop_training = True

        epochs = -(-steps // data.batches)
        self._fit(data, epochs, [Record()])
        if watch is not None:
            x, y = data.batch(0)
            watch(lambda: self._fit(Data(x, y, data.batch_size), 1, []))

    def _fit(self, data: Data, epochs: int, callbacks: list[Any]) -> None:
        with _datasets_not_tuned(self.model.distribute_strategy):
            self.model.fit(
                data.x, data.y, batch_size=data.batch_size, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
            )


@contextmanager
def _datasets_not_tuned(strategy: Any) -> Iterator[None]:
    """Let a strategy distribute each dataset as :func:`not_tuned` in the body: those that ``fit`` makes of arrays."""
    distribute = strategy.experimental_distribute_dataset
    strategy.experimental_distribute_dataset = lambda dataset, *rest: distribute(not_tuned(dataset), *rest)
    try:
        yield
    finally:
        del strategy.experimental_distribute_dataset


def share_of_loss(loss: Any, y: Any, predicted: Any, rows: Any) -> Any:
    """Return a replica's share of the loss of a batch of ``rows`` rows; the shares of all replicas add up to it.

    A loss that returns one number for its rows cannot be divided by the rows of the whole batch: it is left as it is.
    """
    values = values_of_loss(loss, y, predicted)
    if values.shape.rank == 0:
        return values
    each = tf.cast(tf.size(values) // tf.maximum(tf.shape(values)[0], 1), values.dtype)
    total = tf.reduce_sum(values)
    if getattr(loss, "reduction", None) == "sum":
        return total
    return total / (tf.cast(rows, values.dtype) * tf.maximum(each, 1))


def values_of_loss(loss: Any, y: Any, predicted: Any) -> Any:
    """Return a loss before its reduction, where it has one of its own: ``[rows, ...]``, float32 or float64."""
    if predicted.dtype in (tf.float16, tf.bfloat16):
        predicted = tf.cast(predicted, tf.float32)
    if y.dtype.is_floating:
        y = tf.cast(y, predicted.dtype)
    function = tf.keras.losses.get(loss)
    values = function.call(y, predicted) if isinstance(function, tf.keras.losses.Loss) else function(y, predicted)
    return tf.convert_to_tensor(values)
