#!/usr/bin/env python
"""How far the peak that ``harness fit`` predicts for a batch, from an eighth to a half of it, is from the real one.

python tests/benchmarks/scripts/fit_error.py  # about four minutes
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# The repository's own package, whether it is installed or not.
sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

GPU = "GPU:0"


def cases() -> Iterator[tuple[str, Callable[[], Any], tuple[int, ...], Any, int]]:
    """Yield name, model, shape of a row, optimizer and rows."""
    import keras

    layers, optimizers = keras.layers, keras.optimizers

    def mlp(width: int, depth: int, activation: str = "relu") -> Callable[[], Any]:
        def made() -> Any:
            hidden = [layers.Dense(width, activation=activation) for _ in range(depth)]
            return keras.Sequential([*hidden, layers.Dense(10)])

        return made

    def cnn(*filters: int, norm: bool = False) -> Callable[[], Any]:
        def made() -> Any:
            parts: list[Any] = []
            for each in filters:
                parts += [layers.Conv2D(each, 3, activation=None if norm else "relu")]
                parts += [layers.BatchNormalization(), layers.ReLU()] if norm else [layers.MaxPool2D()]
            return keras.Sequential([*parts, layers.GlobalAveragePooling2D(), layers.Dense(10)])

        return made

    def residual(filters: int, blocks: int) -> Callable[[], Any]:
        def made() -> Any:
            inputs = keras.Input((32, 32, 3))
            x = layers.Conv2D(filters, 3, padding="same")(inputs)
            for _ in range(blocks):
                y = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(x)))
                x = layers.ReLU()(x + layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(y)))
            return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))

        return made

    def attention(width: int, blocks: int, length: int) -> Callable[[], Any]:
        def made() -> Any:
            inputs = keras.Input((length, width))
            x: Any = inputs
            for _ in range(blocks):
                y = layers.LayerNormalization()(x)
                x = x + layers.MultiHeadAttention(4, width // 4)(y, y)
                y = layers.LayerNormalization()(x)
                x = x + layers.Dense(width)(layers.Dense(4 * width, activation="relu")(y))
            return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))

        return made

    def mobilenet() -> Any:
        return keras.applications.MobileNetV2(
            weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
        )

    def embedding() -> Any:
        return keras.Sequential([layers.Embedding(5000, 64), layers.GlobalAveragePooling1D(), layers.Dense(10)])

    def stack(*parts: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: keras.Sequential([*(made() for made in parts), layers.Dense(10)])

    def joined() -> Any:
        inputs = keras.Input((32, 32, 3))
        above = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
        below = layers.Conv2D(32, 3, padding="same", activation="relu")(layers.MaxPool2D()(above))
        x = layers.Concatenate()([above, layers.UpSampling2D()(below)])
        x = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
        return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))

    dropout = [part for _ in range(4) for part in (lambda: layers.Dense(512, "relu"), lambda: layers.Dropout(0.3))]
    pooled = layers.GlobalAveragePooling2D
    normed = [part for _ in range(2) for part in (lambda: layers.Conv2D(32, 3), lambda: layers.GroupNormalization(8))]
    sgd, adam = (lambda: optimizers.SGD(0.01)), (lambda: optimizers.Adam(0.001))
    momentum = lambda: optimizers.SGD(0.01, momentum=0.9)  # noqa: E731
    yield "mlp 1024x4 sgd", mlp(1024, 4), (512,), sgd, 512
    yield "mlp 256x8 adam", mlp(256, 8), (128,), adam, 1024
    yield "mlp 2048x2 momentum", mlp(2048, 2), (256,), momentum, 64
    yield "mlp 512x6 tanh adam", mlp(512, 6, "tanh"), (512,), adam, 256
    yield "mlp 512x3 gelu sgd", mlp(512, 3, "gelu"), (256,), sgd, 2048
    yield "mlp 768x5 swish momentum", mlp(768, 5, "swish"), (128,), momentum, 512
    yield "cnn 32-64 sgd", cnn(32, 64), (64, 64, 3), sgd, 32
    yield "cnn 16-32-64 adam", cnn(16, 32, 64), (64, 64, 3), adam, 32
    yield "cnn 64-64 momentum", cnn(64, 64), (32, 32, 3), momentum, 32
    yield "cnn 24-48 adam", cnn(24, 48), (48, 48, 3), adam, 64
    yield "cnn norm 16-32 sgd", cnn(16, 32, norm=True), (32, 32, 3), sgd, 32
    yield "cnn norm 32-32 adam", cnn(32, 32, norm=True), (24, 24, 3), adam, 64
    yield "residual 16x3 momentum", residual(16, 3), (32, 32, 3), momentum, 32
    yield "residual 32x2 adam", residual(32, 2), (32, 32, 3), adam, 16
    yield "transformer 128x2 adam", attention(128, 2, 64), (64, 128), adam, 16
    yield "transformer 256x1 sgd", attention(256, 1, 32), (32, 256), sgd, 32
    yield "transformer 64x3 momentum", attention(64, 3, 128), (128, 64), momentum, 8
    yield "transformer 192x2 adam", attention(192, 2, 48), (48, 192), adam, 24
    yield "mobilenet momentum", mobilenet, (64, 64, 3), momentum, 16
    yield "mobilenet adam", mobilenet, (64, 64, 3), adam, 8
    yield "lstm 128", (lambda: keras.Sequential([layers.LSTM(128), layers.Dense(10)])), (32, 64), adam, 128
    yield "embedding", embedding, (64,), adam, 512
    yield "mlp dropout adam", stack(*dropout), (256,), adam, 512
    yield (
        "conv 1d adam",
        stack(lambda: layers.Conv1D(64, 5, activation="relu"), layers.GlobalMaxPool1D),
        (200, 32),
        adam,
        64,
    )
    yield "u-net adam", joined, (32, 32, 3), adam, 32
    yield (
        "two gru adam",
        stack(lambda: layers.GRU(64, return_sequences=True), lambda: layers.GRU(64)),
        (24, 32),
        adam,
        64,
    )
    yield "separable adam", stack(lambda: layers.SeparableConv2D(32, 3), layers.ReLU, pooled), (32, 32, 8), adam, 32
    yield "group norm sgd", stack(*normed, layers.ReLU, pooled), (24, 24, 3), sgd, 32
    yield "wide output adam", stack(lambda: layers.Dense(64, "relu"), lambda: layers.Dense(20000)), (64,), adam, 256
    yield "mlp 700 rmsprop", stack(lambda: layers.Dense(700, "elu")), (700,), lambda: optimizers.RMSprop(0.001), 300
    yield "conv 3d adam", stack(lambda: layers.Conv3D(8, 3), layers.GlobalAveragePooling3D), (12, 16, 16, 2), adam, 16
    yield "bidirectional lstm", stack(lambda: layers.Bidirectional(layers.LSTM(32))), (20, 16), adam, 64


def peaks(build: Callable[[], Any], shape: tuple[int, ...], optimizer: Any, rows: int) -> list[int]:
    """The peaks of five training steps in bytes, with everything on the software GPU."""
    import tensorflow as tf

    tf.keras.utils.clear_session()
    gc.collect()
    before = int(tf.config.experimental.get_memory_info(GPU)["current"])
    with tf.device(GPU):
        model, x = build(), tf.ones((rows, *shape))
        model(x)
        moves = optimizer()
        moves.build(model.trainable_variables)
        y = tf.zeros((rows,), tf.int64)

    def step(x: Any, y: Any) -> Any:
        with tf.device(GPU):
            with tf.GradientTape() as tape:
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
                loss = tf.reduce_mean(each)
            gradients = tape.gradient(loss, model.trainable_variables)
            moves.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    function: Any = tf.function(step)
    function(x, y)
    found = []
    for _ in range(5):
        tf.test.experimental.sync_devices()
        tf.config.experimental.reset_memory_stats(GPU)
        function(x, y).numpy()
        found.append(int(tf.config.experimental.get_memory_info(GPU)["peak"]) - before)
    return found


def main() -> None:
    """Print a line for each model, and the median and the largest error."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    import harness
    from harness.advice.peaks import Fit, Peak

    harness.configure("softgpu:1x8192")
    errors, outside = [], 0
    for name, build, shape, optimizer, rows in cases():
        measured = {size: peaks(build, shape, optimizer, size) for size in (rows // 8, rows // 4, rows // 2, rows)}
        smaller = tuple(Peak(size, max(each)) for size, each in measured.items() if size < rows)
        fit = Fit(name, "a training step", rows, 1, False, smaller, 0)
        largest = max(measured[rows])
        errors.append(fit.step_bytes / largest - 1)
        least, most = fit.interval
        outside += not least <= largest <= most
        spread = max(max(each) / min(each) for each in measured.values()) - 1
        sys.stdout.write(
            f"{name:26} {largest / 2**20:7.1f} MiB, predicted {errors[-1]:+6.1%} "
            f"({least / 2**20:.1f} to {most / 2**20:.1f} MiB), five steps differ by {spread:.1%}\n"
        )
        sys.stdout.flush()
    off = sorted(map(abs, errors))
    often = off[int(0.95 * (len(off) - 1))]
    sys.stdout.write(
        f"{len(off)} models: off by {statistics.median(off):.1%} (median), {often:.1%} (95th percentile), "
        f"{off[-1]:.1%} (largest); {outside} outside of the interval\n"
    )


if __name__ == "__main__":
    main()
