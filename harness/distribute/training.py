"""What is trained: a Keras model with its loss, its optimizer and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import TrainingError

#: What must be there, for messages.
ACCEPTED = "a harness.distribute.Training(model, loss, optimizer, metrics=())"


@dataclass(frozen=True)
class Training:
    """What a ``build`` function returns. It is called in the strategy's scope, once in each process and for each loop.

    Attributes:
        model: a Keras 3 model with one input tensor and one output tensor.
        loss: a ``keras.losses.Loss``, the name of one, or a function of the true and the predicted values.
        optimizer: a Keras 3 optimizer that no variables have been given to.
        metrics: Keras metrics.
        step: one replica's part of a step of the custom loop, in place of the harness's own: ``step(x, y, rows)`` gets
            the replica's rows and how many there are in the whole batch (int32 scalar), and returns the replica's
            share of the loss (a scalar; the shares are added up) and its gradients, in the order of
            ``model.trainable_variables`` (``None``: not to be compared). It applies them itself.
        input: the data that a worker reads in the custom loop, in place of the batches of ``data`` divided by
            TensorFlow: ``input(context, arrays, rows)`` gets a ``tf.distribute.InputContext``, the arrays, and the rows
            of a whole batch, and returns a ``tf.data.Dataset`` of what one replica works with in each step.
        counters: integer variables, 0 at first, to which ``step`` adds 1. Under ``parameter_server`` they must hold the
            number of steps in the end: no update is lost.
    """

    model: Any
    loss: Any
    optimizer: Any
    metrics: Sequence[Any] = ()
    step: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    input: Callable[[Any, tuple[Any, ...], int], Any] | None = None
    counters: Sequence[Any] = ()


def checked(made: object, name: str) -> Training:
    """``made``, which the function ``name`` returned, if it can be trained.

    Raises:
        TrainingError: it cannot.
    """
    import tensorflow as tf

    if not isinstance(made, Training):
        raise TrainingError(f"{name} returned a {type(made).__name__}; accepted: {ACCEPTED}")
    if not isinstance(made.model, tf.keras.Model):
        raise TrainingError(f"{name}: model is a {type(made.model).__name__}; accepted: a Keras model")
    if not isinstance(made.optimizer, tf.keras.optimizers.Optimizer):
        raise TrainingError(
            f"{name}: optimizer is a {type(made.optimizer).__name__}; accepted: a Keras optimizer, such as "
            "keras.optimizers.SGD(0.1)"
        )
    if made.optimizer.built:
        raise TrainingError(f"{name}: the optimizer has its variables already; make a new one in each call")
    return made
