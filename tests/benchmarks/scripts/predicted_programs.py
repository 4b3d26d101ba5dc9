"""The programs of ``predicted_speedups.py``: each is what ``build`` of ``harness advise`` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Build = Callable[[], tuple[Any, ...]]


def programs() -> Iterator[tuple[str, Build]]:
    """Yield 20 programs with their names: the even ones are for tuning, the odd ones are held back."""
    yield "dense 256x3, 64 rows", _trained(_dense(256, 3), (128,), 64, "sgd")
    yield "dense 256x3, 64 rows, Adam", _trained(_dense(256, 3), (128,), 64, "adam")
    yield "dense 512x2, 128 rows", _trained(_dense(512, 2), (256,), 128, "sgd")
    yield "dense 128x6, 256 rows", _trained(_dense(128, 6), (128,), 256, "sgd")
    yield "dense 768x3, 64 rows, forward", _forward(_dense(768, 3), (512,), 64)
    yield "dense 256x3 tanh, 256 rows", _trained(_dense(256, 3, "tanh"), (256,), 256, "sgd")
    yield "convolutions 32-32, 8 rows", _trained(_convolutions(32, 32), (24, 24, 3), 8, "sgd")
    yield "convolutions 16-32, 4 rows, Adam", _trained(_convolutions(16, 32), (32, 32, 3), 4, "adam")
    yield "convolutions 64-64, 8 rows", _trained(_convolutions(64, 64), (16, 16, 3), 8, "sgd")
    yield "convolutions 8-16, 16 rows", _trained(_convolutions(8, 16), (32, 32, 3), 16, "sgd")
    yield "convolutions 32-64-64, 8 rows, forward", _forward(_convolutions(32, 64, 64), (24, 24, 3), 8)
    yield "convolutions 24-48, 8 rows", _trained(_convolutions(24, 48), (28, 28, 1), 8, "sgd")
    yield "residual 16x2, 4 rows", _trained(_residual(16, 2), (32, 32, 3), 4, "sgd")
    yield "residual 24x1, 4 rows", _trained(_residual(24, 1), (32, 32, 3), 4, "sgd")
    yield "attention 64x1, 16 rows of 32", _trained(_attention(64, 1), (32, 64), 16, "sgd")
    yield "attention 128x1, 4 rows of 64", _trained(_attention(128, 1), (64, 128), 4, "sgd")
    yield "attention 192x2, 4 rows of 48, forward", _forward(_attention(192, 2), (48, 192), 4)
    yield "products of matrices 160", _products(160)
    yield "elementwise functions", _elementwise(1 << 17)
    yield "products of matrices 128", _products(128)


def _trained(made: Callable[[], Any], shape: tuple[int, ...], rows: int, optimizer: str) -> Build:
    def build() -> tuple[Any, ...]:
        import keras

        model, random = made(), np.random.default_rng(0)
        model.build((None, *shape))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer, loss=loss)
        return model, random.standard_normal((rows, *shape), "float32"), random.integers(0, 10, rows)

    return build


def _forward(made: Callable[[], Any], shape: tuple[int, ...], rows: int) -> Build:
    def build() -> tuple[Any, ...]:
        model = made()
        model.build((None, *shape))
        return model, np.random.default_rng(0).standard_normal((rows, *shape), "float32"), np.zeros(rows)

    return build


def _dense(width: int, depth: int, activation: str = "relu") -> Callable[[], Any]:
    def made() -> Any:
        import keras

        hidden = [keras.layers.Dense(width, activation=activation) for _ in range(depth)]
        return keras.Sequential([*hidden, keras.layers.Dense(10)])

    return made


def _convolutions(*filters: int) -> Callable[[], Any]:
    def made() -> Any:
        import keras

        layers = [keras.layers.Conv2D(each, 3, activation="relu") for each in filters]
        return keras.Sequential([*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])

    return made


def _residual(filters: int, blocks: int) -> Callable[[], Any]:
    def made() -> Any:
        import keras

        layers = keras.layers
        inputs = keras.Input((32, 32, 3))
        x: Any = layers.Conv2D(filters, 3, padding="same")(inputs)
        for _ in range(blocks):
            y = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
            x = layers.ReLU()(layers.Add()([x, layers.Conv2D(filters, 3, padding="same")(y)]))
        return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))

    return made


def _attention(width: int, blocks: int) -> Callable[[], Any]:
    def made() -> Any:
        import keras

        layers = keras.layers
        inputs: Any = keras.Input((None, width))
        x = inputs
        for _ in range(blocks):
            y = layers.LayerNormalization()(x)
            x = layers.Add()([x, layers.MultiHeadAttention(4, width // 4)(y, y)])
            y = layers.LayerNormalization()(x)
            x = layers.Add()([x, layers.Dense(width)(layers.Dense(4 * width, activation="relu")(y))])
        return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))

    return made


def _products(size: int) -> Build:
    def build() -> tuple[Any, ...]:
        import tensorflow as tf

        x = np.random.default_rng(0).standard_normal((8, size, size), "float32") / np.float32(np.sqrt(size))

        def power(x: Any) -> Any:
            for _ in range(4):
                x = tf.matmul(x, x)
            return x

        return power, (x,)

    return build


def _elementwise(size: int) -> Build:
    def build() -> tuple[Any, ...]:
        import tensorflow as tf

        x = np.random.default_rng(0).standard_normal((64, size // 64), "float32")

        def waves(x: Any) -> Any:
            for _ in range(8):
                x = tf.sin(x) + tf.sqrt(tf.abs(x) + 1.0)
            return x

        return waves, (x,)

    return build
