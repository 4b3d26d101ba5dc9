"""Programs with the layers of Keras 3, one layer or a small model each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model_cases import Case, Model, mean_of_means, split, step, swapped_parts, towers, towers_that_drop_rows

from harness import Verdict
from harness.faults.samples import integers, sample


def layer(make: Callable[[Any], Any], *shape: int, **call: Any) -> Callable[[], Model]:
    """A layer, made by a function of the module ``keras.layers``, of ``shape[0]`` rows."""

    def build() -> Model:
        import keras
        import tensorflow as tf

        keras.utils.set_random_seed(1)
        made = make(keras.layers)
        x = sample(*shape)
        with tf.device("CPU:0"):
            made(x, **call)

        def fn(x: Any) -> Any:
            return made(x, **call)

        return fn, {"x": x}, made.trainable_variables

    return build


def tokens(make: Callable[[Any], Any], rows: int = 5) -> Callable[[], Model]:
    """A model of whole numbers below 20, six a row."""

    def build() -> Model:
        import keras
        import tensorflow as tf

        keras.utils.set_random_seed(1)
        model = make(keras)
        x = integers(20, rows, 6).astype("int32")
        with tf.device("CPU:0"):
            model(x)
        return lambda x: model(x), {"x": x}, model.trainable_variables

    return build


def _sequential(keras: Any, *layers: Any) -> Any:
    return keras.Sequential(list(layers))


def _transformer(keras: Any) -> Any:
    layers = keras.layers
    given = keras.Input((6,), dtype="int32")
    x = layers.Embedding(20, 8)(given)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
    return keras.Model(given, layers.Dense(20)(x))


#: Layers that are row-wise, each with the shape of its input.
ROW_WISE: list[tuple[str, Callable[[Any], Any], tuple[int, ...]]] = [
    ("Dense", lambda k: k.Dense(4, activation="gelu"), (5, 6)),
    ("LSTM", lambda k: k.LSTM(4), (5, 4, 3)),
    ("GRU", lambda k: k.GRU(4, return_sequences=True), (5, 4, 3)),
    ("GRU with dropout", lambda k: k.GRU(4, dropout=0.5, recurrent_dropout=0.5), (5, 4, 3)),
    ("Bidirectional", lambda k: k.Bidirectional(k.LSTM(3)), (5, 4, 3)),
    ("SimpleRNN", lambda k: k.SimpleRNN(4), (5, 4, 3)),
    ("ConvLSTM1D", lambda k: k.ConvLSTM1D(3, 2), (4, 3, 6, 2)),
    ("Conv1D", lambda k: k.Conv1D(4, 3, activation="relu"), (5, 8, 3)),
    ("Conv2D", lambda k: k.Conv2D(4, 3, padding="same"), (5, 8, 8, 3)),
    ("Conv2DTranspose", lambda k: k.Conv2DTranspose(4, 3, strides=2), (5, 4, 4, 3)),
    ("DepthwiseConv2D", lambda k: k.DepthwiseConv2D(3), (5, 8, 8, 3)),
    ("SeparableConv2D", lambda k: k.SeparableConv2D(4, 3), (5, 8, 8, 3)),
    ("Conv3D", lambda k: k.Conv3D(2, 2), (5, 4, 4, 4, 2)),
    ("LayerNormalization", lambda k: k.LayerNormalization(), (5, 6)),
    ("GroupNormalization", lambda k: k.GroupNormalization(2), (5, 4, 4, 6)),
    ("RMSNormalization", lambda k: k.RMSNormalization(), (5, 6)),
    ("UnitNormalization", lambda k: k.UnitNormalization(), (5, 6)),
    ("SpectralNormalization", lambda k: k.SpectralNormalization(k.Dense(4)), (5, 6)),
    ("PReLU", lambda k: k.PReLU(), (5, 6)),
    ("EinsumDense", lambda k: k.EinsumDense("abc,cd->abd", (None, 4)), (5, 3, 6)),
    ("TimeDistributed", lambda k: k.TimeDistributed(k.Dense(4)), (5, 3, 6)),
    ("Resizing", lambda k: k.Resizing(5, 5), (5, 8, 8, 3)),
    ("CenterCrop", lambda k: k.CenterCrop(4, 4), (5, 8, 8, 3)),
    ("Dropout outside of training", lambda k: k.Dropout(0.5), (5, 6)),
]

_BATCH = {"training": True}

CASES = [
    *(Case(name, split(layer(make, *shape))) for name, make, shape in ROW_WISE),
    Case("BatchNormalization", split(layer(lambda k: k.BatchNormalization(), 5, 6))),
    Case("Dense towers", step(layer(lambda k: k.Dense(4, activation="gelu"), 5, 6))),
    Case("LSTM towers", towers(layer(lambda k: k.LSTM(4), 5, 4, 3))),
    Case("Transformer", split(tokens(_transformer))),
    Case("Transformer towers", towers(tokens(_transformer))),
    Case("Embedding", split(tokens(lambda k: _sequential(k, k.layers.Embedding(20, 4))))),
    Case("Embedding and LSTM", split(tokens(lambda k: _sequential(k, k.layers.Embedding(20, 4), k.layers.LSTM(3))))),
    Case(
        "Embedding with a mask",
        split(tokens(lambda k: _sequential(k, k.layers.Embedding(20, 4, mask_zero=True), k.layers.GRU(3)))),
    ),
    Case(
        "CategoryEncoding", split(tokens(lambda k: k.layers.CategoryEncoding(20, output_mode="multi_hot")), variables=0)
    ),
    Case("IntegerLookup", split(tokens(lambda k: k.layers.IntegerLookup(vocabulary=[3, 5, 8])), variables=0)),
    Case("Discretization", split(layer(lambda k: k.Discretization([-0.5, 0.5]), 5, 6), variables=0)),
    Case(
        "BatchNormalization in training",
        split(layer(lambda k: k.BatchNormalization(), 6, 6, **_BATCH), variables=0),
        Verdict.FAIL,
        ("not row-wise", "moving_mean"),
    ),
    Case(
        "Dropout in training",
        split(layer(lambda k: k.Dropout(0.5), 6, 6, **_BATCH), variables=0),
        Verdict.FAIL,
        ("Random numbers are drawn once per shard", "in layer "),
    ),
    Case(
        "GRU with dropout in training",
        split(layer(lambda k: k.GRU(4, dropout=0.5), 6, 4, 3, **_BATCH), variables=0),
        Verdict.FAIL,
        ("Random numbers are drawn once per shard", "in layer "),
    ),
    Case(
        "GaussianNoise in training",
        split(layer(lambda k: k.GaussianNoise(0.5), 6, 6, **_BATCH), variables=0),
        Verdict.FAIL,
        ("Random numbers are drawn once per shard", "in layer "),
    ),
    Case(
        "RandomFlip",
        split(layer(lambda k: k.RandomFlip(), 6, 8, 8, 3), variables=0),
        Verdict.FAIL,
        ("Random numbers are drawn once per shard", "in layer random_flip"),
    ),
    Case("RandomFlip outside of training", split(layer(lambda k: k.RandomFlip(), 5, 8, 8, 3, training=False))),
    # The layer asks for CPU:0 itself.
    Case(
        "Hashing",
        split(tokens(lambda k: k.layers.Hashing(7)), variables=0),
        Verdict.FAIL,
        ("No op of the program ran on CPU:1",),
    ),
    Case(
        "Dense step without colocation",
        step(layer(lambda k: k.Dense(4, activation="gelu"), 5, 6), colocated=False),
        Verdict.FAIL,
        ("Backward ops are not on the devices of their forward ops",),
    ),
    Case(
        "Softmax over the batch",
        split(layer(lambda k: k.Softmax(axis=0), 6, 6), variables=0),
        Verdict.FAIL,
        ("not row-wise",),
    ),
    Case(
        "Conv2D rows dropped",
        towers_that_drop_rows(layer(lambda k: k.Conv2D(4, 3), 5, 6, 6, 2)),
        Verdict.FAIL,
        ("dropped",),
    ),
    Case("LSTM parts swapped", swapped_parts(layer(lambda k: k.LSTM(4), 4, 4, 3)), Verdict.FAIL, ("order",)),
    Case("GRU mean of means", mean_of_means(layer(lambda k: k.GRU(4), 5, 4, 3)), Verdict.FAIL, ("mean of means",)),
]
