"""Hand-written towers whose tape is around them, so that TensorFlow runs their backward ops on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from harness import Devices, Trace
from harness.evidence.arithmetic import gradients_elsewhere

Program = Callable[[], Any]


def numbers(*shape: int, seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype("float32") / 2)


def elsewhere(trace: Trace) -> list[str]:
    """Backward ops that ran on another device than their forward ops."""
    return [f"{op.name} ({op.type}) on {op.device}, not {forward.device}" for op, forward in gradients_elsewhere(trace)]


def on_each(devices: Devices, tower: Callable[[Any], Any], x: Any) -> list[Any]:
    """``tower`` of each share of the rows, each on its device."""
    results = []
    for device, rows in zip(devices, tf.split(x, len(devices)), strict=True):
        with tf.device(device.name):
            results.append(tower(rows))
    return results


def loss_of(parts: Sequence[Any]) -> Any:
    return tf.reduce_mean(tf.concat(parts, axis=0) ** 2)


class Towers:
    """A dense layer with shared variables, and one program for each thing that a gradient can go through."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self.x = numbers(2 * len(devices), 6, seed=1)
        self.w = tf.Variable(numbers(6, 6))
        self.b = tf.Variable(numbers(6))
        self.table = tf.Variable(numbers(20, 6))
        self.inner = tf.function(self.towers)
        self.nested = tf.function(self.dense)

    def dense(self, x: Any) -> Any:
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, self.w), self.b))
        return tf.tanh(tf.matmul(hidden, self.w)) + hidden

    def towers(self, x: Any) -> Any:
        return tf.concat(on_each(self.devices, self.dense, x), axis=0)

    def gradients(self, tower: Callable[[Any], Any], sources: Sequence[Any]) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(on_each(self.devices, tower, self.x))
        return tape.gradient(loss, sources)

    def first_order(self) -> Any:
        return self.gradients(self.dense, [self.w, self.b])

    def first_op_of_a_tower(self) -> Any:
        # The same op on the same inputs everywhere, and the tape keeps neither its outputs nor their devices.
        with tf.GradientTape() as tape:
            parts = []
            for device in self.devices:
                with tf.device(device.name):
                    parts.append(tf.matmul(self.x, self.w))
            loss = loss_of(parts)
        return tape.gradient(loss, [self.w])

    def second_order(self) -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                loss = loss_of(on_each(self.devices, self.dense, self.x))
            of_w, of_b = tape.gradient(loss, [self.w, self.b])
            size = tf.reduce_sum(of_w**2) + tf.reduce_sum(of_b**3)
        return outer.gradient(size, [self.w, self.b])

    def third_order(self) -> Any:
        with tf.GradientTape() as outermost:
            with tf.GradientTape() as outer:
                with tf.GradientTape() as tape:
                    loss = loss_of(on_each(self.devices, lambda x: tf.sin(tf.matmul(x, self.w)), self.x))
                second = tf.reduce_sum(tape.gradient(loss, self.w) ** 2)
            third = tf.reduce_sum(outer.gradient(second, self.w) ** 2)
        return outermost.gradient(third, self.w)

    def persistent_tape(self) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            y = self.towers(self.x)
            loss, other = tf.reduce_mean(y**2), tf.reduce_sum(tf.sin(y))
        return [*tape.gradient(loss, [self.w, self.b]), *tape.gradient(other, [self.w, self.b])]

    def function_of_towers(self) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.inner(self.x) ** 2)
        return tape.gradient(loss, [self.w, self.b])

    def function_in_a_tower(self) -> Any:
        return self.gradients(self.nested, [self.w, self.b])

    def conditions(self) -> Any:
        def tower(x: Any) -> Any:
            return tf.cond(
                tf.reduce_sum(x) > 0, lambda: tf.tanh(tf.matmul(x, self.w)), lambda: tf.sin(tf.matmul(x, self.w))
            )

        return self.gradients(tower, [self.w])

    def loops(self) -> Any:
        def tower(x: Any) -> Any:
            return tf.while_loop(
                lambda count, _: count < 3, lambda count, y: (count + 1, tf.tanh(tf.matmul(y, self.w))), (0, x)
            )[1]

        return self.gradients(tower, [self.w])

    def custom_gradients(self) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def steep(x: Any) -> Any:
            y = tf.tanh(x)
            return y, lambda upstream: upstream * (1 - y * y) * 2.0

        return self.gradients(lambda x: steep(tf.matmul(x, self.w)), [self.w])

    def recomputed(self) -> Any:
        again = tf.recompute_grad(lambda x: tf.tanh(tf.matmul(tf.sin(x), x, transpose_b=True)))
        return self.gradients(lambda x: again(tf.matmul(x, self.w)), [self.w])

    def sparse(self) -> Any:
        ids = tf.constant([[1, 2], [2, 2]] * len(self.devices))
        with tf.GradientTape() as tape:
            parts = on_each(self.devices, lambda own: tf.tanh(tf.gather(self.table.read_value(), own)), ids)
            loss = loss_of(parts)
        return tf.convert_to_tensor(tape.gradient(loss, self.table))

    def looked_up_where_the_variable_is(self) -> Any:
        # Whatever device is requested, TensorFlow runs the lookup, which has a backward op, beside its variable.
        places = tf.constant([[[1, 2]], [[3, 4]]] * len(self.devices))
        with tf.GradientTape() as tape:
            loss = loss_of(on_each(self.devices, lambda own: tf.sin(tf.gather_nd(self.table, own)), places))
        return tf.convert_to_tensor(tape.gradient(loss, self.table))

    def targets_of_all_kinds(self) -> Any:
        # A variable, which is a source too, and a whole number, through which no gradient goes.
        with tf.GradientTape() as tape:
            loss = loss_of(on_each(self.devices, self.dense, self.x))
            rounded = tf.cast(loss * 10, tf.int32)
        return tape.gradient([loss, self.w, rounded, tf.constant(3)], [self.w, self.b])

    def gradient_penalty(self) -> Any:
        def tower(x: Any) -> Any:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.tanh(tf.matmul(x, self.w)))
            return inner.gradient(y, x)

        return self.gradients(tower, [self.w])

    def update_differentiated(self) -> Any:
        # Meta-learning: the outer gradient goes through a step of training.
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                loss = loss_of(on_each(self.devices, lambda x: tf.tanh(tf.matmul(x, self.w)), self.x))
            trained = self.w - 0.1 * tape.gradient(loss, self.w)
            loss = loss_of(on_each(self.devices, lambda x: tf.tanh(tf.matmul(x, trained)), self.x))
        return outer.gradient(loss, self.w)

    def recording_stopped(self) -> Any:
        with tf.GradientTape() as tape:
            parts = on_each(self.devices, self.dense, self.x)
            with tape.stop_recording():
                scale = tf.reduce_sum(tf.concat(parts, axis=0))
            loss = loss_of(parts) * scale
        return tape.gradient(loss, [self.w, self.b])

    def unused_outputs(self) -> Any:
        # TensorFlow makes zeros for the gradient of the piece that nobody uses.
        return self.gradients(lambda x: tf.unstack(tf.matmul(x, self.w), num=2)[1][None], [self.w])

    def jacobian(self) -> Any:
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.concat(on_each(self.devices, self.dense, self.x), axis=0), axis=0)
        return tape.jacobian(y, self.w)

    def targets_on_their_devices(self) -> Any:
        with tf.GradientTape() as tape:
            parts = on_each(self.devices, self.dense, self.x)
        return tape.gradient(parts, [self.w, self.b])

    def forward_over_reverse(self) -> Any:
        with tf.autodiff.ForwardAccumulator(self.w, tf.ones_like(self.w)) as forward:
            gradient = self.first_order()
        return forward.jvp(gradient)


PROGRAMS = [
    Towers.first_order,
    Towers.first_op_of_a_tower,
    Towers.second_order,
    Towers.third_order,
    Towers.persistent_tape,
    Towers.function_of_towers,
    Towers.function_in_a_tower,
    Towers.conditions,
    Towers.loops,
    Towers.custom_gradients,
    Towers.recomputed,
    Towers.sparse,
    Towers.looked_up_where_the_variable_is,
    Towers.targets_of_all_kinds,
    Towers.gradient_penalty,
    Towers.update_differentiated,
    Towers.recording_stopped,
    Towers.unused_outputs,
    Towers.targets_on_their_devices,
]
