"""A training that is set up once and can be run several times from weights that are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from harness.distribute.batches import Data
from harness.distribute.course import Course, Recorder
from harness.distribute.state import homes, look, named, read, slots_of
from harness.distribute.training import Training, checked
from harness.errors import TrainingError
from harness.parallel.notes import add_note

#: Called with a function of no arguments: calls it, watches what it does, and returns what it returns.
Watch: TypeAlias = Callable[[Callable[[], Any]], Any]
#: Changes a training before it is run, in the strategy's scope.
Change: TypeAlias = Callable[[Training], Training]

#: Of everything that is drawn at random where the user's function does not say so: the same in all processes.
SEED = 20170717


class Session(ABC):
    """One training under one strategy. ``build`` is called in its scope."""

    #: Name of the loop.
    loop: str

    def __init__(
        self, build: Callable[[], object], strategy: Any, data: Data, *, name: str, changes: Sequence[Change] = ()
    ) -> None:
        import tensorflow as tf

        self.strategy = strategy
        # Names of layers start anew, so that they are the same each time; and so do random numbers.
        policy = tf.keras.config.dtype_policy()
        tf.keras.backend.clear_session()
        tf.keras.config.set_dtype_policy(policy)
        tf.keras.utils.set_random_seed(SEED)
        with strategy.scope():
            self.training = checked(build(), name)
            if tf.keras.distribution.distribution() is not None:
                tf.keras.distribution.set_distribution(None)
                raise TrainingError(
                    f"{name} sets a keras.distribution, which Keras accepts with TensorFlow and then ignores: all "
                    "would run on one device; leave it out, and name a strategy here"
                )
            if not self.training.model.built:
                self.training.model(data.x[:1])
            for change in changes:
                self.training = change(self.training)
            self.set_up()

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self.training.model

    @property
    def optimizer(self) -> Any:
        """The optimizer that is used: in mixed precision Keras wraps the one that it is given."""
        return self.training.optimizer

    @property
    def weights(self) -> dict[str, Any]:
        """The model's variables, those too that are not trained."""
        return named(self.model.weights)

    @abstractmethod
    def set_up(self) -> None:
        """Make what the loop needs, in the strategy's scope."""

    @abstractmethod
    def take_steps(self, data: Data, steps: int, recorder: Recorder, watch: Watch | None) -> None:
        """Take the steps; call :meth:`record` after each. ``watch`` is used for one call that does what a step does."""

    def initial(self) -> list[Any]:
        """The values of all the model's variables, as NumPy arrays."""
        return [read(variable) for variable in self.weights.values()]

    def run(self, initial: Sequence[Any], data: Data, steps: int, watch: Watch | None = None) -> Course:
        """Take ``steps`` steps from the weights ``initial``, with slots as new."""
        import tensorflow as tf

        for variable, value in zip(self.weights.values(), initial, strict=True):
            variable.assign(value)
        if self.optimizer.built:
            self._renew_slots()
        for metric in self.training.metrics:
            metric.reset_state()
        recorder = Recorder()
        try:
            self.take_steps(data, steps, recorder, watch)
        except tf.errors.OpError as error:
            if "ollective" in str(error):
                add_note(
                    error,
                    "replicas did not agree on a collective: a second strategy in one process is the usual cause, for "
                    "both number their collectives alike",
                )
            raise
        variables = {**self.weights, **slots_of(self.optimizer)}
        return Course(
            loop=self.loop,
            replicas=int(self.strategy.num_replicas_in_sync),
            devices=self._devices(),
            values=recorder.values(),
            iterations=tuple(recorder.iterations),
            rates=tuple(recorder.rates),
            rows=tuple(recorder.rows),
            apart=tuple(recorder.apart.values()),
            homes=homes(self.strategy, variables),
        )

    def record(self, recorder: Recorder, loss: float, metrics: dict[str, float]) -> None:
        """Record what there is after a step."""
        recorder.add("loss", "loss", loss)
        for name, value in metrics.items():
            recorder.add("metric", name, value)
        look(recorder, self.strategy, "weight", self.weights)
        look(recorder, self.strategy, "slot", slots_of(self.optimizer))
        recorder.rates.append(float(number(self.optimizer.learning_rate)))
        recorder.iterations.append(int(number(self.optimizer.iterations)))

    def _devices(self) -> tuple[str, ...]:
        """The devices of the replicas of this process; the strategy of a single device tells none."""
        if int(self.strategy.num_replicas_in_sync) == 1:
            return ()
        return tuple(str(device) for device in self.strategy.extended.worker_devices)

    def _renew_slots(self) -> None:
        """Slots and the counter as they were before the first step."""
        variables = self.optimizer.variables
        if not hasattr(self, "_new_slots"):
            self._new_slots = [read(variable) for variable in variables]
        for variable, value in zip(variables, self._new_slots, strict=True):
            variable.assign(value)


def number(value: Any) -> Any:
    """What a Keras variable, a tensor or a number holds."""
    # A Keras variable has its value as an attribute, a variable of TensorFlow's has a method of that name.
    if hasattr(value, "value") and not callable(value.value):
        return read(value)
    return value.numpy() if hasattr(value, "numpy") else value
