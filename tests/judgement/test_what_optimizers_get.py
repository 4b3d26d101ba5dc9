"""A single optimizer step with a wrong sum of gradients is not called one step for each shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, colocate_gradients, verify
from harness.faults.samples import sample

X, Y = sample(12, 6), sample(12, 3, seed=5)
TERM = "A term that depends on variables alone, such as a regulariser, is counted"
CLIPPED = "Each shard's gradients are clipped or changed in another nonlinear way before they are added up"
MEAN = "The shards' gradients are added up although each is a mean"
IN_TURN = "The optimizer is applied"


def squares(x: Any, y: Any, w: Any) -> Any:
    return tf.reduce_sum(tf.square(x @ w - y)) / 12.0


def penalty(w: Any) -> Any:
    return 0.01 * tf.nn.l2_loss(w)


def penalised(x: Any, y: Any, w: Any) -> Any:
    return squares(x, y, w) + penalty(w)


def averaged(x: Any, y: Any, w: Any) -> Any:
    return tf.reduce_mean(tf.square(x @ w - y))


Loss = Callable[[Any, Any, Any], Any]
Change = Callable[[Any], Any]


def as_it_is(gradient: Any) -> Any:
    return gradient


def clipped(gradient: Any) -> Any:
    return tf.clip_by_norm(gradient, 0.5)


def gradient_of(loss: Loss, x: Any, y: Any, w: Any) -> tuple[Any, Any]:
    with tf.GradientTape() as tape:
        value = loss(x, y, w)
    return tape.gradient(value, w), value


def optimizer(momentum: float, w: Any) -> Any:
    made = tf.keras.optimizers.SGD(0.1, momentum=momentum)
    made.build([w])
    return made


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("whole", "change", "of_shard", "of_each", "joined", "words"),
    [
        (penalised, as_it_is, penalised, as_it_is, as_it_is, TERM),
        (squares, clipped, squares, clipped, as_it_is, CLIPPED),
        (averaged, as_it_is, averaged, as_it_is, as_it_is, MEAN),
        (squares, clipped, squares, as_it_is, clipped, ""),
    ],
    ids=["penalty", "clipped", "means", "right"],
)
def test_a_wrong_sum_is_not_called_several_steps(
    devices: Devices,
    momentum: float,
    whole: Loss,
    change: Change,
    of_shard: Loss,
    of_each: Change,
    joined: Change,
    words: str,
) -> None:
    w = tf.Variable(sample(6, 3, seed=1), name="w")
    sgd = optimizer(momentum, w)

    def reference(x: Any, y: Any) -> Any:
        gradient, value = gradient_of(whole, x, y, w)
        sgd.apply([change(gradient)], [w])
        return value

    @colocate_gradients
    def parallel(x: Any, y: Any) -> Any:
        gradients, values = [], []
        for device, rows, wanted in zip(devices, tf.split(x, len(devices)), tf.split(y, len(devices)), strict=True):
            with tf.device(device.name):
                gradient, value = gradient_of(of_shard, rows, wanted, w)
                gradients.append(of_each(gradient))
                values.append(value)
        with tf.device(devices.host):
            sgd.apply([joined(tf.add_n(gradients))], [w])
            return tf.add_n(values)

    found = verify(parallel, reference, {"x": X, "y": Y}, devices=devices, variables=[w])
    assert found.verdict is (Verdict.FAIL if words else Verdict.PASS), found
    assert found.reason.startswith(words), found


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_several_steps_are_called_so(devices: Devices, momentum: float) -> None:
    w = tf.Variable(sample(6, 3, seed=1), name="w")
    sgd = optimizer(momentum, w)

    def reference(x: Any, y: Any) -> Any:
        gradient, value = gradient_of(squares, x, y, w)
        sgd.apply([gradient], [w])
        return value

    @colocate_gradients
    def parallel(x: Any, y: Any) -> Any:
        made = []
        for device, rows, wanted in zip(devices, tf.split(x, len(devices)), tf.split(y, len(devices)), strict=True):
            with tf.device(device.name):
                made.append(gradient_of(squares, rows, wanted, w))
        with tf.device(devices.host):
            for gradient, _ in made:
                sgd.apply([gradient], [w])
            return tf.add_n([value for _, value in made])

    found = verify(parallel, reference, {"x": X, "y": Y}, devices=devices, variables=[w])
    assert found.reason.startswith(IN_TURN), found
