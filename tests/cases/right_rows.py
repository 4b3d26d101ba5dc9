"""Right programs that work on rows, with ops of many kinds, and Keras models."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import tensorflow as tf
from case_table import BOTH, W, clean, rnd, sizes

import harness


def _rows(name, fn, inputs, modes=BOTH):
    """A row-wise function in hand-made towers with uneven shards where the rows do not divide."""

    def build(dev):
        def par(**kw):
            rows = len(next(iter(kw.values())))
            cut = sizes(rows, len(dev))
            parts = {k: tf.split(v, cut) for k, v in kw.items()}
            out = []
            for i, d in enumerate(dev):
                with tf.device(d):
                    out.append(fn(**{k: parts[k][i] for k in kw}))
            return tf.nest.map_structure(lambda *t: tf.concat(t, 0), *out)

        return dict(parallel=par, reference=fn, inputs=inputs, gradients=False)

    clean(modes=modes, name=name)(build)


_rows("softmax_float16_large", lambda x: tf.nn.softmax(x * 50), {"x": rnd(9, 40, dtype="float16")})
_rows(
    "matmul_bfloat16",
    lambda x: tf.cast(tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(rnd(300, 7, seed=2), tf.bfloat16)), tf.float32),
    {"x": rnd(11, 300)},
)
_rows("stft", lambda x: tf.abs(tf.signal.stft(x, 32, 16)), {"x": rnd(6, 200)})
_rows(
    "image_ops",
    lambda x: tf.image.resize(tf.image.adjust_contrast(tf.image.central_crop(x, 0.5), 2.0), [5, 9], "bicubic"),
    {"x": rnd(9, 12, 12, 3)},
)
_rows("svd_values", lambda x: tf.linalg.svd(x, compute_uv=False), {"x": rnd(7, 5, 5)})
_rows("inverse", lambda x: tf.linalg.inv(x), {"x": rnd(7, 5, 5) + 3 * np.eye(5, dtype="float32")})
_rows("bessel_digamma", lambda x: tf.math.digamma(tf.abs(x) + 0.1) + tf.math.bessel_i0(x), {"x": rnd(9, 5)})
_rows("int32_arithmetic", lambda i: (i * 31 + 7) // 3, {"i": np.arange(13, dtype="int32")})
_rows("uint8_images", lambda x: 255 - x, {"x": np.arange(60, dtype="uint8").reshape(12, 5)})
_rows(
    "strings_joined",
    lambda s: tf.strings.join([tf.strings.lower(s), tf.strings.substr(s, 0, 1)], "-"),
    {"s": np.array([b"Ab", b"Cd", b"Ef", b"Gh", b"I"])},
)
_rows("parsed_numbers", lambda s: tf.strings.to_number(s) * 2.0, {"s": np.array([b"1.5", b"2", b"-3", b"4", b"7"])})
_rows("minus_infinity", lambda x: tf.where(x > 0, x, -np.inf), {"x": rnd(9, 4)})
_rows("all_zero", lambda x: tf.nn.relu(x - 100.0), {"x": rnd(8, 4)})
_rows(
    "unique_counts",
    lambda x: tf.map_fn(lambda r: tf.size(tf.unique(r)[0]), x, fn_output_signature=tf.int32),
    {"x": np.arange(40).reshape(8, 5) % 3},
)
_rows("nested_map", lambda x: tf.vectorized_map(lambda r: tf.tensordot(r, r, 1), x), {"x": rnd(8, 6)})
_rows("three_rows_on_four", lambda x: tf.tanh(tf.matmul(x, W)), {"x": rnd(3, 6)})
_rows(
    "nest_of_outputs",
    lambda x, y: {"a": (x + y, [tf.argmax(x, 1)]), "b": tf.reduce_sum(x * y, 1)},
    {"x": rnd(9, 6), "y": rnd(9, 6, seed=3)},
)
_rows("float64_softmax", lambda x: tf.nn.log_softmax(x * 300), {"x": rnd(9, 20, dtype="float64")})
_rows(
    "complex_exponential",
    lambda z: tf.exp(z) * tf.math.conj(z),
    {"z": (rnd(8, 4) + 1j * rnd(8, 4, seed=2)).astype("complex64")},
)


def _keras(name, make, inputs, train=True):
    """A Keras model through make_parallel, values and gradients."""

    def build(dev):
        m = make()
        m.build(inputs["x"].shape) if not m.built else None
        m(tf.constant(inputs["x"][:1]))
        devices = dev.devices
        fn = lambda x: m(x)
        return dict(
            parallel=harness.make_parallel(fn, devices),
            reference=fn,
            inputs=inputs,
            variables=[w.value for w in m.trainable_weights],
        )

    clean(name=name)(build)


L = tf.keras.layers


class SelfAttention(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.a = L.MultiHeadAttention(2, 4)

    def call(self, x):
        return self.a(x, x, use_causal_mask=True)


_keras("keras_lstm", lambda: tf.keras.Sequential([L.LSTM(5)]), {"x": rnd(8, 4, 3)})
_keras("keras_gru_sequences", lambda: tf.keras.Sequential([L.GRU(4, return_sequences=True)]), {"x": rnd(8, 4, 3)})
_keras(
    "keras_conv",
    lambda: tf.keras.Sequential([L.Conv2D(4, 3, activation="relu"), L.MaxPooling2D(), L.Flatten(), L.Dense(3)]),
    {"x": rnd(9, 8, 8, 2)},
)
_keras("keras_attention", SelfAttention, {"x": rnd(8, 5, 6)})
_keras(
    "keras_norms_dropout_inference",
    lambda: tf.keras.Sequential(
        [L.Dense(8), L.LayerNormalization(), L.BatchNormalization(), L.Dropout(0.5), L.Dense(2, activation="softmax")]
    ),
    {"x": rnd(9, 6)},
)
_keras(
    "keras_separable_group_norm",
    lambda: tf.keras.Sequential([L.SeparableConv1D(6, 3), L.GroupNormalization(3), L.GlobalAveragePooling1D()]),
    {"x": rnd(8, 9, 4)},
)


@clean()
def keras_variables_named_themselves(dev):
    """Keras variables, not their TensorFlow values, given to verify."""
    m = tf.keras.Sequential([tf.keras.Input((6,)), L.Dense(3)])
    return dict(
        parallel=harness.make_parallel(lambda x: m(x), dev.devices),
        reference=lambda x: m(x),
        inputs={"x": rnd(8, 6)},
        variables=m.trainable_variables,
    )
