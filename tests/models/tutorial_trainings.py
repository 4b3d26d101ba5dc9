"""The trainings of TensorFlow's tutorials on distribution, on small images, each beside one with a common fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.distribute import Training
from harness.faults.trainings import same_reader

ROWS, SIDE, CLASSES = 20, 12, 10


def images() -> tuple[Any, Any]:
    """20 images in gray and their labels: batches of 8, 8 and 4."""
    random = np.random.default_rng(0)
    x = random.uniform(size=(ROWS, SIDE, SIDE, 1)).astype(np.float32)
    return x, random.integers(0, CLASSES, ROWS)


def _digits(regularizer: str | None = None) -> Any:
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 1)),
            layers.Conv2D(8, 3, activation="relu", kernel_regularizer=regularizer),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, activation="relu", kernel_regularizer=regularizer),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )


def _losses() -> Any:
    import tensorflow as tf

    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def keras_fit() -> Training:
    """tutorials/distribute/keras: a convolutional model, Adam, accuracy."""
    import tensorflow as tf

    return Training(_digits(), _losses(), tf.keras.optimizers.Adam(0.01), ["accuracy"])


def keras_fit_with_a_loss_of_one_number() -> Training:
    """The loss as a function that takes the mean itself."""
    import tensorflow as tf

    made = keras_fit()

    def cross_entropy(y: Any, logits: Any) -> Any:
        return tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True))

    return Training(made.model, cross_entropy, made.optimizer, made.metrics)


def _custom(total: Callable[[Any, Any, Any], Any]) -> Training:
    import tensorflow as tf

    model, optimizer = _digits("l2"), tf.keras.optimizers.Adam(0.01)
    per_example = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def step(x: Any, y: Any, rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = total(per_example(y, model(x, training=True)), rows, model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, gradients

    return Training(model, _losses(), optimizer, step=step)


def custom_training() -> Training:
    """tutorials/distribute/custom_training: the losses of the rows by the size of the whole batch."""
    import tensorflow as tf

    def total(losses: Any, rows: Any, added: Any) -> Any:
        return tf.nn.compute_average_loss(losses, global_batch_size=rows) + tf.nn.scale_regularization_loss(
            tf.add_n(added)
        )

    return _custom(total)


def custom_training_with_the_mean_of_a_replica() -> Training:
    """What the tutorial warns of: the mean over the replica's own rows."""
    import tensorflow as tf

    return _custom(lambda losses, _, added: tf.reduce_mean(losses) + tf.add_n(added))


def several_workers() -> Training:
    """tutorials/distribute/multi_worker_with_keras: the same model, by plain SGD."""
    import tensorflow as tf

    return Training(_digits(), _losses(), tf.keras.optimizers.SGD(0.1))


def several_workers_that_read_the_same() -> Training:
    """Each worker reads from the start of the data."""
    made = several_workers()
    return Training(made.model, made.loss, made.optimizer, input=same_reader)


def dtensor_mlp() -> Training:
    """tutorials/distribute/dtensor_ml_tutorial: a perceptron with a layout."""
    import tensorflow as tf

    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 1)),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )
    return Training(model, _losses(), tf.keras.optimizers.SGD(0.1))
