"""A training that is set up once, and can be run several times from given weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from harness.distribute.history import History, Recorder
from harness.distribute.training import Data, Training, check_training, make_metrics
from harness.errors import TrainingError
from harness.lazy import tf
from harness.parallel.notes import add_note

#: Called with a function of no arguments: calls it, traces it, and returns what it returns.
Watch: TypeAlias = Callable[[Callable[[], Any]], Any]
#: Changes a training before it is run, in the strategy's scope.
Change: TypeAlias = Callable[[Training], Training]

#: The seed of everything random that the user's function does not seed: the same in all processes.
SEED = 20170717

#: What TensorFlow reports of a collective whose number two strategies use.
_CLASHES = ("mismatch in the collective instance", "group size", "group_size")


class Session(ABC):
    """One training under one strategy. ``build`` is called in its scope."""

    #: Name of the loop.
    loop: str

    def __init__(
        self, build: Callable[[], object], strategy: Any, data: Data, *, name: str, changes: Sequence[Change] = ()
    ) -> None:
        self.strategy = strategy
        # Layers are named, and random numbers drawn, as the first time. Collecting garbage would take seconds.
        policy = tf.keras.config.dtype_policy()
        tf.keras.backend.clear_session(free_memory=False)
        tf.keras.config.set_dtype_policy(policy)
        tf.keras.utils.set_random_seed(SEED)
        made: list[Any] = []

        def remembered(create: Callable[..., Any], **arguments: Any) -> Any:
            made.append(create(**arguments))
            return made[-1]

        with strategy.scope(), tf.variable_creator_scope(remembered):
            self.training = check_training(build(), name)
            if tf.keras.distribution.distribution() is not None:
                tf.keras.distribution.set_distribution(None)
                raise TrainingError(
                    f"{name} sets a keras.distribution, which Keras ignores with TensorFlow: "
                    "everything would run on one device; remove the distribution, and pass a strategy to "
                    "harness.distribute.equivalent"
                )
            if not self.model.built:
                self.model(data.x[:1])
            if self.training.metrics:
                predicted = self.model(data.x[:1])
                self.training = replace(self.training, metrics=make_metrics(self.training.metrics, data.y, predicted))
                # Keras's metrics that make variables when they are first updated make them now, as in Keras's fit.
                with tf.keras.StatelessScope():
                    for metric in (each for each in self.training.metrics if not getattr(each, "_built", True)):
                        metric.update_state(data.y[:1], predicted)
            for change in changes:
                self.training = change(self.training)
            self.set_up()
        own = {id(variable.value) for variable in self.weights.values()}
        #: What the training keeps besides the model's variables, such as slots or a moving average, as it was made.
        self._kept = [(variable, variable.numpy()) for variable in made if id(variable) not in own]
        self._has_run = False

    @property
    def model(self) -> Any:
        """The Keras model."""
        return self.training.model

    @property
    def optimizer(self) -> Any:
        """The optimizer in use: in mixed precision Keras wraps the one that it is given."""
        return self.training.optimizer

    @property
    def weights(self) -> dict[str, Any]:
        """The model's variables, including those that are not trained."""
        return named_variables(self.model.weights)

    @abstractmethod
    def set_up(self) -> None:
        """Make what the loop needs, in the strategy's scope."""

    @abstractmethod
    def take_steps(self, data: Data, steps: int, recorder: Recorder, watch: Watch | None) -> None:
        """Take the steps, and call :meth:`record` after each. ``watch`` is used for one call that does what a step
        does."""

    def initial(self) -> list[Any]:
        """The values of all the model's variables, as NumPy arrays."""
        return [read(variable) for variable in self.weights.values()]

    def run(self, initial: Sequence[Any], data: Data, steps: int, watch: Watch | None = None) -> History:
        """Take ``steps`` steps from the weights ``initial``; all else that the training keeps starts as it was made."""
        for variable, value in zip(self.weights.values(), initial, strict=True):
            variable.assign(value)
        for variable, value in self._kept if self._has_run else ():
            variable.assign(value)
        self._has_run = True
        for metric in self.training.metrics:
            metric.reset_state()
        recorder = Recorder()
        try:
            self.take_steps(data, steps, recorder, watch)
        except tf.errors.OpError as error:
            # Of several GPUs, TensorFlow may report one that was cancelled because of the error of another.
            cancelled = isinstance(error, tf.errors.CancelledError)
            here = isinstance(self.strategy, tf.distribute.MirroredStrategy)
            cause = _why_collectives_ended() if cancelled and here else ""
            if cause:
                add_note(error, cause)
            if is_collective_clash(cause or str(error)):
                note = (
                    "usually caused by a second strategy in one process, which gives its collectives the same numbers "
                    "as the first"
                )
                add_note(error, note)
            raise
        variables = {**self.weights, **optimizer_slots(self.optimizer)}
        # The strategy of a single device names none.
        replicas = int(self.strategy.num_replicas_in_sync)
        devices = tuple(str(device) for device in self.strategy.extended.worker_devices) if replicas > 1 else ()
        places = {
            name: tuple(str(copy.device) for copy in self.copies(variable)) for name, variable in variables.items()
        }
        return recorder.history(self.loop, replicas, devices, variable_devices=places)

    def record(self, recorder: Recorder, loss: float, metrics: Mapping[str, Any]) -> None:
        """Record the state after a step. The result of a metric may be an array, or the metric's variable itself."""
        recorder.add("loss", "loss", loss)
        for name, value in metrics.items():
            recorder.add("metric", name, number(value))
        self._record_variables(recorder, "weight", self.weights)
        self._record_variables(recorder, "slot", optimizer_slots(self.optimizer))
        recorder.rates.append(float(number(self.optimizer.learning_rate)))
        recorder.iterations.append(int(number(self.optimizer.iterations)))

    def copies(self, variable: Any) -> tuple[Any, ...]:
        """The TensorFlow variables that hold a Keras variable: one for each replica of this process, or just one."""
        return tuple(self.strategy.experimental_local_results(variable.value))

    def _record_variables(self, recorder: Recorder, quantity: str, variables: dict[str, Any]) -> None:
        for name, variable in variables.items():
            recorder.add(quantity, name, read(variable))
            copies = self.copies(variable)
            # Copies that are added up when they are read may differ.
            on_read = tf.VariableSynchronization.ON_READ
            if len(copies) < 2 or getattr(variable.value, "synchronization", None) == on_read:
                continue
            first, *others = [copy.read_value().numpy() for copy in copies]
            for copy, other in zip(copies[1:], others, strict=True):
                if first.tobytes() != other.tobytes():
                    recorder.add_different_copy(name, str(copy.device), other, first)


