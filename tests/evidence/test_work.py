"""The arithmetic of ops, by the shapes of their tensors."""

from __future__ import annotations

import pytest
import tensorflow as tf

from harness import trace
from harness.evidence.work import estimate

X, W, Y = (2, 8, 8, 3), (3, 3, 3, 5), (2, 6, 6, 5)


@pytest.mark.parametrize(
    ("kind", "inputs", "output"),
    [
        ("Conv2D", [X, W], Y),
        ("_FusedConv2D", [X, W, (5,)], Y),
        ("Conv2DBackpropInput", [(4,), W, Y], X),
        ("Conv2DBackpropFilter", [X, (4,), Y], W),
    ],
)
def test_the_gradients_of_a_convolution_compute_as_much_as_itself(
    kind: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]
) -> None:
    assert estimate(kind, inputs, [output]) == 2 * (2 * 6 * 6 * 5) * (3 * 3 * 3)


def test_a_depthwise_convolution_sums_over_its_window_alone() -> None:
    window, made = (3, 3, 3, 2), (2, 6, 6, 6)
    wanted = 2 * (2 * 6 * 6 * 6) * (3 * 3)
    assert estimate("DepthwiseConv2dNative", [X, window], [made]) == wanted
    assert estimate("DepthwiseConv2dNativeBackpropFilter", [X, (4,), made], [window]) == wanted


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "products"),
    [
        ("MatMul", [(4, 5), (5, 6)], (4, 6), 4 * 5 * 6),
        ("BatchMatMulV2", [(16, 4, 5), (16, 5, 6)], (16, 4, 6), 16 * 4 * 5 * 6),
        ("Einsum", [(2, 4, 5), (5, 6)], (2, 4, 6), 2 * 4 * 5 * 6),
    ],
)
def test_a_product_of_matrices_has_so_many_products(
    kind: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], products: int
) -> None:
    assert estimate(kind, inputs, [output]) == pytest.approx(2 * products)


def test_what_has_rows_of_unknown_number_is_unknown() -> None:
    assert estimate("MatMul", [(None, 5), (5, 6)], [(None, 6)]) == 0
    assert estimate("Conv2D", [(None, 8, 8, 3), W], [(None, 6, 6, 5)]) == 0
    assert estimate("Conv2DBackpropFilter", [(None, 8, 8, 3), (4,), (None, 6, 6, 5)], [W]) == 0


def test_an_op_in_a_loop_works_in_each_pass_and_its_gradient_too() -> None:
    w = tf.Variable(tf.ones((8, 8)))

    def times(number: int, x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda t, _: t < number, lambda t, h: (t + 1, tf.matmul(h, w)), (0, x))[1]

    def step(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            six = tf.reduce_sum(times(6, x))
        nested = tf.while_loop(lambda t, _: t < 3, lambda t, h: (t + 1, times(4, h)), (0, x))[1]
        scanned = tf.scan(lambda h, _: tf.matmul(h, w), tf.range(5), initializer=x)
        until = tf.while_loop(lambda h: tf.reduce_sum(h) < 9.0, lambda h: (tf.matmul(h, w),), (x,))[0]
        return [tape.gradient(six, w), nested, scanned, until]

    found = trace(tf.function(step), tf.ones((4, 8)))
    once = 2 * 4 * 8 * 8
    products = [op for op in found.ops if op.type == "MatMul"]
    assert all(found.shapes[op.name][0] in ((4, 8), (8, 8)) for op in products)
    forward = sorted(found.work[op.name] / once for op in products if op.role == "forward")
    assert forward == [1, 5, 6, 12]
    assert [found.work[op.name] / once for op in products if op.role == "gradient"] == [6, 6]


def test_a_layer_computes_as_much_in_a_graph_which_fuses_it_as_in_eager_code() -> None:
    w, bias = tf.Variable(tf.ones((24, 96))), tf.Variable(tf.ones(96))

    def layer(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), bias))

    for step in (layer, tf.function(layer)):
        found = trace(step, tf.ones((32, 24)))
        work = {op.type: found.work[op.name] for op in found.ops if op.type in ("MatMul", "BiasAdd", "Relu")}
        assert work == {"MatMul": 2 * 32 * 24 * 96, "BiasAdd": 32 * 96, "Relu": 32 * 96}
