"""The table of derivatives is what TensorFlow's gradient functions really make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf
from sample_programs import function

from harness import DeviceName
from harness.evidence.bodies import Body, Graph, node_of, open_bodies
from harness.evidence.derivatives import derivative_of, may_begin, may_go_on, may_make, reads_output
from harness.evidence.marks import FORWARD_ATTRIBUTE
from harness.evidence.recorder import record

pytestmark = pytest.mark.devices(min=4, kind=["logical-cpu", "gpu"])

#: Types that no link is made by, and that do not belong to the gradient of one op alone.
_LEFT_OUT = frozenset({"Const", "Identity", "StopGradient"})

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: tf.tanh(x) + tf.sigmoid(x) * tf.exp(x) - tf.sqrt(x) / tf.math.rsqrt(x),
    "activations": lambda x: tf.nn.relu(x) + tf.nn.elu(x) + tf.nn.selu(x) + tf.nn.softplus(x) + tf.nn.leaky_relu(x),
    "trigonometry": lambda x: tf.sin(x) + tf.cos(x) + tf.tan(x) + tf.atan(x) + tf.asinh(x) + tf.cosh(x),
    "logarithms": lambda x: tf.math.log(x) + tf.math.log1p(x) + tf.math.expm1(x) + tf.math.erf(x) + tf.square(x),
    "softmax": lambda x: tf.nn.softmax(x) + tf.nn.log_softmax(x),
    "broadcasting": lambda x: (x + x[0]) * x[0] - x[0] / tf.maximum(x, x[0]) + x ** x[0],
    "reductions": lambda x: tf.reduce_sum(x, 1) + tf.reduce_mean(x, 1) + tf.reduce_max(x, 1) + tf.reduce_prod(x, 1),
    "shapes": lambda x: tf.reshape(tf.transpose(tf.tile(tf.expand_dims(x, 1), [1, 2, 1]), [0, 2, 1]), [-1, 4]),
    "slices": lambda x: tf.concat([x[:, 1:3], tf.pad(x, [[0, 0], [1, 1]])], 1) + tf.gather(x, [0] * 10, axis=1),
    "splits": lambda x: tf.stack([*tf.split(x, 2, 1), *tf.unstack(tf.reshape(x, [2, -1, 3]))[:0]]),
    "products": lambda x: tf.matmul(tf.matmul(x, x, transpose_b=True), x) + tf.einsum("ij,kj,kl->il", x, x, x),
    "batched": lambda x: tf.matmul(tf.reshape(x, [-1, 2, 3]), x[:3, :]),
    "selection": lambda x: tf.where(x > 0.5, x, -x) + tf.cumsum(x, 1) + tf.reverse(x, [1]) + tf.abs(x),
    "convolution": lambda x: tf.nn.conv2d(
        tf.reshape(x, [-1, 3, 2, 1]), tf.reshape(x, [2, 2, 1, -1])[..., :2], 1, "SAME"
    ),
    "pooling": lambda x: (
        tf.nn.max_pool2d(tf.reshape(x, [-1, 3, 2, 1]), 2, 1, "SAME")
        + tf.nn.avg_pool2d(tf.reshape(x, [-1, 3, 2, 1]), 2, 1, "SAME")
    ),
    "bias": lambda x: tf.nn.bias_add(x, x[0]) + tf.nn.l2_normalize(x, 1),
}


def _learned(fn: Callable[[Any], Any], shape: tuple[int | None, int]) -> Iterator[tuple[str, str, str | None, bool]]:
    """(forward type, backward type, type of a backward op that it reads or ``None``, reads the forward op's output)."""

    @function(input_signature=[tf.TensorSpec(shape)], autograph=False)
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = tf.raw_ops.Cosh(x=fn(x))
        return tape.gradient(result, x)

    with record() as recording:
        step(tf.random.stateless_uniform([4, 6], [1, 2], 0.1, 0.9))
    for collected in recording.graphs:
        graph = Graph.of(collected.before)
        for body in open_bodies(Body("", DeviceName(), list(graph.nodes), "graph"), graph.library):
            yield from _of_body(body)


def _of_body(body: Body) -> Iterator[tuple[str, str, str | None, bool]]:
    forward = {
        node.name: node.attr[FORWARD_ATTRIBUTE].s.decode()
        for node in body.nodes
        if FORWARD_ATTRIBUTE in node.attr and node.op not in _LEFT_OUT
    }
    for name, of in forward.items():
        if of not in body.by_name:
            continue
        node, forward_type = body.by_name[name], body.by_name[of].op
        yield forward_type, node.op, None, False
        for text in node.input:
            maker = node_of(text)
            if maker == of:
                yield forward_type, node.op, None, True
            elif forward.get(maker) == of:
                yield forward_type, node.op, body.by_name[maker].op, False


@pytest.mark.cases(6)
@pytest.mark.parametrize("rows", [4, None])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_tensorflow_makes_is_in_the_table(name: str, rows: int | None) -> None:
    learned = set(_learned(FUNCTIONS[name], (rows, 6)))
    assert len(learned) > 4
    for forward, backward, maker, output in learned:
        if derivative_of(forward) is None:
            continue
        assert may_make(forward, backward), f"the gradient of {forward} has a {backward}"
        assert not output or reads_output(forward), f"the gradient of {forward} reads its output"
        assert maker is None or may_go_on(forward, maker, backward), (
            f"in that of {forward} a {backward} reads a {maker}"
        )


def test_what_the_table_leaves_out_is_refused() -> None:
    assert may_begin("Tanh", "TanhGrad")
    assert not may_make("Tanh", "ReluGrad")
    assert may_begin("Mean", "Reshape")
    assert may_go_on("Mean", "Tile", "RealDiv")
    assert not may_begin("Mean", "RealDiv")
    assert not may_go_on("Mean", "RealDiv", "Tile")
    assert reads_output("Tanh")
    assert not reads_output("Mul")


def test_of_a_type_that_the_table_does_not_have_anything_is_thinkable() -> None:
    assert derivative_of("MyOwnOp") is None
    assert may_make("MyOwnOp", "MatMul")
    assert may_begin("MyOwnOp", "MatMul")
    assert may_go_on("MyOwnOp", "MatMul", "Exp")
    assert reads_output("MyOwnOp")
