"""The tables of programs by family; those of Keras 2 need a process of their own."""

from __future__ import annotations

import hugging_face_cases
import keras_hub_cases
import keras_image_cases
import keras_layer_cases
import probability_cases
import recommender_cases
import tensorflow_cases

FAMILIES = {
    "keras.applications": keras_image_cases.CASES,
    "Keras layers": keras_layer_cases.CASES,
    "keras-hub": keras_hub_cases.CASES,
    "TensorFlow Probability, GPflow, Sonnet": probability_cases.CASES,
    "TensorFlow": tensorflow_cases.CASES,
}
#: ``tf.keras`` must be Keras 2 for these (``TF_USE_LEGACY_KERAS=1``).
KERAS_2 = {
    "Hugging Face": hugging_face_cases.CASES,
    "TensorFlow Recommenders, keras-rs": recommender_cases.CASES,
}