def _why_collectives_ended() -> str:
    """The error that ended all collectives of this process: TensorFlow gives it to whichever comes next."""
    numbers = {"group_size": 1, "group_key": 2**30, "instance_key": 2**30, "ordering_token": []}
    try:
        with tf.device("CPU:0"):
            tf.raw_ops.CollectiveReduceV2(input=[0.0], merge_op="Add", final_op="Id", **numbers)
    except tf.errors.OpError as error:
        _, found, cause = str(error.message).partition("Collective ops is aborted by: ")
        return cause.splitlines()[0] if found else ""
    return ""


def is_collective_clash(message: str) -> bool:
    """Whether an error of TensorFlow's is one of collectives whose members do not fit together."""
    return "ollective" in message and any(clash in message for clash in _CLASHES)


def named_variables(variables: Sequence[Any]) -> dict[str, Any]:
    """Keras variables by path; where several share a path, with their index."""
    found: dict[str, Any] = {}
    for index, variable in enumerate(variables):
        path = str(variable.path)
        found[path if path not in found else f"{path} ({index})"] = variable
    return found


def optimizer_slots(optimizer: Any) -> dict[str, Any]:
    """The floating-point variables of an optimizer, without its learning rate."""
    optimizers = [optimizer, *filter(None, [getattr(optimizer, "inner_optimizer", None)])]
    others = {id(getattr(each, name, None)) for each in optimizers for name in ("iterations", "_learning_rate")}
    slots = named_variables([variable for variable in optimizer.variables if id(variable) not in others])
    return {name: variable for name, variable in slots.items() if "float" in str(variable.dtype)}


def read(variable: Any) -> Any:
    """The value of a Keras variable, read outside of all replicas."""
    value = variable.value
    return (value.read_value() if hasattr(value, "read_value") else value).numpy()


def results_of(metric: Any) -> Mapping[str, Any]:
    """The results of a Keras metric by their names: its own, or those that it gives them itself."""
    result = metric.result()
    return result if isinstance(result, Mapping) else {str(metric.name): result}


def number(value: Any) -> Any:
    """The value of a Keras variable, a tensor or a number."""
    # A Keras variable has its value as an attribute, a TensorFlow variable has a method of that name.
    if hasattr(value, "value") and not callable(value.value):
        return read(value)
    return value.numpy() if hasattr(value, "numpy") else value
