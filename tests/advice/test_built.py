"""What ``build`` returns is checked before anything is run, and each mistake is one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.advice.built import built_by
from harness.advice.program import example_of, facts_of
from harness.advice.script import Source
from harness.errors import InvalidTarget

X = np.ones((8, 4), "float32")


def double(*arrays: Any) -> Any:
    return arrays[0] * 2


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((double, (X,), None), "variables is of type NoneType, not a tuple"),
        ((double, (X,), 3), "variables is of type int, not a tuple"),
        ((double, X), "inputs is of type ndarray, not a tuple"),
        ((double, ()), "there are no inputs"),
        ((double, (X, np.float32(2))), r"must be the batch, but inputs\[1\] holds a single number"),
        ((double, (X, X[:3])), r"but inputs\[0\] has 8 rows, inputs\[1\] has 3 rows"),
        ((double, ({"a": X[:3], "b": X},)), r"but inputs\[0\] has 3 and 8 rows"),
        ((double, (X[:0],)), "the batch has 0 rows"),
        ((double, (2.0,)), r"inputs\[0\] holds an object of type float, not an array"),
    ],
)
def test_what_is_no_program_is_refused(made: object, said: str) -> None:
    with pytest.raises(InvalidTarget, match=said):
        built_by(lambda: made, "train.py:build")


def test_nested_inputs_of_one_batch_are_a_program() -> None:
    built = built_by(lambda: (double, [{"a": X, "b": X}, X]), "train.py:build")
    assert example_of(built).rows == 8


def test_a_batch_of_another_size_is_made_of_dense_arrays_alone() -> None:
    import tensorflow as tf

    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    example = example_of(built_by(lambda: (double, (ragged,)), "train.py:build"))
    source = Source("build", "train")
    assert facts_of(example, source, "cpu:2", None).rows == 2
    with pytest.raises(InvalidTarget, match="returned a RaggedTensor, of which no batch of 4 rows can be made"):
        facts_of(example, source, "cpu:2", 4)
    dense = example_of(built_by(lambda: (double, (X,)), "train.py:build"))
    assert facts_of(dense, source, "cpu:2", 4).rows == 4
