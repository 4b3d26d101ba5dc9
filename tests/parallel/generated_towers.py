"""Random towers: layers drawn one by one, with shared variables, and a gradient of the first or the second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tower_programs import loss_of, numbers, on_each

from harness import Devices

Layer = Callable[[Any], Any]
_WIDTH = 4


class GeneratedTowers:
    """The towers of one seed. ``gradients()`` takes the gradient around all of them; ``drawn`` says what they are."""

    def __init__(self, devices: Devices, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._devices = devices
        self.variables: list[Any] = []
        self.drawn: list[str] = []
        self._x = numbers(2 * len(devices), _WIDTH, seed=seed)
        self._layers = [self._layer() for _ in range(int(self._random.integers(1, 5)))]
        # Every program has work whose gradient is an op, and a variable that all towers share.
        self._layers.insert(int(self._random.integers(0, len(self._layers) + 1)), self._dense())
        self._second_order = bool(self._random.integers(0, 3) == 0)
        self.drawn.append("second order" if self._second_order else "first order")

    def _variable(self, *shape: int) -> Any:
        home = self._devices[int(self._random.integers(0, len(self._devices)))]
        with tf.device(home.name):
            self.variables.append(tf.Variable(numbers(*shape, seed=len(self.variables))))
        return self.variables[-1]

    def _layer(self) -> Layer:
        kinds = [self._dense, self._bias, self._function, self._residual, self._pieces, self._condition, self._loop]
        return kinds[int(self._random.integers(0, len(kinds)))]()

    def _dense(self) -> Layer:
        activation = [tf.tanh, tf.nn.relu, tf.nn.gelu, tf.nn.silu, tf.nn.softmax][int(self._random.integers(0, 5))]
        w = self._variable(_WIDTH, _WIDTH)
        self.drawn.append(f"dense with {activation.__name__}")
        return lambda x: activation(tf.matmul(x, w))

    def _bias(self) -> Layer:
        b = self._variable(_WIDTH)
        self.drawn.append("bias")
        return lambda x: tf.nn.bias_add(x, b)

    def _function(self) -> Layer:
        inner = self._dense()
        self.drawn.append("in a tf.function")
        return tf.function(inner, autograph=False)  # type: ignore[no-any-return]

    def _residual(self) -> Layer:
        inner = self._dense()
        self.drawn.append("added to its input")
        return lambda x: x + inner(x)

    def _pieces(self) -> Layer:
        self.drawn.append("pieces swapped")
        return lambda x: tf.concat(tf.split(x, 2, axis=1)[::-1], axis=1)

    def _condition(self) -> Layer:
        w = self._variable(_WIDTH, _WIDTH)
        self.drawn.append("condition")
        return lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(tf.matmul(x, w)), lambda: tf.tanh(x))

    def _loop(self) -> Layer:
        w = self._variable(_WIDTH, _WIDTH)
        self.drawn.append("loop")
        return lambda x: tf.while_loop(lambda n, _: n < 2, lambda n, y: (n + 1, tf.tanh(tf.matmul(y, w))), (0, x))[1]

    def _tower(self, x: Any) -> Any:
        for layer in self._layers:
            x = layer(x)
        return x

    def gradients(self) -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                loss = loss_of(on_each(self._devices, self._tower, self._x))
            grads = tape.gradient(loss, self.variables, unconnected_gradients="zero")
            size = tf.add_n([tf.reduce_sum(grad**2) for grad in grads])
        return outer.gradient(size, self.variables, unconnected_gradients="zero") if self._second_order else grads
