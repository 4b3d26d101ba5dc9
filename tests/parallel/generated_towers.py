"""Random towers: layers drawn one by one, with shared variables, and gradients taken in one of several ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tower_programs import loss_of, numbers, on_each

from harness import Devices

Layer = Callable[[Any], Any]
_WIDTH = 4
_ROWS = 3
_IDS = 7


class GeneratedTowers:
    """The towers of one seed. ``drawn`` says what they are made of.

    ``forward(x)`` and ``step(x)``, which takes gradients around all of the towers, run each tower on its device;
    ``forward_alone(x)`` and ``step_alone(x)`` do the same and ask for no device.
    """

    def __init__(self, devices: Devices, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._devices = devices
        # TensorFlow cannot place loops and lookups in a function that one graph calls on two devices.
        self._in_function = False
        self.variables: list[Any] = []
        self.drawn: list[str] = []
        self.x = numbers(_ROWS * len(devices), _WIDTH, seed=seed)
        self._layers = [self._layer() for _ in range(self._number(1, 5))]
        # Every program has work whose gradient is an op, and a variable that all towers share.
        self._layers.insert(self._number(0, len(self._layers) + 1), self._dense())
        ways = [self._first_order, self._first_order, self._second_order, self._both_targets, self._penalty]
        self._way = ways[self._number(0, len(ways))]
        if "recomputed" in self.drawn and self._way in (self._second_order, self._penalty):
            self._way = self._first_order  # TensorFlow has no second derivative of what it recomputes
        self.drawn.append(self._way.__name__.strip("_"))

    def _number(self, low: int, high: int) -> int:
        return int(self._random.integers(low, high))

    def _variable(self, *shape: int) -> Any:
        home = self._devices[self._number(0, len(self._devices))]
        with tf.device(home.name):
            self.variables.append(tf.Variable(numbers(*shape, seed=len(self.variables))))
        return self.variables[-1]

    def _layer(self) -> Layer:
        kinds = [
            *(self._dense, self._bias, self._residual, self._pieces, self._condition, self._convolution),
            *(self._normalised, self._normalised_at_once, self._function, self._nested_functions),
            *(self._own_gradient, self._recomputed),
        ]
        if not self._in_function:
            kinds += [self._loop, self._looked_up]
        return kinds[self._number(0, len(kinds))]()

    def _dense(self) -> Layer:
        activation = [tf.tanh, tf.nn.relu, tf.nn.gelu, tf.nn.silu, tf.nn.softmax][self._number(0, 5)]
        w = self._variable(_WIDTH, _WIDTH)
        self.drawn.append(f"dense with {activation.__name__}")
        return lambda x: activation(tf.matmul(x, w))

    def _bias(self) -> Layer:
        b = self._variable(_WIDTH)
        self.drawn.append("bias")
        return lambda x: tf.nn.bias_add(x, b)

    def _convolution(self) -> Layer:
        w = self._variable(2, 2, 1, 1)
        self.drawn.append("convolution")

        def layer(x: Any) -> Any:
            image = tf.reshape(x, [-1, 2, 2, 1])
            return tf.reshape(tf.tanh(tf.nn.conv2d(image, w, strides=1, padding="SAME")), [-1, _WIDTH])

        return layer

    def _normalised(self) -> Layer:
        scale, offset = self._variable(_WIDTH), self._variable(_WIDTH)
        self.drawn.append("batch normalisation")

        def layer(x: Any) -> Any:
            mean, variance = tf.nn.moments(x, [0])
            return tf.nn.batch_normalization(x, mean, variance, offset, scale, 0.1)

        return layer

    def _normalised_at_once(self) -> Layer:
        scale, offset = self._variable(_WIDTH), self._variable(_WIDTH)
        self.drawn.append("fused batch normalisation")

        def layer(x: Any) -> Any:
            image = tf.reshape(x, [-1, 1, 1, _WIDTH])
            normal, _, _ = tf.compat.v1.nn.fused_batch_norm(image, scale, offset, epsilon=0.1)
            return tf.reshape(normal, [-1, _WIDTH])

        return layer

    def _looked_up(self) -> Layer:
        table = self._variable(_IDS, _WIDTH)
        self.drawn.append("embedding")

        def layer(x: Any) -> Any:
            ids = tf.cast(tf.abs(x[:, :2]) * 100.0, tf.int32) % _IDS
            return tf.sin(x + tf.reduce_sum(tf.gather(table.read_value(), ids), axis=1))

        return layer

    def _function(self) -> Layer:
        before, self._in_function = self._in_function, True
        inner = self._layer()
        self._in_function = before
        self.drawn.append("in a tf.function")
        return tf.function(inner, autograph=False)  # type: ignore[no-any-return]

    def _nested_functions(self) -> Layer:
        first, second = tf.function(self._dense(), autograph=False), self._dense()
        self.drawn.append("nested tf.functions")
        return tf.function(lambda x: second(first(x)) + x, autograph=False)  # type: ignore[no-any-return]

    def _residual(self) -> Layer:
        inner = self._layer()
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

    def _own_gradient(self) -> Layer:
        inner = self._dense()
        self.drawn.append("custom gradient")

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def halved(x: Any) -> Any:
            return tf.tanh(x), lambda upstream: upstream * (1 - tf.tanh(x) ** 2) * 0.5

        return lambda x: halved(inner(x))

    def _recomputed(self) -> Layer:
        inner = self._dense()
        self.drawn.append("recomputed")
        again = tf.recompute_grad(lambda x: tf.tanh(tf.sin(x) * x))
        return lambda x: again(inner(x))

    def _tower(self, x: Any) -> Any:
        for layer in self._layers:
            x = layer(x)
        return x

    def _on_each(self, tower: Layer, x: Any) -> list[Any]:
        return on_each(self._devices, tower, x)

    def _anywhere(self, tower: Layer, x: Any) -> list[Any]:
        return [tower(rows) for rows in tf.split(x, len(self._devices))]

    def forward(self, x: Any) -> Any:
        results = self._on_each(self._tower, x)
        with tf.device(self._devices.host):
            return tf.concat(results, axis=0)

    def forward_alone(self, x: Any) -> Any:
        return tf.concat(self._anywhere(self._tower, x), axis=0)

    def step(self, x: Any) -> Any:
        return self._way(self._on_each, x)

    def step_alone(self, x: Any) -> Any:
        return self._way(self._anywhere, x)

    def gradients(self) -> Any:
        return self.step(self.x)

    def _of(self, tape: Any, loss: Any) -> list[Any]:
        grads: Sequence[Any] = tape.gradient(loss, self.variables, unconnected_gradients="zero")
        return [tf.convert_to_tensor(grad) for grad in grads]

    def _first_order(self, towers: Any, x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(towers(self._tower, x))
        return self._of(tape, loss)

    def _second_order(self, towers: Any, x: Any) -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                loss = loss_of(towers(self._tower, x))
            size = tf.add_n([tf.reduce_sum(grad**2) for grad in self._of(tape, loss)])
        return self._of(outer, size)

    def _both_targets(self, towers: Any, x: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            parts = towers(self._tower, x)
            loss, other = loss_of(parts), tf.reduce_sum(tf.sin(tf.concat(parts, axis=0)))
        return [*self._of(tape, loss), *self._of(tape, other)]

    def _penalty(self, towers: Any, x: Any) -> Any:
        def tower(rows: Any) -> Any:
            with tf.GradientTape() as inner:
                inner.watch(rows)
                y = tf.reduce_sum(self._tower(rows) ** 2)
            return inner.gradient(y, rows)

        with tf.GradientTape() as tape:
            loss = loss_of(towers(tower, x))
        return self._of(tape, loss)
