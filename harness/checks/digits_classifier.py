"""Trains a Keras convolutional classifier on real images, sharded and not: both trainings match, and both learn.

The images are 1797 handwritten digits of 8 by 8 pixels: the test set of E. Alpaydin and C. Kaynak, Optical Recognition
of Handwritten Digits, UCI Machine Learning Repository, 1998 (doi:10.24432/C50P49, CC BY 4.0), in ``digits.csv.gz``.
The activations are smooth and the optimizer is linear in the gradient, so that rounding errors stay bounded. Behind a
kink, or under Adam's division by a vanishing gradient, a difference in the last bit can grow without bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.checking.check import Check, CheckContext
from harness.checking.tally import Tally
from harness.checks.trajectory import Trajectory, compare, train
from harness.devices.device import Devices
from harness.lazy import tf
from harness.plural import plural
from harness.records import CheckResult

#: A line for each image: 64 pixels from 0 to 16, row by row, and the digit. Not from scikit-learn, which has them too:
#: where that is installed, Keras imports it, and each ``import tensorflow`` takes a fifth longer.
_DIGITS = Path(__file__).with_name("digits.csv.gz")
STEPS = 60
#: Images a step: no multiple of 4 or 8, so that shards are uneven.
BATCH = 66
#: Images to learn from; the other 397 are for the test.
TRAINING_IMAGES = 1400
LEARNING_RATE, MOMENTUM = 0.1, 0.9
#: Part of the test images that must be recognised. Seeds reach 0.94 to 0.98; a guess is right for 0.1.
SUFFICIENT_ACCURACY = 0.9


def run(context: CheckContext) -> CheckResult:
    """Train three times: sharded, on one device, and on one device in float64; and verify one step."""
    from harness.judgement.verify import verify
    from harness.parallel.data import make_parallel

    devices = context.devices
    images, labels = load_images(context.seed)
    tally = Tally()
    model = _model("float32", context.seed)
    loss = _loss_per_image(model)
    batch = {"image": images[:BATCH], "label": labels[:BATCH]}
    tally.add(
        verify(make_parallel(loss, devices), loss, batch, devices=devices, variables=model.trainable_variables),
        "one step",
    )
    tally.require_devices(devices)

    sharded, sharded_accuracy = _train(devices, "float32", context.seed)
    single, single_accuracy = _train(None, "float32", context.seed)
    exact, _ = _train(None, "float64", context.seed)
    compare(sharded, single, exact, tally)
    _judge_accuracy("sharded", sharded_accuracy, tally)
    _judge_accuracy("single-device", single_accuracy, tally)
    return tally.result(
        f"{STEPS} steps on {plural(len(devices), 'device')} match the single-device run; accuracy on "
        f"{len(images) - TRAINING_IMAGES} test images: {sharded_accuracy:.1%} ({single_accuracy:.1%} on one device)",
        "look at the first step that differs: likely causes are a plain mean of the shards' means, and dropped images",
    )


def load_images(seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """The digits, shuffled: images ``[1797, 8, 8, 1]`` with values from 0 to 1, and labels ``[1797]`` from 0 to 9."""
    rows = np.loadtxt(_DIGITS, delimiter=",", dtype=np.int32)
    pixels, labels = rows[:, :-1].reshape(-1, 8, 8, 1), rows[:, -1]
    order = np.random.default_rng(seed).permutation(len(rows))
    return (pixels[order] / 16).astype(np.float32), labels[order]


def _model(dtype: str, seed: int) -> Any:
    """The classifier. Its first weights depend on ``seed`` alone: they are drawn in float32 for every dtype."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((8, 8, 1), dtype=dtype),
            layers.Conv2D(8, 3, activation="tanh", dtype=dtype),
            layers.Conv2D(12, 3, activation="tanh", dtype=dtype),
            layers.Flatten(dtype=dtype),
            layers.Dense(10, dtype=dtype),
        ]
    )
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        fan_in = max(1, int(np.prod(variable.shape[:-1])))
        drawn = random.standard_normal(variable.shape) / np.sqrt(fan_in)
        is_bias = len(variable.shape) == 1
        variable.assign(np.zeros_like(drawn) if is_bias else drawn.astype(np.float32))
    return model


def _loss_per_image(model: Any) -> Any:
    """The cross-entropy of each image: ``image`` ``[rows, 8, 8, 1]`` and ``label`` ``[rows]`` to ``[rows]``."""

    def loss(image: Any, label: Any) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(label, model(image, training=True))

    return loss


def _train(devices: Devices | None, dtype: str, seed: int) -> tuple[Trajectory, float]:
    """Train sharded over ``devices``, or (``None``) on the default device. Also the accuracy on the test images."""
    images, labels = load_images(seed)
    images = images.astype(dtype)
    model = _model(dtype, seed)
    chosen = [np.arange(number * BATCH, (number + 1) * BATCH) % TRAINING_IMAGES for number in range(STEPS)]
    batches = ({"image": images[rows], "label": labels[rows]} for rows in chosen)
    optimizer = tf.keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
    trajectory = train(_loss_per_image(model), model.trainable_variables, optimizer, batches, devices)
    recognised = np.argmax(model(images[TRAINING_IMAGES:]).numpy(), axis=1) == labels[TRAINING_IMAGES:]
    return trajectory, float(recognised.mean())


def _judge_accuracy(name: str, accuracy: float, tally: Tally) -> None:
    tally.measured[f"accuracy_{name.replace('-', '_')}"] = accuracy
    if not accuracy >= SUFFICIENT_ACCURACY:
        message = f"the {name} run did not learn"
        tally.fail(
            "value", f"test accuracy, {name} run", f"at least {SUFFICIENT_ACCURACY:.0%}", f"{accuracy:.1%}", message
        )


CHECK = Check(
    id="digits-classifier",
    title="a convolutional classifier trained on real images",
    proves=f"{STEPS} training steps of a Keras classifier match the single-device run in losses, gradients and "
    f"weights, and at least {SUFFICIENT_ACCURACY:.0%} of unseen images are classified correctly",
    minimum_devices=2,
    typical_s=3.2,
    run=run,
)
