"""Programs to trace, each with what there is to say about it, and what tests ask of a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from harness import DeviceName, Trace
from harness.evidence.arithmetic import computes
from harness.evidence.op import Op

RANDOM = np.random.default_rng(11)
_ROWS = RANDOM.normal(size=(4, 3)).astype(np.float32)
_IMAGES = RANDOM.normal(size=(4, 8, 8, 2)).astype(np.float32)


def rows() -> tf.Tensor:
    return tf.constant(_ROWS)


def images() -> tf.Tensor:
    return tf.constant(_IMAGES)


def variable(*shape: int) -> tf.Variable:
    return tf.Variable(RANDOM.normal(size=shape).astype(np.float32))


def function(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``tf.function`` as a decorator that has a type."""
    return tf.function(**options)  # type: ignore[no-any-return]


def kind() -> str:
    """The kind of the session's devices."""
    return "GPU" if tf.config.list_logical_devices("GPU") else "CPU"


def on(device: int) -> Any:
    return tf.device(f"/{kind()}:{device}")


def place(device: DeviceName) -> str:
    """What a device of a session on GPUs is called on CPUs; the CPU beside GPUs is the host."""
    return f"CPU:{device.index}" if device.kind == kind() else "host"


def over_two(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``fn`` of one half of the rows on CPU:1 and of the other on CPU:2."""

    def split_and_join(x: Any) -> Any:
        results = []
        for device, part in enumerate(tf.split(x, 2), start=1):
            with on(device):
                results.append(fn(part))
        return tf.concat(results, 0)

    return split_and_join


def taped(fn: Callable[[Any], Any], variables: Sequence[Any] = ()) -> Callable[[Any], Any]:
    """``fn`` with the gradient of its result, the tape played back outside of any scope: on CPU:0."""

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = fn(x)
        return result, tape.gradient(result, [x, *variables])

    return step


def by_name(trace: Trace) -> dict[str, Op]:
    names = {op.name: op for op in trace.ops}
    assert len(names) == len(trace.ops), "two ops have one name"
    return names


def gradient_ops(trace: Trace) -> list[Op]:
    """The backward ops that compute and that ran; sums of gradients belong to no single forward op."""
    return [
        op
        for op in trace.ops
        if op.role == "gradient" and op.device and computes(op) and "AddN" not in (op.type, *op.name.split("_"))
    ]


def unlinked(trace: Trace) -> list[Op]:
    return [op for op in gradient_ops(trace) if op.forward is None]


def facts(trace: Trace) -> dict[str, tuple[Any, ...]]:
    """What has to be the same in each trace of one function."""
    return {op.name: (op.type, op.device, op.requested, op.role, op.forward, op.inputs) for op in trace.ops}


def where(trace: Trace, op_type: str, role: str = "forward") -> list[str]:
    """The devices that ops of this type ran on, in order."""
    return [place(op.device) if op.device else "-" for op in trace.ops if op.type == op_type and op.role == role]


def dense(weights: Any, bias: Any) -> Callable[[Any], Any]:
    return lambda x: tf.nn.relu(tf.tanh(tf.nn.bias_add(tf.matmul(x, weights), bias)) + 1.0) * 2.0


def loop(weights: Any) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        def body(index: Any, state: Any) -> Any:
            with on(2):
                return index + 1, tf.tanh(tf.matmul(state, weights)) * 2.0

        return tf.while_loop(lambda index, _: index < 3, body, [0, x])[1]

    return fn


def branch(weights: Any) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        with on(1):
            return tf.cond(
                tf.reduce_sum(x) > -1e9,
                lambda: tf.exp(tf.matmul(x, weights)),
                lambda: tf.sin(tf.matmul(x, weights)) * 3.0,
            )

    return fn


def case(x: Any) -> Any:
    with on(3):
        index = tf.cast(tf.reduce_sum(x) > -1e9, tf.int32)
        return tf.switch_case(index, [lambda: tf.exp(x), lambda: tf.sin(x) * 3.0])


def with_autograph(x: Any) -> Any:
    for _ in tf.range(3):
        if tf.reduce_sum(x) > 100.0:
            x = tf.exp(x)
        else:
            with on(3):
                x = tf.tanh(x) + x
    return x


def mapped(x: Any) -> Any:
    with on(2):
        return tf.map_fn(lambda row: tf.tanh(row) * 2.0, x)


def many(weights: Any) -> Callable[[Any], Any]:
    """Ops whose gradients are made of several ops, of ops of the same types, or pass through unchanged."""

    def fn(x: Any) -> Any:
        h = tf.nn.softplus(tf.matmul(x, weights)) / (1.0 + tf.abs(x[:, :1]))
        h = h - tf.reduce_mean(h, -1, keepdims=True)
        h = tf.maximum(h, 0.1) * tf.sqrt(tf.abs(h) + 1.0)
        h = tf.concat([h, h**2], 1)
        h = tf.einsum("ij,jk->ik", tf.gather(h, [0, 3, 1], axis=1), weights)
        h = tf.reduce_max(h, axis=1, keepdims=True) + tf.reduce_prod(h, 1, keepdims=True) + tf.nn.log_softmax(h)
        h = tf.where(h > 0, h, tf.math.expm1(h))
        h = tf.cumsum(tf.reshape(tf.pad(h, [[0, 0], [1, 1]]), [-1, 7]), 1)
        return tf.nn.elu(tf.transpose(tf.transpose(h)))

    return fn


def custom(x: Any) -> Any:
    """An Exp with a gradient of its own: the dy times Exp times Cos of its input."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def region(part: Any) -> Any:
        result = tf.exp(part)
        return tf.identity(result), lambda upstream: upstream * result * tf.cos(part)

    return tf.tanh(region(tf.sin(x)))


def convolutional() -> Any:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(5, activation="tanh"),
            layers.LayerNormalization(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.build((None, 8, 8, 2))
    return model
