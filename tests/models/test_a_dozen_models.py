"""A dozen of the programs with Keras alone, which is installed with TensorFlow; ``tox -e models`` runs all of them."""

from __future__ import annotations

import keras_layer_cases
import pytest
import tensorflow_cases
from model_cases import Case, check

from harness import Devices

_CHOSEN = {
    "GRU",
    "GRU with dropout",
    "Conv2D",
    "Transformer",
    "Embedding with a mask",
    "BatchNormalization in training",
    "Dropout in training",
    "Conv2D rows dropped",
    "gather",
    "lookup table",
    "strings beside scores",
    "ragged mean",
    "argmax",
}
CASES = [case for case in (*keras_layer_cases.CASES, *tensorflow_cases.CASES) if case.name in _CHOSEN]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_right(case: Case, devices: Devices) -> None:
    check(case, devices)
