"""Programs with TensorFlow Recommenders and keras-rs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from model_cases import Case, Model, split

from harness import Verdict
from harness.faults.samples import integers, sample

_ROWS = 5


def recommender(make: Callable[[], tuple[Any, Callable[..., Any]]], **inputs: Callable[[], Any]) -> Callable[[], Model]:
    """A layer or a model of a library of recommenders, and the function that calls it."""

    def build() -> Model:
        import keras
        import tensorflow as tf

        keras.utils.set_random_seed(6)
        made, fn = make()
        given = {name: value() for name, value in inputs.items()}
        with tf.device("CPU:0"):
            fn(**given)
        return fn, given, made.trainable_variables

    return build


def _cross() -> tuple[Any, Callable[..., Any]]:
    import tensorflow_recommenders as tfrs

    made = tfrs.layers.dcn.Cross(projection_dim=2)
    return made, lambda x: made(x)


def _multi_cross() -> tuple[Any, Callable[..., Any]]:
    import tensorflow_recommenders as tfrs

    made = tfrs.layers.feature_interaction.MultiLayerDCN(2, 2)
    return made, lambda x: made(x)


def _dot_interaction() -> tuple[Any, Callable[..., Any]]:
    import tensorflow_recommenders as tfrs

    made = tfrs.layers.feature_interaction.DotInteraction()
    return made, lambda x, y: made([x, y])


def _two_towers() -> tuple[Any, Callable[..., Any]]:
    import tensorflow as tf
    import tf_keras

    users = tf_keras.Sequential([tf_keras.layers.Embedding(10, 4), tf_keras.layers.Dense(3)])
    films = tf_keras.layers.Embedding(12, 3)
    return users, lambda user, film: tf.reduce_sum(users(user) * films(film), 1)


def _brute_force() -> tuple[Any, Callable[..., Any]]:
    import tensorflow as tf
    import tensorflow_recommenders as tfrs

    made = tfrs.layers.factorized_top_k.BruteForce(k=3).index(tf.constant(sample(8, 4, seed=7)))
    return made, lambda x: made(x)


def _retrieval() -> tuple[Any, Callable[..., Any]]:
    import tensorflow_recommenders as tfrs

    made = tfrs.tasks.Retrieval()
    return made, lambda x, y: made(x, y, compute_metrics=False)


def _feature_cross() -> tuple[Any, Callable[..., Any]]:
    import keras_rs

    made = keras_rs.layers.FeatureCross(projection_dim=2)
    return made, lambda x: made(x)


def _keras_dot() -> tuple[Any, Callable[..., Any]]:
    import keras_rs

    made = keras_rs.layers.DotInteraction()
    return made, lambda x, y: made([x, y])


def _keras_brute_force() -> tuple[Any, Callable[..., Any]]:
    import keras_rs

    made = keras_rs.layers.BruteForceRetrieval(sample(8, 4, seed=7), k=3)
    return made, lambda x: made(x)


def _four() -> Any:
    return sample(_ROWS, 4)


def _ids() -> Any:
    return integers(10, _ROWS).astype("int32")


CASES = [
    Case("TFRS Cross", split(recommender(_cross, x=_four))),
    Case("TFRS MultiLayerDCN", split(recommender(_multi_cross, x=_four))),
    Case(
        "TFRS DotInteraction",
        split(recommender(_dot_interaction, x=_four, y=lambda: sample(_ROWS, 4, seed=8)), variables=0),
    ),
    Case("TFRS two towers", split(recommender(_two_towers, user=_ids, film=_ids))),
    Case("TFRS BruteForce", split(recommender(_brute_force, x=_four), variables=0)),
    Case(
        "TFRS Retrieval",
        split(recommender(_retrieval, x=_four, y=lambda: sample(_ROWS, 4, seed=8)), variables=0),
        Verdict.FAIL,
        ("scalar",),
    ),
    Case("keras-rs FeatureCross", split(recommender(_feature_cross, x=_four))),
    Case(
        "keras-rs DotInteraction",
        split(recommender(_keras_dot, x=_four, y=lambda: sample(_ROWS, 4, seed=8)), variables=0),
    ),
    Case("keras-rs BruteForceRetrieval", split(recommender(_keras_brute_force, x=_four), variables=0)),
]
