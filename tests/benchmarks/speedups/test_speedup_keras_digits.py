"""A step of a Keras model on the handwritten digits, split over the devices, against the same on one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from programs import SEVERAL, by_kind, compiled, held_on

import harness
from harness.checks.digits_classifier import load_images

#: Images a device; of 1797 there are.
_GPU_IMAGES, _CORE_IMAGES = 768, 128
_LEARNING_RATE = 1e-2


def _model() -> Any:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(32, 3, activation="tanh"),
            layers.Conv2D(64, 3, activation="tanh"),
            layers.Flatten(),
            layers.Dense(256, activation="tanh"),
            layers.Dense(10),
        ]
    )


@pytest.mark.devices(min=SEVERAL)
def test_training_step(speedup: Callable[..., harness.SpeedupRecord], devices: harness.Devices) -> None:
    import tensorflow as tf

    count = min(1797, len(devices) * by_kind(devices, gpu=_GPU_IMAGES, other=_CORE_IMAGES))
    images, labels = load_images(0)
    batch = [held_on(devices[0], part[:count]) for part in (images, labels)]

    def step_of(model: Any, split: bool) -> Callable[[], Any]:
        def loss_per_image(image: Any, label: Any) -> Any:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(label, model(image, training=True))

        parallel = harness.make_parallel(loss_per_image, devices) if split else loss_per_image

        def step() -> Any:
            with tf.device(devices[0].name):
                image, label = (part.read_value() for part in batch)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(parallel(image=image, label=label))
                variables = [variable.value for variable in model.trainable_variables]
                gradients = tape.gradient(loss, model.trainable_variables)
                for variable, value, gradient in zip(model.trainable_variables, variables, gradients, strict=True):
                    variable.assign(value - _LEARNING_RATE * gradient)
                return loss

        return compiled(step)

    with tf.device(devices[0].name):
        alone, together = _model(), _model()
    record = speedup(step_of(alone, split=False), step_of(together, split=True), devices=devices)
    assert record.transfers != 0
