"""What is trained, and on which data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import TrainingError
from harness.lazy import tf

#: What ``build`` has to return, for messages.
ACCEPTED = "a harness.distribute.Training(model, loss, optimizer, metrics=())"
_ACCEPTED_DATA = "accepted: (x, y), or {'x': ..., 'y': ...}, of NumPy arrays with the same number of rows, at least one"
#: Keras dtype policies; the last two are mixed precision, which keeps the weights in float32.
POLICIES = ("float32", "float64", "mixed_bfloat16", "mixed_float16")


@dataclass(frozen=True)
class Training:
    """A Keras training. ``build`` returns one; it is called in the strategy's scope, in each process and for each loop.

    Attributes:
        model: a Keras 3 model with one input tensor and one output tensor.
        loss: a ``keras.losses.Loss``, the name of one, or a function of the true and the predicted values.
        optimizer: a new Keras 3 optimizer.
        metrics: Keras metrics, or their names as ``compile`` takes them.
        step: one replica's part of a step of the custom loop, instead of the harness's own: ``step(x, y, rows)`` gets
            the replica's rows and the number of rows in the whole batch (int32 scalar). It applies its gradients
            itself, and returns the replica's share of the loss (a scalar; the shares are added up) and its gradients
            in the order of ``model.trainable_variables`` (``None``: do not compare them).
        input: the input of the custom loop, instead of the batches of ``data`` as TensorFlow divides them:
            ``input(context, arrays, rows)`` gets a ``tf.distribute.InputContext``, the arrays, and the number of rows
            in a whole batch, and returns a ``tf.data.Dataset`` of one replica's rows for each step.
        counters: integer variables, initially 0, to which ``step`` adds 1. Under ``parameter_server`` they must end at
            the number of steps, which shows that no update was lost.
        jit_compile: compile a step with XLA, on one device and under the strategy. Where the ops of what XLA compiles
            run is then known for the whole of it alone.
    """

    model: Any
    loss: Any
    optimizer: Any
    metrics: Sequence[Any] = ()
    step: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    input: Callable[[Any, tuple[Any, ...], int], Any] | None = None
    counters: Sequence[Any] = ()
    jit_compile: bool = False


def check_training(built: object, name: str) -> Training:
    """Return what the function ``name`` built. Raise TrainingError if it cannot be trained."""
    if not isinstance(built, Training):
        raise TrainingError(f"{name} returned an object of type {type(built).__name__}; accepted: {ACCEPTED}")
    if not isinstance(built.model, tf.keras.Model):
        raise TrainingError(f"{name}: the model is of type {type(built.model).__name__}; accepted: a Keras model")
    if not isinstance(built.optimizer, tf.keras.optimizers.Optimizer):
        raise TrainingError(
            f"{name}: the optimizer is of type {type(built.optimizer).__name__}; accepted: a Keras optimizer, such as "
            "keras.optimizers.SGD(0.1)"
        )
    if built.optimizer.built:
        raise TrainingError(f"{name}: the optimizer already has variables; create a new one in each call")
    if not isinstance(built.jit_compile, bool):
        raise TrainingError(f"{name}: jit_compile={built.jit_compile!r}; accepted: True or False")
    if isinstance(built.metrics, str):
        raise TrainingError(f"{name}: metrics={built.metrics!r}; accepted: a sequence, such as [{built.metrics!r}]")
    return built


def dense_training(policy: str, features: int, units: int, outputs: int, optimizer: Any) -> Training:
    """Make a training of two dense layers, the hidden one in the Keras dtype policy ``policy``."""
    layers = tf.keras.layers
    last = "float64" if policy == "float64" else "float32"
    model = tf.keras.Sequential(
        [
            layers.Input((features,), dtype=last),
            layers.Dense(units, activation="tanh", dtype=policy),
            layers.Dense(outputs, dtype=last),
        ]
    )
    return Training(model, tf.keras.losses.MeanSquaredError(dtype=last), optimizer)


def random_data(policy: str, rows: int, features: int, outputs: int, seed: int) -> tuple[Any, Any]:
    """Make ``x [rows, features]`` and ``y [rows, outputs]`` for a training in that policy: float64, or else float32."""
    random = np.random.default_rng(seed)
    dtype = np.float64 if policy == "float64" else np.float32
    x, y = (random.standard_normal((rows, width)).astype(dtype) for width in (features, outputs))
    return x, y


def make_metrics(given: Sequence[Any], y: Any, predicted: Any) -> list[Any]:
    """Return Keras metrics for metrics and names of metrics.

    As in Keras's ``compile``, the shapes of ``y`` and ``predicted`` say which accuracy ``"accuracy"`` means.
    Raise TrainingError if Keras has no such metric.
    """
    metrics = tf.keras.metrics
    made = []
    for each in given:
        if str(each).lower() in ("accuracy", "acc"):
            classes = predicted.shape[-1]
            if classes == 1:
                metric = metrics.BinaryAccuracy(name=str(each))
            elif len(y.shape) < len(predicted.shape) or y.shape[-1] == 1:
                metric = metrics.SparseCategoricalAccuracy(name=str(each))
            else:
                metric = metrics.CategoricalAccuracy(name=str(each))
        else:
            try:
                metric = metrics.get(each)
            except ValueError:
                metric = None
            if callable(metric) and not isinstance(metric, metrics.Metric):
                metric = metrics.MeanMetricWrapper(metric, name=getattr(metric, "__name__", None))
        if not isinstance(metric, metrics.Metric):
            raise TrainingError(f"metrics: {each!r} is not known to Keras; accepted: Keras metrics, or their names")
        made.append(metric)
    return made


@dataclass(frozen=True)
class Data:
    """The arrays of a training, both ``[rows, ...]``, and the rows of a batch. The last batch of an epoch is shorter
    where the rows do not divide."""

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    batch_size: int

    @classmethod
    def of(cls, data: object, batch_size: int) -> Data:
        """Take ``(x, y)``, or a dict of the two, with at least one row. Raise TrainingError for anything else."""
        given: Sequence[object]
        if isinstance(data, Mapping):
            if set(data) != {"x", "y"}:
                raise TrainingError(f"data has the keys {sorted(map(str, data))}; {_ACCEPTED_DATA}")
            given = (data["x"], data["y"])
        elif isinstance(data, (tuple, list)) and len(data) == 2:
            given = data
        else:
            raise TrainingError(f"data is of type {type(data).__name__}; {_ACCEPTED_DATA}")
        x, y = (np.asarray(part) for part in given)
        if x.dtype == object or y.dtype == object:
            raise TrainingError(f"data holds Python objects, not numbers; {_ACCEPTED_DATA}")
        if x.ndim < 1 or y.ndim < 1 or len(x) != len(y) or not len(x):
            raise TrainingError(f"data has the shapes {x.shape} and {y.shape}; {_ACCEPTED_DATA}")
        if batch_size < 1:
            raise TrainingError(f"batch_size={batch_size}; accepted: 1 or more")
        return cls(x, y, batch_size)

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Both arrays."""
        return self.x, self.y

    @property
    def batches(self) -> int:
        """The number of steps in an epoch."""
        return -(-len(self.x) // self.batch_size)

    def rows(self, step: int) -> int:
        """The number of rows in the batch of a step."""
        return len(self.batch(step)[0])

    def batch(self, step: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The batch of a step."""
        start = step % self.batches * self.batch_size
        return self.x[start : start + self.batch_size], self.y[start : start + self.batch_size]

    def reordered(self, random: np.random.Generator) -> Data:
        """The same rows in the same batches, within each in another order."""
        starts = range(0, len(self.x), self.batch_size)
        order = np.concatenate(
            [start + random.permutation(len(self.x[start : start + self.batch_size])) for start in starts]
        )
        return Data(self.x[order], self.y[order], self.batch_size)

    def divisible(self, replicas: int) -> Data:
        """The same data without the rows of the last batch that cannot be divided among ``replicas``."""
        left = len(self.x) % self.batch_size
        rows = len(self.x) - left % replicas
        return Data(self.x[:rows], self.y[:rows], self.batch_size)

    def dataset(self) -> Any:
        """The batches, repeated without end; TensorFlow divides each among the workers."""
        dataset = tf.data.Dataset.from_tensor_slices(self.arrays).batch(self.batch_size).repeat()
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        return not_tuned(dataset.with_options(options))


def not_tuned(dataset: Any) -> Any:
    """The same dataset without TensorFlow's thread that tunes it, for which a deleted iterator may wait a minute."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def row_digests(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[str, ...]:
    """A short text for each row, equal for equal rows."""
    return tuple(
        hashlib.blake2b(np.ascontiguousarray(one).tobytes() + other.tobytes(), digest_size=8).hexdigest()
        for one, other in zip(x, y, strict=True)
    )
