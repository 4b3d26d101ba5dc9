"""What looks like a cause is not named where it cannot be: as where it is no different in what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from harness import Devices, Verdict, verify
from harness.faults.samples import sample

pytestmark = pytest.mark.devices(min=4)
Made = tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]


def on_each(devices: Devices, work: Callable[..., Any], *arrays: Any, axis: int = 0) -> Any:
    parts = zip(*(tf.split(array, len(devices), axis) for array in arrays), strict=True)
    results = []
    for number, (device, part) in enumerate(zip(devices, parts, strict=True)):
        with tf.device(device.name):
            results.append(work(number, *part))
    return tf.concat(results, axis)


def cleared(devices: Devices, wrong: bool, places: list[list[int]]) -> Made:
    """Zeros are written into what the reference has as well."""
    weights = tf.constant(sample(5, 3))

    def shifted(x: Any) -> Any:
        return tf.nn.relu(tf.matmul(x, weights)) + 1.0

    def work(number: int, own: Any) -> Any:
        y = shifted(own)
        return tf.tensor_scatter_nd_update(y, places, tf.zeros([len(places), 3])) if wrong and number == 1 else y

    return lambda x: on_each(devices, work, x), shifted, {"x": sample(8, 5)}


def one_row(devices: Devices, wrong: bool) -> Made:
    return cleared(devices, wrong, [[1]])


def one_row_twice(devices: Devices, wrong: bool) -> Made:
    return cleared(devices, wrong, [[1], [1]])


def each_row_once(devices: Devices, wrong: bool) -> Made:
    """Rows are to be added to a table, and no two of them to the same row of it."""

    def work(_: int, table: Any, rows: Any) -> Any:
        put = tf.tensor_scatter_nd_update if wrong else tf.tensor_scatter_nd_add
        return put(tf.tanh(table), [[1], [0]], rows)

    def reference(table: Any, rows: Any) -> Any:
        turned = tf.reshape(tf.reverse(tf.reshape(rows, [-1, 2, 3]), [1]), [-1, 3])
        return tf.tanh(table) + turned

    inputs = {"table": sample(8, 3), "rows": sample(8, 3, seed=1)}
    return lambda table, rows: on_each(devices, work, table, rows), reference, inputs


CASES: list[tuple[Callable[[Devices, bool], Made], str, str]] = [
    (one_row, "TensorScatterUpdate", "overwrite"),
    (one_row_twice, "TensorScatterUpdate", "overwrite"),
    (each_row_once, "An addend is left out of output", "equal indices"),
]


@pytest.mark.parametrize(
    ("make", "said", "unsaid"), [pytest.param(*case, id=case[0].__name__) for case in CASES]
)
def test_what_cannot_be_the_cause_is_not_named(
    devices: Devices, make: Callable[[Devices, bool], Made], said: str, unsaid: str
) -> None:
    wrong, right = (verify(*make(devices[:4], each), devices=devices[:4], gradients=False) for each in (True, False))

    assert wrong.verdict is Verdict.FAIL
    assert said in wrong.reason, wrong
    assert unsaid not in wrong.reason, wrong
    assert right.verdict is Verdict.PASS, right.reason
