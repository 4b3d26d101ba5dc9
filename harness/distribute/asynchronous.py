"""Asynchronous training with parameter servers, as its coordinator runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.distribute.loops import share_of_loss
from harness.distribute.session import SEED, number
from harness.distribute.single_device import Experiment, make_session
from harness.distribute.training import check_training
from harness.lazy import tf


@dataclass(frozen=True)
class AsynchronousHistory:
    """What an asynchronous training computed.

    ``added`` is an integer variable to which the workers add 1 in each of ``steps`` steps; ``iterations`` is the
    optimizer's counter, ``counters`` are those of the training. ``by_worker`` is how many steps each worker took, the
    busiest first. ``staleness`` is for each step how many updates of others came between its reading of the weights
    and its own update. ``variable_devices`` are names and devices. ``losses`` are those of all the data, before the
    first step and after the last.
    """

    steps: int
    added: int
    iterations: int
    by_worker: tuple[int, ...]
    staleness: tuple[int, ...]
    variable_devices: tuple[tuple[str, str], ...]
    losses: tuple[float, float]
    counters: tuple[tuple[str, int], ...] = ()


class AsynchronousTraining:
    """A training under ``ParameterServerStrategy``, set up by its coordinator."""

    def __init__(self, experiment: Experiment, strategy: Any, coordinator: Any, workers: int) -> None:
        self.strategy, self.coordinator, self.data, self.workers = strategy, coordinator, experiment.data, workers
        tf.keras.utils.set_random_seed(SEED)
        with strategy.scope():
            self.training = check_training(experiment.build(), experiment.name)
            self.optimizer = self.training.optimizer
            self.optimizer.build(self.training.model.trainable_variables)
            self.added = tf.Variable(0, dtype=tf.int64, trainable=False, name="added")

    def initial(self) -> list[Any]:
        """The values of the model's variables."""
        return [variable.value.numpy() for variable in self.training.model.weights]

    def run(self, steps: int) -> AsynchronousHistory:
        """Take this many steps, each on the next free worker."""
        data, workers = self.data, self.workers

        def batches() -> Any:
            return tf.data.Dataset.from_tensor_slices(data.arrays).batch(data.batch_size).repeat()

        def input_of_worker() -> Any:
            # A worker does not know which one it is, and all have the same seeds. So each is identified by the
            # microsecond at which it first read.
            started = tf.data.Dataset.from_tensors(0).map(lambda _: tf.cast(tf.timestamp() * 1e6, tf.int64)).cache()
            return tf.data.Dataset.zip((batches(), started.repeat()))

        iterator = iter(self.coordinator.create_per_worker_dataset(input_of_worker))
        before = self.loss()
        step = self._step()
        waiting = [self.coordinator.schedule(step, args=(iterator,)) for _ in range(steps)]
        self.coordinator.join()
        taken = [tuple(int(part) for part in each) for each in self.coordinator.fetch(waiting)]
        counts = sorted(Counter(worker for _, worker in taken).values(), reverse=True)
        model = self.training.model
        return AsynchronousHistory(
            steps=steps,
            added=int(self.added.numpy()),
            iterations=int(self.optimizer.iterations.numpy()),
            by_worker=(*counts, *[0] * (workers - len(counts))),
            staleness=tuple(stale for stale, _ in taken),
            counters=tuple(
                (str(getattr(counter, "path", counter.name)), int(number(counter)))
                for counter in self.training.counters
            ),
            variable_devices=tuple(
                (str(variable.path), str(variable.value.device))
                for variable in (*model.weights, *self.optimizer.variables)
            ),
            losses=(before, self.loss()),
        )

    def loss(self) -> float:
        """The loss of all the data with the present weights."""
        x, y = (tf.convert_to_tensor(array) for array in self.data.arrays)
        predicted = self.training.model(x, training=False)
        return float(share_of_loss(self.training.loss, y, predicted, tf.shape(x)[0]))

    def _step(self) -> Any:
        made, model, optimizer = self.training, self.training.model, self.optimizer

        def part(x: Any, y: Any) -> Any:
            seen = self.added.read_value()
            with tf.control_dependencies([seen]):
                rows = tf.shape(x)[0]
                if made.step is not None:
                    made.step(x, y, rows)
                else:
                    with tf.GradientTape() as tape:
                        loss = share_of_loss(made.loss, y, model(x, training=True), rows)
                    variables = model.trainable_variables
                    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            # Read after this step's updates: in a function, reads of a variable follow its writes.
            with tf.control_dependencies([variable.value.read_value() for variable in model.trainable_variables]):
                stale = self.added.read_value() - seen
            with tf.control_dependencies([stale]):
                self.added.assign_add(1)
            return stale

        @tf.function  # type: ignore[untyped-decorator]
        def step(iterator: Any) -> Any:
            (x, y), worker = next(iterator)
            return self.strategy.run(part, args=(x, y)), worker

        return step


def serial_losses(experiment: Experiment, initial: Sequence[Any]) -> tuple[float, ...]:
    """Return the losses of all the data on one device: after half the steps, and after each later one."""
    data, steps = experiment.data, experiment.steps
    session = make_session(experiment, "custom", None)
    history = session.run(initial, data, steps)
    x, y = (tf.convert_to_tensor(array) for array in data.arrays)
    losses = []
    for step in range(max(steps // 2 - 1, 0), steps):
        for path, variable in session.weights.items():
            variable.assign(history.values["weight"][path][step].reshape(variable.shape))
        predicted = session.model(x, training=False)
        losses.append(float(share_of_loss(session.training.loss, y, predicted, tf.shape(x)[0])))
    return tuple(losses)
