"""Which layers draw random numbers in training: what they do decides, not what they could do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness.distribute import Training, equivalent
from harness.distribute.single_device import Experiment, facts_of
from harness.distribute.training import Data

layers = tf.keras.layers
SHAPE = (4, 3)


class Attention(tf.keras.layers.Layer):  # type: ignore[misc]
    """Attends to its own rows."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.heads = layers.MultiHeadAttention(2, 3, dropout=dropout)

    def call(self, x: Any) -> Any:
        return self.heads(x, x)


class Adds(tf.keras.layers.Layer):  # type: ignore[misc]
    """Adds what a function returns, which needs no seed generator of Keras's."""

    def __init__(self, noise: Callable[[], Any]) -> None:
        super().__init__(name="adds")
        self.noise = noise

    def call(self, x: Any) -> Any:
        return x + self.noise()


def in_graph_only() -> Any:
    if tf.executing_eagerly():
        raise RuntimeError("only as a graph")
    return tf.zeros([3])


def training(layer: Any) -> Training:
    model = tf.keras.Sequential([layers.Input(SHAPE), layer, layers.Flatten(), layers.Dense(2)])
    return Training(model, "mse", tf.keras.optimizers.SGD(0.1))


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=(16, *SHAPE)).astype("float32"), random.normal(size=(16, 2)).astype("float32")


#: Each layer that draws nothing, its twin that does, and what it is called.
PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "GRU": (lambda: layers.GRU(4), lambda: layers.GRU(4, dropout=0.5), "layer gru"),
    "LSTM": (lambda: layers.LSTM(4), lambda: layers.LSTM(4, recurrent_dropout=0.5), "layer lstm"),
    "SimpleRNN": (lambda: layers.SimpleRNN(4), lambda: layers.SimpleRNN(4, dropout=0.5), "layer simple_rnn"),
    "MultiHeadAttention": (lambda: Attention(0.0), lambda: Attention(0.5), "layer dropout"),
    "Dropout": (lambda: layers.Dropout(0.0), lambda: layers.Dropout(0.5), "layer dropout"),
    "GaussianNoise": (lambda: layers.GaussianNoise(0.0), lambda: layers.GaussianNoise(0.1), "layer gaussian_noise"),
    "fixed seed": (
        lambda: Adds(lambda: tf.random.stateless_normal([3], (1, 2))),
        lambda: Adds(lambda: tf.random.normal([3])),
        "layer adds",
    ),
    "tf.function": (
        lambda: Adds(tf.function(lambda: tf.zeros([3]))),
        lambda: Adds(tf.function(lambda: tf.random.uniform([3]))),
        "layer adds",
    ),
    "a function that cannot be run line by line": (
        lambda: Adds(tf.function(in_graph_only)),
        lambda: tf.keras.Sequential([Adds(tf.function(in_graph_only)), layers.Dropout(0.5)]),
        "layer dropout",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_layer_is_random_only_if_it_draws(name: str) -> None:
    silent, drawing, called = PAIRS[name]

    def random(layer: Callable[[], Any]) -> tuple[str, ...]:
        return facts_of(Experiment(lambda: training(layer()), "build", Data(*data(), 8), 1)).random

    assert random(silent) == ()
    assert random(drawing) == (called,)


def recurrent() -> Training:
    return training(layers.GRU(4))


def dropping() -> Training:
    return training(layers.GRU(4, dropout=0.5))


def of_scalar_loss() -> Training:
    """Each replica's loss counts in full: the gradients are too large."""
    made = recurrent()
    return Training(made.model, lambda y, predicted: tf.reduce_mean((y - predicted) ** 2), made.optimizer)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("build", "verdict", "reason"),
    [
        (recurrent, harness.Verdict.PASS, "match the single-device run"),
        (of_scalar_loss, harness.Verdict.FAIL, "returns one number for all its rows"),
        (dropping, harness.Verdict.UNKNOWN, "layer gru draws random numbers independently on each replica"),
    ],
)
def test_a_recurrent_training_is_judged_unless_it_draws(
    build: Any, verdict: harness.Verdict, reason: str, spec_of: Callable[[int], str], tmp_path: Path
) -> None:
    found = equivalent("mirrored", build, data(), 2, loops=("custom",), devices=spec_of(2), logs=tmp_path)
    assert found.verdict is verdict, found
    assert reason in found.reason
