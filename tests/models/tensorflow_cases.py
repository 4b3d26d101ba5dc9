"""Programs after TensorFlow's tests and guides: control flow, linear algebra, strings, ragged and sparse tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from model_cases import (
    Case,
    Model,
    mean_of_means,
    split,
    step,
    swapped_parts,
    towers,
    towers_on_one_device,
    towers_that_drop_rows,
)

from harness import Verdict
from harness.faults.samples import integers, sample


def program(fn: Callable[..., Any], **inputs: Any) -> Callable[[], Model]:
    """A function of the module ``tf``, a variable of 6 x 4 and the inputs."""

    def make() -> Model:
        import tensorflow as tf

        w = tf.Variable(sample(6, 4, seed=9), name="w")

        def call(**given: Any) -> Any:
            return fn(tf, w, **given)

        return (
            call,
            {name: make_input(tf) if callable(make_input) else make_input for name, make_input in inputs.items()},
            [w],
        )

    return make


_X = sample(5, 6)
_IMAGES = sample(4, 8, 8, 3)
_SQUARE = sample(5, 3, 3) + 4.0 * np.eye(3, dtype="float32")
_POSITIVE = np.matmul(_SQUARE, np.swapaxes(_SQUARE, 1, 2))
_IDS = integers(6, 5, 3).astype("int32")
_TEXT = np.array(["a b", "c", "d e f", "", "g h"])


def _while(tf: Any, w: Any, x: Any) -> Any:
    return tf.while_loop(
        lambda i, _: i < 3, lambda i, h: (i + 1, tf.tanh(tf.matmul(tf.matmul(h, w), w, transpose_b=True))), [0, x]
    )[1]


def _array(tf: Any, w: Any, x: Any) -> Any:
    array = tf.TensorArray(tf.float32, 3, element_shape=[None, 4])
    for at in tf.range(3):
        array = array.write(at, tf.matmul(x, w) * tf.cast(at, tf.float32))
    return tf.transpose(array.stack(), [1, 0, 2])


def _cond(tf: Any, w: Any, x: Any) -> Any:
    h = tf.matmul(x, w)
    return tf.cond(tf.reduce_sum(w) > 0.0, lambda: tf.tanh(h), lambda: tf.square(h))


def _custom(tf: Any, w: Any, x: Any) -> Any:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def clipped(h: Any) -> Any:
        return tf.identity(h), lambda upstream: tf.clip_by_value(upstream, -0.1, 0.1)

    return clipped(tf.matmul(x, w))


def _scan(tf: Any, w: Any, x: Any) -> Any:
    steps = tf.transpose(tf.reshape(x, [-1, 3, 2]), [1, 0, 2])
    return tf.transpose(tf.scan(lambda h, each: tf.tanh(h + each), steps), [1, 0, 2])


def _table(tf: Any, w: Any, words: Any) -> Any:
    keys = tf.constant(["c", "a b"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([1, 2])), 0)
    return tf.gather(w, table.lookup(words))


def _lengths_and_scores(tf: Any, w: Any, words: Any, x: Any) -> Any:
    return {"words": tf.strings.upper(words), "scores": tf.matmul(x, w)}


def _sparse(tf: Any, w: Any, x: Any) -> Any:
    return tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(tf.nn.relu(x)), w)


def _ragged_mean(tf: Any, w: Any, x: Any) -> Any:
    return tf.reduce_mean(tf.ragged.map_flat_values(lambda ids: tf.gather(w, ids), x), axis=1)


def _ragged_ids(tf: Any) -> Any:
    return tf.ragged.constant([[1, 2], [3], [0, 4, 5], [2], [1, 1]], dtype=tf.int32)


def _ragged_words(tf: Any) -> Any:
    return tf.constant(_TEXT)


def _dense(tf: Any, w: Any, x: Any) -> Any:
    return tf.tanh(tf.matmul(x, w))


def _noisy(tf: Any, w: Any, x: Any) -> Any:
    return tf.matmul(x, w) + tf.random.normal([tf.shape(x)[0], 4])


def _seeded(tf: Any, w: Any, x: Any, seeds: Any) -> Any:
    return tf.matmul(x, w) + tf.map_fn(
        lambda seed: tf.random.stateless_normal([4], seed), seeds, fn_output_signature=tf.float32
    )


#: Row-wise programs: whether there are gradients, the function, and the inputs.
ROW_WISE: dict[str, tuple[int, Callable[[], Model]]] = {
    "matmul": (1, program(_dense, x=_X)),
    "while_loop": (1, program(_while, x=_X)),
    "TensorArray": (1, program(_array, x=_X)),
    "cond": (1, program(_cond, x=_X)),
    "custom_gradient": (1, program(_custom, x=_X)),
    "recompute_grad": (1, program(lambda tf, w, x: tf.recompute_grad(lambda h: tf.tanh(tf.matmul(h, w)))(x), x=_X)),
    "scan": (0, program(_scan, x=_X)),
    "map_fn": (1, program(lambda tf, w, x: tf.map_fn(lambda row: tf.linalg.matvec(w, row, transpose_a=True), x), x=_X)),
    "vectorized_map": (
        1,
        program(
            lambda tf, w, x: tf.vectorized_map(lambda row: tf.tanh(tf.linalg.matvec(w, row, transpose_a=True)), x), x=_X
        ),
    ),
    "einsum": (1, program(lambda tf, w, x: tf.einsum("bi,ij,bk->bjk", x, w, x), x=_X)),
    "cholesky": (0, program(lambda tf, w, x: tf.linalg.cholesky(x), x=_POSITIVE)),
    "solve": (0, program(lambda tf, w, x: tf.linalg.solve(x, tf.ones_like(x)), x=_POSITIVE)),
    "inverse and determinant": (0, program(lambda tf, w, x: (tf.linalg.inv(x), tf.linalg.logdet(x)), x=_POSITIVE)),
    "eigenvalues": (0, program(lambda tf, w, x: tf.linalg.eigvalsh(x), x=_POSITIVE)),
    "singular values": (0, program(lambda tf, w, x: tf.linalg.svd(x, compute_uv=False), x=_SQUARE)),
    "QR": (0, program(lambda tf, w, x: tf.linalg.qr(x).r, x=_SQUARE)),
    "expm": (0, program(lambda tf, w, x: tf.linalg.expm(0.1 * x), x=_SQUARE)),
    "fft": (0, program(lambda tf, w, x: tf.abs(tf.signal.rfft(x)), x=_X)),
    "stft": (0, program(lambda tf, w, x: tf.abs(tf.signal.stft(x, 8, 4)), x=sample(5, 32))),
    "sort and top_k": (
        0,
        program(lambda tf, w, x: (tf.sort(x, 1), tf.math.top_k(x, 2).indices, tf.argsort(x, 1)), x=_X),
    ),
    "argmax": (0, program(lambda tf, w, x: tf.argmax(tf.matmul(x, w), 1), x=_X)),
    "cumsum": (1, program(lambda tf, w, x: tf.cumsum(tf.matmul(x, w), axis=1), x=_X)),
    "gather": (1, program(lambda tf, w, x: tf.gather(w, x), x=_IDS)),
    "embedding_lookup": (1, program(lambda tf, w, x: tf.reduce_sum(tf.nn.embedding_lookup(w, x), 1), x=_IDS)),
    "gather with batch_dims": (0, program(lambda tf, w, x, ids: tf.gather(x, ids, batch_dims=1), x=_X, ids=_IDS)),
    "one_hot": (1, program(lambda tf, w, x: tf.matmul(tf.one_hot(x[:, 0], 6), w), x=_IDS)),
    "ResourceGatherNd": (1, program(lambda tf, w, x: tf.gather_nd(w, x[:, :1]), x=_IDS)),
    "scatter": (
        0,
        program(
            lambda tf, w, x: tf.tensor_scatter_nd_update(
                x, tf.stack([tf.range(tf.shape(x)[0]), tf.zeros(tf.shape(x)[0], tf.int32)], 1), x[:, 1]
            ),
            x=_X,
        ),
    ),
    "split along features": (1, program(lambda tf, w, x: tf.split(tf.matmul(x, w), 2, axis=1)[0] ** 2, x=_X)),
    "unstack and stack": (0, program(lambda tf, w, x: tf.stack(tf.unstack(x, axis=1)[::-1], 1), x=_X)),
    "pad and slice": (0, program(lambda tf, w, x: tf.pad(x, [[0, 0], [1, 2]])[:, 1:5], x=_X)),
    "where": (1, program(lambda tf, w, x: tf.where(tf.matmul(x, w) > 0, tf.matmul(x, w), 0.1), x=_X)),
    "softmax cross entropy": (
        1,
        program(
            lambda tf, w, x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.matmul(x, w)),
            x=_X,
            y=integers(4, 5).astype("int32"),
        ),
    ),
    "fake_quant": (
        1,
        program(lambda tf, w, x: tf.quantization.fake_quant_with_min_max_args(tf.matmul(x, w), -3, 3), x=_X),
    ),
    "bfloat16": (
        1,
        program(
            lambda tf, w, x: tf.cast(tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(w, tf.bfloat16)), tf.float32), x=_X
        ),
    ),
    "complex": (0, program(lambda tf, w, x: tf.math.angle(tf.complex(x, x[:, ::-1]) ** 2), x=_X)),
    "bitwise": (0, program(lambda tf, w, x: tf.bitwise.bitwise_xor(x, x[:, ::-1]), x=_IDS)),
    "depthwise convolution": (
        0,
        program(lambda tf, w, x: tf.nn.depthwise_conv2d(x, tf.ones([3, 3, 3, 2]), [1, 1, 1, 1], "SAME"), x=_IMAGES),
    ),
    "pooling": (
        0,
        program(lambda tf, w, x: tf.nn.max_pool2d(x, 2, 2, "VALID") + tf.nn.avg_pool2d(x, 2, 2, "VALID"), x=_IMAGES),
    ),
    "resize": (0, program(lambda tf, w, x: tf.image.resize(x, [5, 5], "bicubic"), x=_IMAGES)),
    "image patches": (
        0,
        program(
            lambda tf, w, x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"), x=_IMAGES
        ),
    ),
    "colours": (0, program(lambda tf, w, x: tf.image.rgb_to_hsv(tf.sigmoid(x)), x=_IMAGES)),
    "space_to_depth": (0, program(lambda tf, w, x: tf.nn.space_to_depth(x, 2), x=_IMAGES)),
    "sparse product": (1, program(_sparse, x=_X)),
    "ragged mean": (1, program(_ragged_mean, x=_ragged_ids)),
    "ragged output": (0, program(lambda tf, w, words: tf.strings.length(tf.strings.split(words)), words=_ragged_words)),
    "strings": (0, program(lambda tf, w, words: tf.strings.join([words, tf.strings.upper(words)], "-"), words=_TEXT)),
    "hash of strings": (
        1,
        program(lambda tf, w, words: tf.gather(w, tf.strings.to_hash_bucket_fast(words, 6)), words=_TEXT),
    ),
    "strings beside scores": (1, program(_lengths_and_scores, words=_TEXT, x=_X)),
    "lookup table": (1, program(_table, words=_TEXT)),
    "random numbers by row": (1, program(_seeded, x=_X, seeds=integers(99, 5, 2).astype("int32"))),
}

CASES = [
    *(Case(name, split(make, variables=count)) for name, (count, make) in ROW_WISE.items()),
    Case("matmul towers", step(ROW_WISE["matmul"][1])),
    Case(
        "gather towers",
        towers(ROW_WISE["gather"][1]),
        Verdict.FAIL,
        ("TensorFlow runs a lookup on its variable's device",),
    ),
    Case("noise", split(program(_noisy, x=_X), variables=0), Verdict.UNKNOWN, ("random numbers",)),
    Case(
        "softmax over rows",
        split(program(lambda tf, w, x: tf.nn.softmax(x, axis=0), x=_X), variables=0),
        Verdict.FAIL,
        ("not row-wise",),
    ),
    Case(
        "cumsum over rows",
        split(program(lambda tf, w, x: tf.cumsum(x), x=_X), variables=0),
        Verdict.FAIL,
        ("not row-wise",),
    ),
    Case(
        "centred over rows",
        split(program(lambda tf, w, x: x - tf.reduce_mean(x, 0), x=_X), variables=0),
        Verdict.FAIL,
        ("not row-wise",),
    ),
    Case(
        "unique rows",
        split(program(lambda tf, w, x: tf.unique(x[:, 0]).idx, x=_IDS), variables=0),
        Verdict.FAIL,
        ("not row-wise",),
    ),
    Case(
        "mean of a shard",
        split(program(lambda tf, w, x: tf.reduce_mean(tf.matmul(x, w)), x=_X)),
        Verdict.FAIL,
        ("scalar",),
    ),
    Case("rows dropped", towers_that_drop_rows(ROW_WISE["matmul"][1]), Verdict.FAIL, ("Row 4 of 5 was dropped",)),
    Case("parts swapped", swapped_parts(program(_dense, x=_X[:4])), Verdict.FAIL, ("order",)),
    Case("on one device", towers_on_one_device(ROW_WISE["matmul"][1]), Verdict.FAIL, ("CPU:1",)),
    Case("mean of means", mean_of_means(ROW_WISE["matmul"][1]), Verdict.FAIL, ("mean of means",)),
]
