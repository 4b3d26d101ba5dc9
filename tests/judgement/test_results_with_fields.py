"""Results that are objects with fields are compared field by field, in eager code, in a graph and with gradients."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import harness
from harness import Devices, Verdict, verify
from harness.judgement.fields import in_fields

X = np.random.default_rng(3).normal(size=(16, 4)).astype(np.float32)


@dataclasses.dataclass
class Plain:
    loss: Any
    rows: Any
    name: str = "plain"


@dataclasses.dataclass
class Nested:
    """A dataclass that ``tf.nest`` takes apart."""

    loss: Any
    rows: Any

    def __tf_flatten__(self) -> tuple[tuple[()], tuple[Any, Any]]:
        return (), (self.loss, self.rows)

    @classmethod
    def __tf_unflatten__(cls, _: tuple[()], parts: tuple[Any, Any]) -> Nested:
        return cls(*parts)


class Extension(tf.experimental.ExtensionType):  # type: ignore[misc]
    loss: tf.Tensor
    rows: tf.Tensor
    name: str = "extension"


class Outer(tf.experimental.ExtensionType):  # type: ignore[misc]
    inner: Extension

    def __init__(self, loss: Any, rows: Any) -> None:
        self.inner = Extension(loss, rows)


KINDS = (Plain, Nested, Extension, Outer)


@pytest.mark.cases("alone-Outer", "in a dict-Nested")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", ["alone", "in a dict"])
def test_fields_are_compared_with_their_rounding_errors(kind: Any, held: str, devices: Devices) -> None:
    def result(loss: Any, rows: Any) -> Any:
        found = kind(loss, rows)
        return found if held == "alone" else {"step": [found, None]}

    def reference(x: Any) -> Any:
        return result(tf.reduce_sum(tf.tanh(x) * 0.3), tf.tanh(x))

    def program(factor: float) -> Any:
        def parallel(x: Any) -> Any:
            losses, rows = [], []
            for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    rows.append(tf.tanh(part))
                    losses.append(tf.reduce_sum(rows[-1] * 0.3) * factor)
            return result(tf.add_n(losses), tf.concat(rows, 0))

        return harness.colocate_gradients(parallel)

    clean = verify(program(1.0), reference, {"x": X}, devices=devices, gradients=True)
    assert clean.verdict is Verdict.PASS, clean
    assert clean.exercised.values >= 2 * (X.size + 1), clean
    faulty = verify(program(1.01), reference, {"x": X}, devices=devices, gradients=True)
    assert faulty.verdict is Verdict.FAIL, faulty
    place = ("output" if held == "alone" else "output['step'][0]") + (".inner" if kind is Outer else "")
    assert any(f"{place}.loss" in line for line in (faulty.reason, *faulty.lines())), faulty
    assert f"{place}.rows" not in str(faulty), faulty


def test_a_field_of_another_name_is_another_structure(devices: Devices) -> None:
    parallel = harness.make_parallel(lambda x: {"loss": x, "rows": x * 2.0}, devices)
    other = dataclasses.make_dataclass("Other", ["loss", "row"])

    def judged(kind: Any) -> harness.Verification:
        return verify(lambda x: Nested(**parallel(x)), lambda x: kind(x, x * 2.0), {"x": X}, devices=devices)

    assert judged(Nested).verdict is Verdict.PASS
    faulty = judged(other)
    assert {finding.kind for finding in faulty.findings if finding.severity is Verdict.FAIL} == {"structure"}, faulty


def test_what_cannot_be_compared_is_left_out_and_what_has_no_fields_stays() -> None:
    ragged, sparse, variable = tf.ragged.constant([[1.0], []]), tf.sparse.eye(2), tf.Variable(1.0)
    nest = {"a": [ragged, sparse], "b": (variable, None, "text", X)}
    assert in_fields(nest) is nest
    fields = in_fields([Plain(variable, in_fields, "c"), 3])
    assert type(fields[0]).__name__ == "Plain"
    assert fields[0].loss is variable
    assert fields[0].rows is None
    assert fields[0].name == "c"
    assert fields[1] == 3


def test_a_program_of_make_parallel_is_told_what_it_may_return(devices: Devices) -> None:
    parallel = harness.make_parallel(lambda x: Plain(x, x), devices)
    with pytest.raises(harness.ShardingError, match="of type Plain, not a tensor; return tensors, or a list"):
        parallel(x=X)
    held = harness.make_parallel(lambda step: step.rows, devices)
    with pytest.raises(harness.ShardingError, match="argument step is of type Extension, not a tensor"):
        held(step=Extension(X[0, 0], X))
